"""The cases of ../shared that end before the engine: each is refused, or served, with the status that vLLM gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfront.api.errors import render_error
from fastfront.errors import MethodNotAllowedError
from tests.api.fakes import Answer, Client

PREFIXES = ("bad.", "prompt.", "max.", "stop.empty", "stop.five", "n.", "usage.", "tokenize.", "detokenize.", "get.")
CHAT = (
    "chat.continue_both chat.empty_messages chat.content_null_user chat.image_on_text_model chat.top_logprobs_alone "
    "chat.top_logprobs_big chat.stream_options_alone chat.bad_template_kwargs chat.request_template "
    "chat.user_injects_marker so.json_object so.json_schema so.json_schema_missing so.unknown tool.empty_list "
    "tool.choice_without_tools tool.required_without_tools tool.history lp.too_many lp.negative"
).split()


def _names(shared: Path) -> list[str]:
    expected = json.loads((shared / "cases" / "http" / "expected.json").read_text())
    return [name for name in expected if name.startswith(PREFIXES) or name in CHAT]


def _send(client: Client, case: dict[str, Any]) -> Answer:
    path, body, raw = case["path"], case["body"], case["raw"]
    if body is None and raw is None:
        if ("GET", path) not in client.handlers:  # the router's affair
            status, data, kind, headers = render_error(MethodNotAllowedError("", allowed=("POST",)))
            return Answer(status, data, kind, dict(headers))
        return client.get(path)
    data = raw.encode("utf-8", "surrogateescape") if raw is not None else body
    return client.post(path, data, case["headers"])


def _allowed(expected: dict[str, Any]) -> list[dict[str, Any]]:
    return list(expected["any"]) if "any" in expected else [expected]


@pytest.fixture(scope="module")
def served(qwen: Callable[..., Client]) -> Client:
    return qwen(40960)


def test_cases(shared: Path, served: Client) -> None:
    requests = json.loads((shared / "cases" / "http" / "requests.json").read_text())
    expected = json.loads((shared / "cases" / "http" / "expected.json").read_text())
    names = _names(shared)
    assert len(names) > 60
    wrong: list[str] = []
    for name in names:
        answer = _send(served, requests[name])
        wanted = _allowed(expected[name])
        if answer.status not in [want["status"] for want in wanted]:
            wrong.append(f"{name}: {answer.status} {answer.body[:200]!r}, not {wanted[0]['status']}")
        elif wanted[0].get("error"):
            error, want = answer.error, wanted[0]["error"]
            if (error["type"], error["code"]) != (want["type"], want["code"]):
                wrong.append(f"{name}: {error}, not {want}")
        elif name.startswith(("tokenize.", "detokenize.")) and answer.json != wanted[0]["body"]:
            wrong.append(f"{name}: {answer.json}, not {wanted[0]['body']}")
        elif answer.status == 200 and wanted[0].get("usage") and not requests[name]["body"].get("stream"):
            if answer.json["usage"]["prompt_tokens"] != wanted[0]["usage"]["prompt_tokens"]:
                wrong.append(f"{name}: {answer.json['usage']}, not {wanted[0]['usage']}")
    assert not wrong, "\n".join(wrong)


#: Refused on purpose with another `param` than vLLM's, which names an internal type or none at all.
OTHER_PARAM = {
    "chat.content_null_user",  # vLLM: body.messages.0.ChatCompletionDeveloperMessageParam.content
    "chat.image_on_text_model",  # vLLM: null; here the message's part
    "prompt.empty_list",  # vLLM: null
    "prompt.id_out_of_range",  # vLLM: null
    "bad.utf8",
}


def test_params_and_messages(shared: Path, served: Client) -> None:
    """Where vLLM names the field, so do we; where we repeat its message we repeat it exactly."""
    requests = json.loads((shared / "cases" / "http" / "requests.json").read_text())
    expected = json.loads((shared / "cases" / "http" / "expected.json").read_text())
    same_message = 0
    for name in _names(shared):
        want = _allowed(expected[name])[0]
        if not want.get("error") or name in OTHER_PARAM:
            continue
        error = _send(served, requests[name]).error
        assert error["param"] == want["error"]["param"], name
        same_message += error["message"] == want.get("message")
    assert same_message >= 30
