"""The events of both endpoints' streams."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront.api.errors import error_event
from fastfront.config import ApiConfig
from fastfront.errors import EngineDeadError, EngineRequestError, RequestError
from tests.api.fakes import Answer, Client, Script

USAGE = {"include_usage": True}
EVERY = {"include_usage": True, "continuous_usage_stats": True}


def ask(client: Client, kind: str, **body: Any) -> Answer:
    return client.chat(stream=True, **body) if kind == "chat" else client.complete(stream=True, **body)


def texts(events: list[Any]) -> dict[int, str]:
    """The text of each choice."""
    joined: dict[int, str] = {}
    for event in events:
        for choice in event["choices"]:
            piece = choice["delta"].get("content") if "delta" in choice else choice["text"]
            joined[choice["index"]] = joined.get(choice["index"], "") + (piece or "")
    return joined


kinds = pytest.mark.parametrize("kind", ["chat", "completion"])


@kinds
def test_head(client: Client, kind: str) -> None:
    answer = ask(client, kind)
    assert (answer.status, answer.content_type) == (200, "text/event-stream; charset=utf-8")
    assert answer.headers == {"cache-control": "no-cache"}


@kinds
@pytest.mark.parametrize("text", ["plain", 'quote " and \\', "line\nbreak\t\x00", "漢字 🫠 é", "</script>"])
def test_text_survives(client: Client, kind: str, text: str) -> None:
    client.pipeline.script = Script((text, text))
    assert texts(ask(client, kind).events) == {0: text * 2}


@kinds
def test_ids_are_constant(client: Client, kind: str) -> None:
    events = ask(client, kind, stream_options=USAGE).events
    assert len({(event["id"], event["object"], event["created"], event["model"]) for event in events}) == 1


def test_chat_keys(client: Client) -> None:
    role, middle, last = client.chat(stream=True).events
    assert role["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert (role["prompt_token_ids"], role["prompt_text"]) == (None, None)
    assert middle["choices"] == [
        {"index": 0, "delta": {"content": "Hello"}, "logprobs": None, "finish_reason": None, "token_ids": None}
    ]
    assert list(middle) == ["id", "object", "created", "model", "choices"]
    assert last["choices"] == [
        {
            "index": 0,
            "delta": {"content": " world"},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": None,
        }
    ]
    assert last["system_fingerprint"].startswith("vllm-0.32.0-")


def test_completion_keys(client: Client) -> None:
    middle, last = client.complete(stream=True).events
    keys = ["index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"]
    assert list(middle["choices"][0]) == list(last["choices"][0]) == keys
    assert list(middle) == ["id", "object", "created", "model", "choices"]
    assert list(last) == [*middle, "system_fingerprint"]


@kinds
def test_no_usage(client: Client, kind: str) -> None:
    for options in (None, {}, {"include_usage": False}, {"include_usage": None}, {"continuous_usage_stats": True}):
        assert not any("usage" in event for event in ask(client, kind, stream_options=options).events)


@kinds
def test_usage_once_at_the_end(client: Client, kind: str) -> None:
    *events, last = ask(client, kind, stream_options=USAGE, n=2, temperature=1).events
    assert not any("usage" in event or "system_fingerprint" in event for event in events)
    assert last["choices"] == []
    prompt = 8 if kind == "chat" else 2
    assert last["usage"] == {"prompt_tokens": prompt, "total_tokens": prompt + 4, "completion_tokens": 4}
    assert last["system_fingerprint"].startswith("vllm-0.32.0-")


@kinds
def test_usage_in_every_event(client: Client, kind: str) -> None:
    events = ask(client, kind, stream_options=EVERY).events
    prompt = 8 if kind == "chat" else 2
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == ([0, 1, 2, 2] if kind == "chat" else [1, 2, 2])
    for event, count in zip(events, counts, strict=True):
        assert event["usage"]["prompt_tokens"] == prompt
        assert event["usage"]["total_tokens"] == prompt + count


@kinds
def test_forced_usage(kind: str) -> None:
    client = Client(settings=ApiConfig(enable_force_include_usage=True))
    assert all("usage" in event for event in ask(client, kind).events)


@kinds
def test_cached_tokens_by_setting(client: Client, kind: str) -> None:
    client.pipeline.script = Script(cached_tokens=3)
    assert "prompt_tokens_details" not in ask(client, kind, stream_options=USAGE).events[-1]["usage"]
    client.state.settings = ApiConfig(enable_prompt_tokens_details=True)
    usage = ask(client, kind, stream_options=USAGE).events[-1]["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3}
    client.pipeline.script = Script(cached_tokens=3, created_cache_tokens=2)
    usage = ask(client, kind, stream_options=USAGE).events[-1]["usage"]
    created = {"created_cache_tokens": 2} if kind == "chat" else {}  # as vLLM's two endpoints
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3, **created}


@kinds
def test_choices(client: Client, kind: str) -> None:
    events = ask(client, kind, n=3, temperature=1).events
    assert texts(events) == {0: "Hello world", 1: "Hello world", 2: "Hello world"}
    finished = [c["index"] for event in events for c in event["choices"] if c["finish_reason"]]
    assert sorted(finished) == [0, 1, 2]
    if kind == "chat":
        roles = [c["index"] for event in events for c in event["choices"] if "role" in c["delta"]]
        assert roles == [0, 1, 2]


def test_several_prompts(client: Client) -> None:
    events = client.complete(stream=True, prompt=["ab", "c"], echo=True, stream_options=USAGE).events
    assert texts(events) == {0: "abHello world", 1: "cHello world"}
    assert events[-1]["usage"] == {"prompt_tokens": 3, "total_tokens": 7, "completion_tokens": 4}


def test_echo_alone(client: Client) -> None:
    client.pipeline.script = Script(("x",), "length")
    events = client.complete(stream=True, prompt="ab", echo=True, max_tokens=0, stream_options=USAGE).events
    assert texts(events) == {0: "ab"}
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1]["usage"]["completion_tokens"] == 1


@kinds
def test_returned_ids(client: Client, kind: str) -> None:
    events = ask(client, kind, return_token_ids=True, prompt="ab" if kind != "chat" else None).events
    if kind == "chat":
        assert events[0]["prompt_token_ids"] == [ord(character) for character in "<user>Hi"]
    else:
        assert events[0]["choices"][0]["prompt_token_ids"] == [97, 98]
    ids = [token for event in events for c in event["choices"] for token in c.get("token_ids") or []]
    assert ids == [0, 1]


def test_prompt_text(client: Client) -> None:
    assert client.chat(stream=True, return_prompt_text=True).events[0]["prompt_text"] == "<user>Hi"


@kinds
@pytest.mark.parametrize("error", [EngineRequestError("x"), EngineDeadError("gone"), KeyError("bug")])
def test_failure_in_the_middle(client: Client, kind: str, error: Exception) -> None:
    client.pipeline.script = Script(error=error)
    answer = ask(client, kind, stream_options=USAGE)
    assert answer.status == 200
    *events, last = answer.events
    assert texts(events) == {0: "Hello"}
    assert last["error"]["type"] == "server_error"
    assert error_event(error) in answer.body
    assert client.state.in_flight == 0


@kinds
def test_failure_before_the_answer(client: Client, kind: str) -> None:
    client.pipeline.script = Script(error=RequestError("rank 7 is out of range"), error_after=-1)
    answer = ask(client, kind)
    assert (answer.status, answer.content_type) == (400, "application/json")


@kinds
def test_interval(client: Client, kind: str) -> None:
    ask(client, kind)
    assert client.generation.stream_interval == 1
    client.state.settings = ApiConfig(stream_interval=4)
    ask(client, kind, stream_interval=2)
    assert client.generation.stream_interval == 4
    ask(client, kind, stream_interval=9)
    assert client.generation.stream_interval == 9
    assert client.generation.sampling.stream_interval == 9
