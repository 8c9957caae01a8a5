"""vLLM's own answers of its render server (features/render_derender.jsonl) against ours to the same requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import ApiConfig
from fastfront.parse.prepare import Preparation
from fastfront.parse.registry import choose
from tests.api.fakes import Client

LENGTH = 40960
#: The routes are always served here.
OFF = re.compile(r"off\..*")
#: Wrong bodies. vLLM tells what both forms of the body lack, we what the one lacks that `stream` asks for.
OTHER_WORDS = (
    "derender.chat_negative",
    "derender.chat_text_mode",
    "derender.chat_missing",
    "derender.comp_len_mismatch",
)
#: Ours is refused: a state that no server has written, over which vLLM loses text; or in words of its own.
REFUSED = {
    "derender.comp_stream_bad_state": "stream_state: prefix_offset (9) must not be more than read_offset (12)",
    "derender.chat_huge_id": "choice 0: token id 99999999999 is out of vocabulary",
    "derender.chat_stream_bad_state": "stream_state: output_chunk_lens must sum to len(output_token_ids) (got sum=1",
    "derender.chat_stream_two": "a streamed chunk has at most one choice (got 2)",
}

#: What is right where vLLM is not: the end token is no text, line ends around reasoning are markup (as in its streams),
#: and an answer that calls end is finished for its calls.
RIGHT: dict[str, dict[str, Any]] = {
    "chat_plain": {"content": "Hello there 🫠"},
    "chat_reasoning": {"content": "Hi!", "reasoning": "I ponder."},
    "chat_tool": {},
    "chat_tool_required": {"content": None},
    "chat_stop_reason": {"content": "Hi"},
    "chat_unknown_id": {"content": "ab"},
    "chat_return_ids": {"content": "Hi"},
    "chat_include_reasoning_false": {"content": "y"},
}
#: The same of chunks' deltas. A call begins with its first argument, or with its end: what looked like one may be none.
#: And text is told when its characters are whole, as in a served stream, though the token goes on: vLLM waits for that.
RIGHT_DELTAS: dict[str, dict[str, Any]] = {
    "chat_stream_plain.0": {"content": "Hi "},
    "chat_stream_plain.1": {"content": "🫠"},
    "chat_stream_plain.2": {"content": None},
    "chat_stream_think.0": {"reasoning": "x"},
    "chat_stream_think.1": {"content": None, "reasoning": None},
    "chat_stream_think.2": {"content": "y"},
    "chat_stream_tool.1": {"tool_calls": None},
    "chat_stream_tool.2": {
        "tool_calls": [
            {
                "id": "chatcmpl-tool-8c610c79bd95be24",
                "type": "function",
                "index": 0,
                "function": {"name": "get_weather", "arguments": '{"city": "Oslo'},
            }
        ]
    },
}


def _correct(want: Any, name: str) -> None:
    name = name.removeprefix("derender.")
    if (delta := RIGHT_DELTAS.get(name)) is not None:
        _correct_delta(want, delta)
    right = RIGHT.get(name)
    if right is None:
        return
    choice = want["choices"][0]
    choice["message"].update(right)
    if "tool_calls" in choice["message"]:
        choice["finish_reason"] = "tool_calls"


def _correct_delta(want: Any, right: dict[str, Any]) -> None:
    shown = want["chunk"]["choices"][0]["delta"]
    assert any(shown.get(name) != value for name, value in right.items()), "a correction that corrects nothing"
    shown.update(right)
    if shown.get("tool_calls", ()) is None:
        del shown["tool_calls"]
        want["stream_state"].update(tools_streamed=False, last_tool_call_ids=[])


@pytest.fixture(scope="module")
def plain(qwen: Callable[..., Client]) -> Client:
    return qwen(LENGTH, ("m",))


@pytest.fixture(scope="module")
def parsing(qwen: Callable[..., Client]) -> Client:
    client = qwen(LENGTH, ("m",))
    client.state.settings = ApiConfig(tool_call_parser="hermes", reasoning_parser="qwen3")
    token_id = client.pipeline.prompter.tokenizer.token_to_id
    client.state.preparation = Preparation("hermes", "qwen3", token_id)
    client.state.format = choose("hermes", "qwen3")
    return client


def _fixed(value: Any) -> Any:
    """Without what differs each time: made-up ids, and the time."""
    if isinstance(value, list):
        return [_fixed(item) for item in value]
    if not isinstance(value, dict):
        return value
    fixed = {key: _fixed(item) for key, item in value.items() if key != "created"}
    if isinstance(fixed.get("id"), str):
        fixed["id"] = re.sub(r"^(chatcmpl-tool-)?[0-9a-f]{16}$", "ID", fixed["id"])
    if "request_id" in fixed:
        fixed["request_id"] = re.sub(r"-[0-9a-f]{16}", "-ID", fixed["request_id"])
    return fixed


def test_golden(shared: Path, plain: Client, parsing: Client) -> None:
    seen = 0
    for line in (shared / "features" / "render_derender.jsonl").read_text().splitlines():
        pair = json.loads(line)
        name: str = pair["name"]
        if OFF.fullmatch(name):
            continue
        answer = (plain if name.startswith("nop.") else parsing).post(pair["path"], pair["body"])
        want = json.loads(pair["response_text"])
        assert answer.content_type == pair["content_type"], name
        seen += 1
        if name in REFUSED:
            assert answer.status == 400, name
            assert answer.error["message"].startswith(REFUSED[name]), name
            continue
        assert answer.status == pair["status"], (name, answer.body)
        if name == "render.chat_too_long":
            # vLLM stops counting one above the limit
            want["error"]["message"] = answer.error["message"]
            assert re.search(r"maximum context length is 40960 tokens.* contains 4\d{4} input tokens", str(want))
        if name in OTHER_WORDS:
            assert answer.error["type"] == want["error"]["type"], name
            assert answer.error["param"].startswith("body"), name
            continue
        _correct(want, name)
        assert json.dumps(_fixed(answer.json)) == json.dumps(_fixed(want)), name
    assert seen == 67
