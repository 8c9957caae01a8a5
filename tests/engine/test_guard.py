"""What must never reach an engine."""

from __future__ import annotations

import gc
import json
import math
from typing import Any

import msgspec
import pytest

from fastfront.engine import wire
from fastfront.engine.guard import Checked, Guard
from fastfront.errors import RequestError
from fastfront.flow import EngineRequest, SamplingParams

NAN, INF = math.nan, math.inf


def request(**changes: Any) -> EngineRequest:
    names = {field.name for field in msgspec.structs.fields(EngineRequest)}
    fields = {name: changes.pop(name) for name in list(changes) if name in names}
    base: dict[str, Any] = {"request_id": "id", "prompt_token_ids": [1, 2], "arrival_time": 1.0, "max_tokens": 16}
    return EngineRequest(**{"sampling": SamplingParams(**changes), **base, **fields})


def check(asked: EngineRequest) -> Checked:
    """As a link of an engine with 100 places and 50 tokens does."""
    return Guard(vocab_size=50).check(asked, max_model_len=100)


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


STRUCTURED = {"_backend": "xgrammar"}
GOOD: list[dict[str, Any]] = [
    {},
    {"prompt_token_ids": [0] * 99},
    {"temperature": 2, "top_p": 1, "min_p": 1.0, "presence_penalty": -2.0, "frequency_penalty": 2.0, "top_k": -1},
    {"repetition_penalty": 1e9, "top_k": 1 << 20, "max_tokens": 5, "min_tokens": 5, "seed": -(1 << 63), "logprobs": -1},
    {"logit_bias": {0: -100.0, 49: 5}, "allowed_token_ids": [3], "bad_words_token_ids": [[1], [2, 3]], "logprobs": 50},
    {"all_stop_token_ids": [60], "eos_token_id": 60},
    {"extra_args": {"a": [1, None, True, {"b": (1 << 64) - 1, "c": -(1 << 63), "d": 0.5}]}},
    {"structured_outputs": {**STRUCTURED, "json": nested(64)}},
    {"structured_outputs": {**STRUCTURED, "json": json.dumps(nested(64))}},
    {"structured_outputs": {**STRUCTURED, "structural_tag": json.dumps(nested(80))}},
    {"structured_outputs": {**STRUCTURED, "json": "not JSON: the engine answers that"}},
    {"structured_outputs": {**STRUCTURED, "choice": ["a"], "whitespace_pattern": None, "_backend_was_auto": True}},
    {"repetition_detection": {"max_pattern_size": 5, "min_count": 3}},
    {"logprob_token_ids": [1, 2], "logprobs": 2},
    {"trace_headers": {"traceparent": "x"}, "session_id": "s", "data_parallel_rank": 3, "priority": -5},
    {"thinking_token_budget": -1, "stream_interval": 1},
]


@pytest.mark.parametrize("changes", GOOD, ids=repr)
def test_good(changes: dict[str, Any]) -> None:
    check(request(**changes))


BAD_STRUCTURED: list[dict[str, Any]] = [
    STRUCTURED,
    {"json": "{}"},
    {**STRUCTURED, "json": "{}", "regex": "a"},
    {**STRUCTURED, "regex": 5},
    {**STRUCTURED, "choice": "a"},
    {**STRUCTURED, "regex": "a", "unknown": 1},
    {**STRUCTURED, "json": nested(65)},
    {**STRUCTURED, "json": json.dumps(nested(65))},
    {**STRUCTURED, "json": "[" * 100_000},
    {**STRUCTURED, "structural_tag": json.dumps(nested(81))},
    {**STRUCTURED, "json": {"const": 1 << 64}},
]
BAD_REPETITION: list[dict[str, Any]] = [
    {"max_pattern_size": 5},
    {"max_pattern_size": -1},
    {"min_pattern_size": 2, "max_pattern_size": 1, "min_count": 2},
    {"max_pattern_size": "5"},
    {"size": 1},
]
BAD_BIAS: list[dict[Any, float]] = [{50: 1.0}, {1: NAN}, {1: INF}, {"1": 1.0}]
BAD_EXTRA: list[Any] = [
    {"a": 1 << 64},
    {"a": [{"b": -(1 << 63) - 1}]},
    {"a": NAN},
    {1: "a"},
    {"a": object()},
    {"a": b"x"},
    nested(300),
]
BAD: list[tuple[str, dict[str, Any]]] = [
    ("prompt", {"prompt_token_ids": []}),
    ("prompt", {"prompt_token_ids": [0] * 100}),
    ("prompt", {"prompt_token_ids": [1, 50]}),
    ("prompt", {"prompt_token_ids": [-1, 3]}),
    ("prompt", {"prompt_token_ids": [1, 2.0]}),
    ("prompt", {"prompt_token_ids": [1, True]}),
    ("prompt", {"prompt_token_ids": [1, None]}),
    ("request_id", {"request_id": ""}),
    ("arrival_time", {"arrival_time": NAN}),
    ("priority", {"priority": 1 << 63}),
    ("priority", {"priority": 1.0}),
    ("data_parallel_rank", {"data_parallel_rank": -1}),
    ("cache_salt", {"cache_salt": 5}),
    ("trace_headers", {"trace_headers": {"a": 1}}),
    *[
        ("reasoning_parser_kwargs", {"reasoning_parser_kwargs": value})
        for value in (
            b'{"a":%d}' % (1 << 64),
            b"{",
            b"[]",
            b'{"a":"\xff"}',
            b'{"a":' * 300 + b"1" + b"}" * 300,
            "{}x",
            5,
        )
    ],
    ("n", {"n": 2}),
    ("n", {"n": True}),
    *[(name, {name: value}) for name in ("presence_penalty", "frequency_penalty") for value in (-2.1, 2.1, NAN, None)],
    *[("repetition_penalty", {"repetition_penalty": value}) for value in (0.0, -1.0, INF, NAN)],
    *[("temperature", {"temperature": value}) for value in (-0.1, 2.1, NAN, INF, "1", True)],
    *[("top_p", {"top_p": value}) for value in (0.0, 1.1, NAN)],
    *[("min_p", {"min_p": value}) for value in (-0.1, 1.1, NAN)],
    *[("top_k", {"top_k": value}) for value in (-2, 1.5, 1 << 40)],
    *[("max_tokens", {"max_tokens": value}) for value in (0, -1, None, 1.0, 1 << 40)],
    *[("min_tokens", {"min_tokens": value}) for value in (-1, 17, None)],
    *[("seed", {"seed": value}) for value in (1 << 63, -(1 << 63) - 1, 0.5)],
    *[(name, {name: value}) for name in ("logprobs", "prompt_logprobs") for value in (-2, 51, True)],
    *[("stop_token_ids", {"stop_token_ids": value}) for value in ([50], [-1], ["a"])],
    ("stop_token_ids", {"all_stop_token_ids": [60], "min_tokens": 1}),
    ("eos_token_id", {"eos_token_id": -1}),
    *[("allowed_token_ids", {"allowed_token_ids": value}) for value in (list[int](), [50])],
    *[("logit_bias", {"logit_bias": value}) for value in BAD_BIAS],
    *[("bad_words", {"bad_words_token_ids": value}) for value in ([list[int]()], [[1], [50]])],
    *[("logprob_token_ids", {"logprob_token_ids": value}) for value in ([50], [1] * 129)],
    ("logprobs", {"logprob_token_ids": [1], "logprobs": 2}),
    ("stream_interval", {"stream_interval": 0}),
    ("thinking_token_budget", {"thinking_token_budget": -2}),
    ("output_kind", {"output_kind": 3}),
    ("routed_experts_prompt_start", {"routed_experts_prompt_start": 3}),
    *[("watermarking", {"watermarking": value}) for value in ("yes", 1)],
    *[("skip_clone", {"skip_clone": value}) for value in (None, 0)],
    ("skip_reading_prefix_cache", {"skip_reading_prefix_cache": 1}),
    ("reasoning_ended", {"reasoning_ended": 0}),
    *[(name, {name: b"x"}) for name in ("request_id", "session_id", "external_req_id")],
    *[("structured_outputs", {"structured_outputs": value}) for value in BAD_STRUCTURED],
    *[("repetition_detection", {"repetition_detection": value}) for value in BAD_REPETITION],
    *[("extra_args", {"extra_args": value}) for value in BAD_EXTRA],
]


@pytest.mark.parametrize(("param", "changes"), BAD, ids=lambda value: repr(value)[:60])
def test_bad(param: str, changes: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        check(request(**changes))
    assert caught.value.param == param
    assert param in caught.value.message


def sampling_map(checked: Checked) -> dict[str, Any]:
    """The sampling parameters as an engine reads them."""
    read: dict[str, Any] = msgspec.msgpack.decode(checked.sampling)
    return read


@pytest.mark.parametrize("count", [0, 1, 12, 13, 14, 15, 16])
@pytest.mark.parametrize("seed", [None, 0, -(1 << 63), (1 << 63) - 1])
def test_what_a_request_has_of_its_own_joins_what_it_shares(count: int, seed: int | None) -> None:
    """The map's head depends on how many there are."""
    every = {
        "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.5, "temperature": 0.5, "top_p": 0.5,
        "top_k": 5, "min_p": 0.5, "min_tokens": 3, "logprobs": 2, "prompt_logprobs": 1, "output_kind": 1,
        "stream_interval": 2, "skip_clone": True, "watermarking": False, "allowed_token_ids": [1],
        "stop_token_ids": [2],
    }  # fmt: skip
    shared = dict(list(every.items())[:count])
    for max_tokens in (3, 16, 128, (1 << 31) - 1):
        got = sampling_map(check(request(**shared, max_tokens=max_tokens, seed=seed)))
        own = {"max_tokens": max_tokens} if seed is None else {"max_tokens": max_tokens, "seed": seed}
        assert got == shared | own


def test_shared_parameters_do_not_let_a_request_by() -> None:
    """They are checked once; what depends on the request is checked each time."""
    guard, sampling = Guard(vocab_size=50), SamplingParams(min_tokens=4, routed_experts_prompt_start=2)
    good: dict[str, Any] = {"sampling": sampling, "max_tokens": 4, "seed": 1}
    bad: list[tuple[str, dict[str, Any]]] = [
        ("min_tokens", {"max_tokens": 3}),
        ("max_tokens", {"max_tokens": True}),
        ("max_tokens", {"max_tokens": 1 << 31}),
        ("seed", {"seed": 1 << 63}),
        ("seed", {"seed": True}),
        ("prompt", {"prompt_token_ids": [1, 50]}),
        ("routed_experts_prompt_start", {"prompt_token_ids": [1]}),
        ("priority", {"priority": 1 << 63}),
    ]
    for param, changes in bad:
        guard.check(request(**good), 100)
        with pytest.raises(RequestError) as caught:
            guard.check(request(**{**good, **changes}), 100)
        assert caught.value.param == param


def test_bad_parameters_are_refused_each_time() -> None:
    guard, sampling = Guard(vocab_size=50), SamplingParams(temperature=NAN)
    for _ in range(2):
        with pytest.raises(RequestError, match="temperature"):
            guard.check(request(sampling=sampling), 100)


def test_what_was_checked_is_what_is_sent() -> None:
    """Parameters cannot change, and a list in them that did would not get out."""
    guard, stop = Guard(vocab_size=50), [1]
    sampling = SamplingParams(stop_token_ids=stop)
    with pytest.raises(AttributeError):
        sampling.temperature = NAN  # type: ignore[misc]
    guard.check(request(sampling=sampling), 100)
    stop.append(50)
    assert sampling_map(guard.check(request(sampling=sampling), 100)) == {"stop_token_ids": [1], "max_tokens": 16}


def test_what_is_known_of_parameters_goes_with_them() -> None:
    guard = Guard(vocab_size=50)
    for _ in range(3):
        guard.check(request(), 100)
    gc.collect()
    assert not guard._known


def test_variables_of_the_reasoning_parser_are_packed_once() -> None:
    guard = Guard(vocab_size=50)
    for _ in range(2):
        asked = request(reasoning_parser_kwargs=b'{"chat_template_kwargs": {"a": [1, null]}}')
        _, payload = wire.add_frames(asked, *guard.check(asked, 100), 0, 0)
        assert msgspec.msgpack.decode(payload)[18] == {"chat_template_kwargs": {"a": [1, None]}}
    assert len(guard._known_kwargs) == 2
    for at in range(100):
        guard.check(request(reasoning_parser_kwargs=b'{"a": %d}' % at), 100)
    guard.check(request(reasoning_parser_kwargs=b'{"a": "%b"}' % (b"x" * 5000)), 100)
    assert 2 < len(guard._known_kwargs) <= 64 and max(map(len, filter(None, guard._known_kwargs))) < 4096
    again = request(reasoning_parser_kwargs=b'{"a": 99}')
    assert guard.check(again, 100).reasoning_parser_kwargs is guard.check(again, 100).reasoning_parser_kwargs


def test_an_add_is_an_array_of_22() -> None:
    asked = request(prompt_token_ids=[1, 49], cache_salt="s", priority=-3, external_req_id="cmpl-1", seed=7)
    kind, payload = wire.add_frames(asked, *check(asked), 2, 9)
    want: list[Any] = [None] * 22
    want[0], want[1], want[3], want[5], want[7] = "id", [1, 49], {"max_tokens": 16, "seed": 7}, 1.0, "s"
    want[11], want[12], want[13], want[15], want[16], want[19] = 2, 9, -3, False, "cmpl-1", False
    assert (kind, msgspec.msgpack.decode(payload)) == (wire.ADD, want)
