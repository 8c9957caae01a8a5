"""Bodies: what pydantic takes is taken, what it refuses is refused in its words."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

import pytest

from fastfront.api import coerce as coerce_module
from fastfront.api import unknown
from fastfront.api.body import BodyReader
from fastfront.api.openai.completions.request import CompletionRequest
from fastfront.errors import BodyError, RequestError
from fastfront.flow import HttpRequest
from tests.api.fakes import FakeReply

JSON = {"content-type": "application/json"}
reader = BodyReader(CompletionRequest)


def read(data: Any, headers: dict[str, str] = JSON) -> CompletionRequest:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return reader.read(HttpRequest("POST", "/", "", headers, raw, ""))


@pytest.mark.parametrize(
    "field, sent, taken",
    [
        ("max_tokens", "5", 5),
        ("max_tokens", " 5 ", 5),
        ("max_tokens", 5.0, 5),
        ("max_tokens", "5.0", 5),
        ("max_tokens", True, 1),
        ("max_tokens", None, None),
        ("temperature", "0.5", 0.5),
        ("temperature", 1, 1.0),
        ("temperature", True, 1.0),
        ("temperature", None, None),
        ("stream", "yes", True),
        ("stream", "OFF", False),
        ("stream", 1, True),
        ("stream", 0.0, False),
        ("stream", None, None),
        ("echo", "t", True),
        ("seed", "7", 7),
        ("stop", "x", "x"),
        ("stop", "5", "5"),
        ("stop", ["x"], ["x"]),
        ("stop", None, None),
        ("stop_token_ids", ["5"], [5]),
        ("stop_token_ids", None, None),
        ("logit_bias", {"5": "1.5"}, {"5": 1.5}),
        ("prompt", ["5", "6"], ["5", "6"]),
        ("prompt", [[1.0, 2]], [[1, 2]]),
        ("n", "2", 2),
        ("vllm_xargs", {"a": 1, "b": 2.5, "c": "x", "d": [1, "y"]}, {"a": 1, "b": 2.5, "c": "x", "d": [1, "y"]}),
    ],
)
def test_taken(field: str, sent: object, taken: object) -> None:
    got = getattr(read({field: sent}), field)
    assert got == taken
    assert type(got) is type(taken)


@pytest.mark.parametrize(
    "field, sent, kind, param",
    [
        ("max_tokens", "five", "int_parsing", "body.max_tokens"),
        ("max_tokens", 5.5, "int_from_float", "body.max_tokens"),
        ("max_tokens", [], "int_type", "body.max_tokens"),
        ("temperature", "hot", "float_parsing", "body.temperature"),
        ("temperature", {}, "float_type", "body.temperature"),
        ("stream", "maybe", "bool_parsing", "body.stream"),
        ("stream", [], "bool_type", "body.stream"),
        ("ignore_eos", None, "bool_type", "body.ignore_eos"),
        ("min_tokens", None, "int_type", "body.min_tokens"),
        ("n", None, "int_type", "body.n"),
        ("priority", None, "int_type", "body.priority"),
        ("request_id", None, "string_type", "body.request_id"),
        ("bad_words", None, "list_type", "body.bad_words"),
        ("bad_words", "AI", "list_type", "body.bad_words"),
        ("length_penalty", None, "float_type", "body.length_penalty"),
        ("user", 5, "string_type", "body.user"),
        ("seed", 2**63, "less_than_equal", "body.seed"),
        ("truncate_prompt_tokens", -2, "greater_than_equal", "body.truncate_prompt_tokens"),
        ("truncation_side", "top", "literal_error", "body.truncation_side"),
        ("mm_payload", "zz", "literal_error", "body.mm_payload"),
        ("routed_experts_prompt_start", -1, "greater_than_equal", "body.routed_experts_prompt_start"),
        ("logit_bias", {"5": None}, "float_type", "body.logit_bias.5"),
        ("logit_bias", [], "dict_type", "body.logit_bias"),
        ("stop_token_ids", [1, "x"], "int_parsing", "body.stop_token_ids.1"),
        ("stream_options", 5, "model_attributes_type", "body.stream_options"),
        ("vllm_xargs", {"a": {"b": 1}}, "string_type", "body.vllm_xargs.a"),
        ("prompt", [-1], "greater_than_equal", "body.prompt.0"),
    ],
)
def test_refused(field: str, sent: object, kind: str, param: str) -> None:
    with pytest.raises(BodyError) as caught:
        read({field: sent})
    assert caught.value.param == param
    assert f"{{'type': '{kind}', 'loc': '{param}', 'msg': " in caught.value.message


@pytest.mark.parametrize("field", [b'"\xff": 1', b'"zz": "\xff"', b'"z": {"a": ["\xed\xa0\x80"]}', b'"prompt": "\xff"'])
def test_what_is_not_utf_8_is_refused(field: bytes) -> None:
    with pytest.raises(BodyError, match="error parsing the body"):
        read(b'{"max_tokens": 2, %b}' % field)


def test_every_fault_is_counted() -> None:
    with pytest.raises(BodyError, match=r"^2 validation errors:\n") as caught:
        read({"temperature": "hot", "top_p": "wide"})
    assert caught.value.message.count("\n") == 2


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """The calls of a name of the lax reading, as they come."""
    calls: list[Any] = []
    one = getattr(coerce_module, name)

    def call(*values: Any) -> Any:
        calls.append(values)
        return one(*values)

    monkeypatch.setattr(coerce_module, name, call)
    return calls


@pytest.mark.parametrize("body", [{"stop_token_ids": ["x"] * 10_000}, {"prompt": [{}] * 10_000}])
def test_many_faults_make_a_short_answer(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch, "Problem")
    with pytest.raises(BodyError) as caught:
        read(body)
    assert caught.value.message.startswith("More than 10 validation errors:")
    assert caught.value.message.endswith("...and more")
    assert caught.value.message.count("{'type'") == 10
    assert len(caught.value.message) < 3000
    assert len(made) < 40


def test_a_place_with_a_long_name_is_told_shortly() -> None:
    with pytest.raises(BodyError) as caught:
        read({"logit_bias": {"x" * 100_000: None}})
    assert caught.value.param == "body.logit_bias." + "x" * 200
    assert len(caught.value.message) < 2000


@pytest.mark.parametrize(
    ("more", "field", "taken"),
    [
        ({"prompt": [1] * 100_000}, "prompt", [1] * 100_000),
        ({"prompt": ["1"] * 100_000}, "prompt", ["1"] * 100_000),
        ({"stop_token_ids": [1] * 100_000 + ["7"]}, "stop_token_ids", [1] * 100_000 + [7]),
        ({"logit_bias": {str(n): n for n in range(50_000)}}, "logit_bias", {str(n): n for n in range(50_000)}),
        ({"messages": [{}] * 50_000}, "max_tokens", 5),
    ],
)
def test_what_is_right_is_not_read_item_by_item(
    more: Any, field: str, taken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a field that must be coerced, and around an item that must be."""
    calls = counted(monkeypatch, "coerce")
    assert getattr(read({"max_tokens": "5", **more}), field) == taken
    assert len(calls) < 300


@pytest.mark.parametrize(
    ("body", "aside"),
    [
        ({"prompt": "x" * 70_000}, False),
        ({"prompt": "x", "max_tokens": "5"}, False),
        ({"prompt": "x" * 70_000, "max_tokens": "5"}, True),
        ({"prompt": "x" * 70_000, "best_of": 1}, True),
        ({"prompt": "x" * 70_000, "max_tokens": "five"}, True),
    ],
)
def test_a_big_body_that_is_not_right_is_read_in_a_thread(
    body: Any, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    got: list[Any] = []
    again = BodyReader._again

    def spied(self: BodyReader[CompletionRequest], data: bytes) -> CompletionRequest:
        threads.append(threading.current_thread().name)
        return again(self, data)

    monkeypatch.setattr(BodyReader, "_again", spied)
    handler = reader.serve(lambda request, reply, body: got.append(body))

    async def serve() -> None:
        reply = FakeReply()
        work = handler(HttpRequest("POST", "/", "", JSON, json.dumps(body).encode(), ""), reply)
        assert (work is not None) == aside
        await reply.served(work)

    if body.get("max_tokens") == "five":
        with pytest.raises(BodyError):
            asyncio.run(serve())
    else:
        asyncio.run(serve())
        assert got[0].prompt == body["prompt"]
    assert all(name.startswith("body") == aside for name in threads)
    assert bool(threads) == (len(body) > 1)


@pytest.mark.parametrize("value, text", [("NaN", "nan"), ("Infinity", "inf"), ("1e999", "inf")])
def test_numbers_that_are_none(value: str, text: str) -> None:
    assert str(read(b'{"temperature": %b}' % value.encode()).temperature) == text


@pytest.mark.parametrize(
    "data, param",
    [
        (b"", "body"),
        (b"[1,2]", "body"),
        (b'{"model": "m", "prompt": "x"', "body.28"),
        (b'{"prompt": "\\ud800"}', "body"),
        (b'{"prompt": "\xff"}', None),
        (b'{"kv_transfer_params": ' + b"[" * 100_000, None),
    ],
)
def test_no_json(data: bytes, param: str | None) -> None:
    with pytest.raises(BodyError) as caught:
        read(data)
    assert caught.value.param == param


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_content_type(kind: str) -> None:
    assert read({}, {"content-type": kind}).prompt is None


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}])
def test_other_content_type(headers: dict[str, str]) -> None:
    with pytest.raises(BodyError, match="Only 'application/json' is allowed"):
        read({}, headers)


def test_unknown_fields_are_told_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "_warned", set())
    with caplog.at_level(logging.WARNING):
        assert read({"prompt": "x", "best_of": 1, "max_tokens": 3}).max_tokens == 3
        assert read({"prompt": "x", "best_of": 1, "max_tokens": "3"}).max_tokens == 3
        options = read({"stream_options": {"include_usage": True, "more": 1}}).stream_options
        assert options is not None
        assert options.include_usage is True
    assert [record.args for record in caplog.records] == [("best_of",), ("stream_options.more",)]


@pytest.mark.parametrize("more", [{}, {"max_tokens": "5"}])
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"best_of": 1, "suffixx": None}, ["best_of", "suffixx"]),
        ({"stream_options": {"more": 1}}, ["stream_options.more"]),
        ({"structured_outputs": {"regex": "a", "x": 1}, "y": 2}, ["structured_outputs.x", "y"]),
        ({"vllm_xargs": {"free": 1}, "logit_bias": {"1": 2}, "kv_transfer_params": {"a": {"b": 1}}}, []),
    ],
)
def test_unknown_fields_may_be_refused(fields: dict[str, Any], told: list[str], more: dict[str, Any]) -> None:
    request = HttpRequest("POST", "/", "", JSON, json.dumps({"prompt": "x", **fields, **more}).encode(), "")
    strict = BodyReader(CompletionRequest, strict=True)
    if not told:
        assert strict.read(request).prompt == "x"
        return
    with pytest.raises(RequestError) as caught:
        strict.read(request)
    assert caught.value.param == told[0]
    assert all(f"`{name}`" in caught.value.message for name in told)
