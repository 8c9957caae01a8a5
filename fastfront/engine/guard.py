"""The last check before the wire. The engine trusts its frontend: each thing refused here stops or kills one (wire f).

The API refuses the same earlier and says it better; what comes by here in spite of that is a fault of ours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from fastfront.errors import RequestError
from fastfront.fast import first_wrong_id
from fastfront.flow import EngineRequest, SamplingParams

INT64 = range(-(1 << 63), 1 << 63)
WIRE_INT = range(-(1 << 63), 1 << 64)
MAX_LOGPROB_TOKEN_IDS = 128
MAX_SCHEMA_DEPTH = 64
MAX_TAG_DEPTH = MAX_SCHEMA_DEPTH + 16
MAX_DEPTH = 256  # of free-form values: the engine's decoder recurses


class Limits(NamedTuple):
    """What the engine can take: `max_model_len` in tokens, `vocab_size` the width of its logits."""

    max_model_len: int
    vocab_size: int


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """vLLM's StructuredOutputsParams (wire d.3)."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    backend: str | None = msgspec.field(default=None, name="_backend")
    backend_was_auto: bool = msgspec.field(default=False, name="_backend_was_auto")


class RepetitionDetection(msgspec.Struct, forbid_unknown_fields=True):
    """vLLM's RepetitionDetectionParams."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


def check(request: EngineRequest, limits: Limits) -> None:
    """RequestError for a request that the engine must not see."""
    _require(bool(request.request_id) and isinstance(request.request_id, str), "request_id", request.request_id)
    _check_prompt(request.prompt_token_ids, limits)
    _number("arrival_time", request.arrival_time, 0.0, math.inf)
    _integer("priority", request.priority, INT64)
    if request.data_parallel_rank is not None:
        _integer("data_parallel_rank", request.data_parallel_rank, range(1 << 16))
    for name in ("cache_salt", "session_id", "external_req_id"):
        value = getattr(request, name)
        _require(value is None or isinstance(value, str), name, value)
    for key, value in (request.trace_headers or {}).items():
        _require(isinstance(key, str) and isinstance(value, str), "trace_headers", value)
    _require(request.reasoning_ended in (None, True, False), "reasoning_ended", request.reasoning_ended)
    if request.reasoning_parser_kwargs is not None:
        _free_form("reasoning_parser_kwargs", request.reasoning_parser_kwargs, MAX_DEPTH)
    _check_sampling(request.sampling, limits, len(request.prompt_token_ids))


def _check_prompt(ids: list[int], limits: Limits) -> None:
    if not 1 <= len(ids) < limits.max_model_len:
        raise RequestError(
            f"a prompt must have 1 to {limits.max_model_len - 1} tokens, this one has {len(ids)}",
            param="prompt", value=len(ids), limit=limits.max_model_len - 1,
        )  # fmt: skip
    _token_ids("prompt", ids, limits)


def _check_sampling(params: SamplingParams, limits: Limits, prompt_len: int) -> None:
    _require(type(params.n) is int and params.n == 1, "n", params.n, 1)
    _number("presence_penalty", params.presence_penalty, -2.0, 2.0)
    _number("frequency_penalty", params.frequency_penalty, -2.0, 2.0)
    _number("repetition_penalty", params.repetition_penalty, 0.0, math.inf, above=True)
    _number("temperature", params.temperature, 0.0, 2.0)
    _number("top_p", params.top_p, 0.0, 1.0, above=True)
    _number("min_p", params.min_p, 0.0, 1.0)
    _integer("top_k", params.top_k, range(-1, 1 << 31))
    # The engine calls for a number of tokens; None is an assertion there.
    _integer("max_tokens", params.max_tokens, range(1, 1 << 31))
    _integer("min_tokens", params.min_tokens, range((params.max_tokens or 0) + 1))
    if params.seed is not None:
        _integer("seed", params.seed, INT64)
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        if value is not None:
            _integer(name, value, range(-1, limits.vocab_size + 1))
    if params.stream_interval is not None:
        _integer("stream_interval", params.stream_interval, range(1, 1 << 63))
    if params.thinking_token_budget is not None:
        _integer("thinking_token_budget", params.thinking_token_budget, range(-1, 1 << 31))
    _integer("output_kind", params.output_kind, range(3))
    _integer("routed_experts_prompt_start", params.routed_experts_prompt_start, range(prompt_len + 1))
    for name in ("watermarking", "skip_reading_prefix_cache", "skip_clone"):
        flag = getattr(params, name)
        _require(flag in (None, True, False) and (flag is not None or name != "skip_clone"), name, flag)
    _check_ids(params, limits)
    _check_constraints(params)


def _check_ids(params: SamplingParams, limits: Limits) -> None:
    """All ids of the parameters index the logits."""
    _token_ids("stop_token_ids", params.stop_token_ids or (), limits)
    if params.eos_token_id is not None:
        _integer("eos_token_id", params.eos_token_id, range(1 << 31))
    # A tokenizer may know an end token that the model's logits lack; they are only indexed to hold it back.
    wide = limits if params.min_tokens else limits._replace(vocab_size=1 << 31)
    _token_ids("stop_token_ids", params.all_stop_token_ids, wide)
    if params.allowed_token_ids is not None:
        _require(bool(params.allowed_token_ids), "allowed_token_ids", params.allowed_token_ids)
        _token_ids("allowed_token_ids", params.allowed_token_ids, limits)
    if params.logit_bias is not None:
        _token_ids("logit_bias", params.logit_bias, limits)
        for bias in params.logit_bias.values():
            _number("logit_bias", bias, -math.inf, math.inf)
    for word in params.bad_words_token_ids or ():
        _require(bool(word), "bad_words", word)
        _token_ids("bad_words", word, limits)
    if params.logprob_token_ids is not None:
        count = len(params.logprob_token_ids)
        _require(count <= MAX_LOGPROB_TOKEN_IDS, "logprob_token_ids", count, MAX_LOGPROB_TOKEN_IDS)
        _require(params.logprobs in (None, count), "logprobs", params.logprobs, count)
        _token_ids("logprob_token_ids", params.logprob_token_ids, limits)


def _check_constraints(params: SamplingParams) -> None:
    if params.structured_outputs is not None:
        spec = _convert("structured_outputs", params.structured_outputs, StructuredOutputs)
        kinds = (spec.json, spec.regex, spec.choice, spec.grammar, spec.json_object, spec.structural_tag)
        given = sum(kind is not None for kind in kinds)
        _require(given == 1, "structured_outputs", f"{given} constraints", 1)
        _require(bool(spec.backend), "structured_outputs", "no _backend")
        _free_form("structured_outputs", params.structured_outputs, MAX_SCHEMA_DEPTH + 1)
        _json_depth("structured_outputs", spec.json if isinstance(spec.json, str) else None, MAX_SCHEMA_DEPTH)
        _json_depth("structured_outputs", spec.structural_tag, MAX_TAG_DEPTH)
    if params.repetition_detection is not None:
        pattern = _convert("repetition_detection", params.repetition_detection, RepetitionDetection)
        fits = 0 <= pattern.min_pattern_size <= pattern.max_pattern_size < 1 << 31
        enough = pattern.max_pattern_size == 0 or 2 <= pattern.min_count < 1 << 31
        _require(fits and enough, "repetition_detection", params.repetition_detection)
    if params.extra_args is not None:
        _free_form("extra_args", params.extra_args, MAX_DEPTH)


def _require(good: bool, name: str, value: object, limit: object = None) -> None:
    if not good:
        allowed = "" if limit is None else f" (allowed: {limit})"
        raise RequestError(f"{name} cannot be {value!r}{allowed}", param=name, value=value, limit=limit)


def _integer(name: str, value: object, allowed: range) -> None:
    if type(value) is not int or value not in allowed:
        limit = f"an integer from {allowed.start} to {allowed.stop - 1}"
        raise RequestError(f"{name} must be {limit}, not {value!r}", param=name, value=value, limit=limit)


def _number(name: str, value: object, low: float, high: float, above: bool = False) -> None:
    good = type(value) in (int, float) and math.isfinite(value) and low <= value <= high  # type: ignore[arg-type,operator]
    if not good or (above and value == low):
        limit = f"a finite number {'above' if above else 'from'} {low:g} to {high:g}"
        raise RequestError(f"{name} must be {limit}, not {value!r}", param=name, value=value, limit=limit)


def _token_ids(name: str, ids: Collection[int], limits: Limits) -> None:
    ids = ids if isinstance(ids, (list, tuple)) else list(ids)
    wrong = first_wrong_id(ids, limits.vocab_size)
    if wrong >= 0:
        value = ids[wrong]
        if type(value) is not int:
            raise RequestError(f"{name} holds something other than token ids", param=name)
        raise RequestError(
            f"{name} holds the token id {value}; the model has ids from 0 to {limits.vocab_size - 1}",
            param=name, value=value, limit=limits.vocab_size - 1,
        )  # fmt: skip


def _free_form(name: str, value: object, max_depth: int) -> None:
    """Any JSON-like value: integers in 64 bits, finite floats, string keys, objects and arrays `max_depth` deep."""
    for level in _levels(name, value, max_depth):
        for node in level:
            if isinstance(node, dict):
                _require(all(isinstance(key, str) for key in node), name, "a key that is not a string")
            for child in _children(node):
                if not isinstance(child, (dict, list, tuple)):
                    _leaf(name, child)


def _levels(name: str, value: object, max_depth: int) -> Iterator[list[object]]:
    """The objects and arrays in `value`, level by level (so that no depth overflows the stack here)."""
    level: list[object] = [value]
    for _ in range(max_depth):
        yield level
        level = [child for node in level for child in _children(node) if isinstance(child, (dict, list, tuple))]
        if not level:
            return
    _require(False, name, "a value nested too deeply", f"{max_depth} levels")


def _children(node: object) -> Iterable[object]:
    return node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else (node,)


def _json_depth(name: str, text: str | None, max_depth: int) -> None:
    """A deep schema overflows the stack of the engine's grammar compiler; text that is not JSON it answers itself."""
    try:
        value = json.loads(text) if text is not None else None
    except RecursionError:
        _require(False, name, "a value nested too deeply", f"{max_depth} levels")
    except ValueError:
        return
    if isinstance(value, (dict, list)):
        for _ in _levels(name, value, max_depth):
            pass


def _leaf(name: str, value: object) -> None:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if type(value) is int:
        _integer(name, value, WIRE_INT)
    else:
        _number(name, value, -math.inf, math.inf)


def _convert(name: str, value: object, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RequestError(f"{name}: {error}", param=name) from error
