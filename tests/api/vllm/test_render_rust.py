"""What a client of vLLM's Rust render server knows (features/render_golden.jsonl) is in our answers, same values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import ApiConfig
from fastfront.parse.prepare import Preparation
from fastfront.parse.registry import choose
from tests.api.fakes import Client

#: Answered by us, as by vLLM's Python server, and refused by the Rust one.
MORE = {
    "completion render list",
    "completion render ids list",
    "message no content",
    "empty content",
    "empty parts",
    "bad tool args",  # Python: kept as a string where they are no JSON
    "continue last user",  # Python: any last message may be continued
}
#: Values of the Python server, which we follow, where the Rust one gives others: name, key, ours.
PYTHON: dict[tuple[str, str], Any] = {
    ("chat render no model", "model"): None,
    ("prompt+max too long", "sampling_params.max_tokens"): 55,  # what is left of the context
    # the grammar is made by the engine, of the schema as it came, and reasoning comes first
    ("chat render json_schema", "sampling_params.structured_outputs.structural_tag"): None,
    ("chat render json_schema", "sampling_params.structured_outputs._backend"): None,
    ("chat render json_schema", "reasoning_ended"): False,
    # rendered, not dropped
    ("roles developer", "token_ids"): [
        151644, 8948, 198, 35, 151645, 198, 151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198,
    ],
}  # fmt: skip
#: Left out, as they are what stands when nothing is said.
DEFAULTS = {"sampling_params.watermarking": True, "sampling_params.ignore_eos": False, "sampling_params.max_tokens": 16}


@pytest.fixture(scope="module")
def served(qwen: Callable[..., Client]) -> Client:
    client = qwen(64, ("qwen3",))
    client.state.settings = ApiConfig(tool_call_parser="hermes", reasoning_parser="qwen3")
    client.state.preparation = Preparation("hermes", "qwen3", client.pipeline.prompter.tokenizer.token_to_id)
    client.state.format = choose("hermes", "qwen3")
    return client


def _pairs(shared: Path) -> Iterator[dict[str, Any]]:
    for line in (shared / "features" / "render_golden.jsonl").read_text().splitlines():
        pair = json.loads(line)
        is_ours = pair["path"] in ("/v1/chat/completions/render", "/v1/completions/render") and pair["method"] == "POST"
        # HTTP's own affairs, and templates of requests, which are refused unless a flag is set, are tested there.
        if is_ours and pair["name"] not in ("no content-type", "request chat_template", "chat_template in kwargs"):
            yield pair


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value


def test_known_fields(shared: Path, served: Client) -> None:
    more, python, answered = set(), set(), 0
    for pair in _pairs(shared):
        name = pair["name"]
        headers = {key.lower(): value for key, value in (pair["req_headers"] or {}).items()}
        answer = served.post(pair["path"], pair["request"], headers)
        if answer.status != pair["status"]:
            assert (answer.status, pair["status"]) == (200, 400), (name, answer.body)
            more.add(name)
        if answer.status != 200 or pair["status"] != 200:
            continue
        wants, gots = json.loads(pair["body"]), answer.json
        assert type(wants) is type(gots), name
        for want, got in zip(*(v if isinstance(v, list) else [v] for v in (wants, gots)), strict=True):
            answered += 1
            ours = dict(_leaves(got))
            for key, value in _leaves(want):
                if key == "request_id" and "x-request-id" not in headers:
                    assert ours[key].startswith(value.partition("-")[0]), name
                elif ours.get(key, DEFAULTS.get(key)) != value:
                    assert (name, key) in PYTHON, (name, key, value, ours.get(key))
                    assert ours.get(key) == PYTHON[name, key], (name, key)
                    python.add((name, key))
    assert (more, python) == (MORE, set(PYTHON))
    assert answered >= 12
