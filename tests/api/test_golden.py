"""vLLM's own answers (features/main_golden_py.jsonl) against ours to the same requests: status, keys, fixed values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import ApiConfig
from tests.api.fakes import Answer, Client, Script

#: Of these endpoints, what is not served yet is refused by name.
REFUSED = {
    "chat tools": "tool_choice",
    "chat tools stream": "tool_choice",
    "chat required": "tool_choice",
    "chat named": "tool_choice",
}
PATHS = (
    "/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/detokenize", "/health", "/ping", "/version",
    "/load",
)  # fmt: skip
#: Ours beside vLLM's keys.
MORE_KEYS = {"version": {"fastfront_version", "native"}}
#: vLLM adds what the body's other possible form lacks.
ONE_FORM = ("tokenize ids",)
#: Not written without the parsers and log-probabilities that the golden server had.
SKIP_CASES = ("cors", "405")


@pytest.fixture(scope="module")
def served(qwen: Callable[..., Client]) -> Client:
    client = qwen(2048, ("qwen3", "alias2"))
    client.state.settings = ApiConfig(enable_prompt_tokens_details=True)
    client.pipeline.script = Script(("user\n",), "length", created_cache_tokens=0)
    return client


def _pairs(shared: Path) -> list[dict[str, Any]]:
    lines = (shared / "features" / "main_golden_py.jsonl").read_text().splitlines()
    pairs = [json.loads(line) for line in lines]
    return [pair for pair in pairs if pair["path"] in PATHS and pair["name"] not in SKIP_CASES]


def _send(client: Client, pair: dict[str, Any]) -> Answer:
    if pair["request"] is None:
        return client.call(pair["method"], pair["path"], b"", {})
    headers = {name.lower(): value for name, value in (pair["req_headers"] or {}).items()}
    return client.post(pair["path"], pair["request"], headers)


def _shape(value: Any) -> Any:
    """Keys in order; only the first of a list's items, whose shapes are alike."""
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(value[0])] if value and isinstance(value[0], dict) else "list"
    return "value"


def _drop_parsed(shape: Any) -> Any:
    """What only a reasoning parser or log-probabilities add is null or absent here."""
    if not isinstance(shape, dict):
        return [_drop_parsed(item) for item in shape] if isinstance(shape, list) else "value"
    values = ("logprobs", "prompt_logprobs", "prompt_token_ids", "token_ids", "token_strs")
    parsed = ("completion_tokens_details",)
    return {key: "value" if key in values else _drop_parsed(item) for key, item in shape.items() if key not in parsed}


def test_golden(shared: Path, served: Client) -> None:
    seen = 0
    for pair in _pairs(shared):
        name = pair["name"]
        answer = _send(served, pair)
        if name in REFUSED:
            assert answer.status == 400, name
            assert answer.error["param"] == REFUSED[name], name
            continue
        if name == "dp rank bad":
            continue  # the link knows how many ranks there are
        seen += 1
        assert answer.status == pair["status"], (name, answer.body)
        if "event-stream" in pair["resp_headers"].get("content-type", ""):
            assert answer.content_type == pair["resp_headers"]["content-type"]
            _same_events(name, pair["body"], answer)
            continue
        assert answer.content_type == pair["resp_headers"].get("content-type"), name
        if not pair["body"]:
            assert answer.body == b"", name
            continue
        want, got = json.loads(pair["body"]), answer.json
        if pair["status"] >= 400:
            if name in ONE_FORM:
                got["error"]["message"] = want["error"]["message"]
            assert got == want, name
        elif pair["path"] in ("/tokenize", "/detokenize", "/load"):
            assert got == want, name
        else:
            for key in MORE_KEYS.get(name, ()):
                got.pop(key)
            assert list(got) == list(want), name
            assert _drop_parsed(_shape(got)) == _drop_parsed(_shape(want)), name
            assert got.get("model") == want.get("model"), name
            assert got.get("object") == want.get("object"), name
    assert seen > 30


def _same_events(name: str, body: str, answer: Answer) -> None:
    want = [json.loads(block[6:]) for block in body.split("\n\n") if block.startswith("data: {")]
    got = answer.events
    shapes = [json.dumps(_drop_parsed(_shape(event))).replace('"reasoning"', '"content"') for event in want]
    assert [json.dumps(_drop_parsed(_shape(event))) for event in got] == shapes, name


def test_ids_and_fingerprint(served: Client) -> None:
    chat, completion = served.chat().json, served.complete().json
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{16}", chat["id"])
    assert re.fullmatch(r"cmpl-[0-9a-f]{16}", completion["id"])
    assert re.fullmatch(r"vllm-0\.32\.0-[0-9a-f]{8}", chat["system_fingerprint"])
    assert chat["system_fingerprint"] == completion["system_fingerprint"]


def test_usage(served: Client) -> None:
    usage = served.complete(prompt="Hello world", max_tokens=3).json["usage"]
    assert usage["prompt_tokens"] == 2
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {
        "cached_tokens": 0,
        "created_cache_tokens": None,
        "multimodal_tokens": None,
    }
