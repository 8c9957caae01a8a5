"""What must never reach an engine."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from fastfront.engine.guard import Limits, check
from fastfront.errors import RequestError
from fastfront.flow import EngineRequest, SamplingParams

LIMITS = Limits(max_model_len=100, vocab_size=50)
NAN, INF = math.nan, math.inf


def request(**changes: Any) -> EngineRequest:
    names = {field.name for field in msgspec.structs.fields(EngineRequest)}
    fields = {name: changes.pop(name) for name in list(changes) if name in names}
    base: dict[str, Any] = {"request_id": "id", "prompt_token_ids": [1, 2], "arrival_time": 1.0}
    return EngineRequest(sampling=SamplingParams(**changes), **{**base, **fields})


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
    check(request(**changes), LIMITS)


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
    ("reasoning_parser_kwargs", {"reasoning_parser_kwargs": {"a": 1 << 64}}),
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
    ("watermarking", {"watermarking": "yes"}),
    ("skip_clone", {"skip_clone": None}),
    *[("structured_outputs", {"structured_outputs": value}) for value in BAD_STRUCTURED],
    *[("repetition_detection", {"repetition_detection": value}) for value in BAD_REPETITION],
    *[("extra_args", {"extra_args": value}) for value in BAD_EXTRA],
]


@pytest.mark.parametrize(("param", "changes"), BAD, ids=lambda value: repr(value)[:60])
def test_bad(param: str, changes: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        check(request(**changes), LIMITS)
    assert caught.value.param == param
    assert param in caught.value.message
