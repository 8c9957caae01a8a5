"""Sampling parameters for the wire: checked and packed in one go, so that what an engine gets is what was checked."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from fastfront.engine import wire
from fastfront.engine.checks import (
    INT64,
    convert,
    flag,
    free_form,
    integer,
    json_depth,
    number,
    require,
    token_ids,
    written,
)
from fastfront.flow import SamplingParams

MAX_LOGPROB_TOKEN_IDS = 128
MAX_SCHEMA_DEPTH = 64
MAX_TAG_DEPTH = MAX_SCHEMA_DEPTH + 16
MAX_DEPTH = 256  # of free-form values: the engine's decoder recurses
_COUNT, _POSITIVE = range(1 << 31), range(1, 1 << 31)
_MAX_TOKENS, _SEED = wire.encode("max_tokens"), wire.encode("seed")


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


class PackedSampling:
    """Parameters that are good for any request, and what of them must fit the one that they go with."""

    def __init__(self, params: SamplingParams, vocab_size: int) -> None:
        """RequestError for parameters that no engine must see; `vocab_size` is the width of its logits."""
        _check(params, vocab_size)
        self._min_tokens = params.min_tokens
        self._routed_experts_prompt_start = params.routed_experts_prompt_start
        packed = written(params)
        self._plain = _with_room(packed, 1) + _MAX_TOKENS
        self._seeded = _with_room(packed, 2) + _MAX_TOKENS

    def of(self, max_tokens: int, seed: int | None, prompt_len: int) -> bytes:
        """One request's parameters; RequestError if they do not fit it."""
        # The engine calls for a number of tokens; None is an assertion there.
        integer("max_tokens", max_tokens, _POSITIVE)
        if self._min_tokens > max_tokens:
            integer("min_tokens", self._min_tokens, range(max_tokens + 1))
        if self._routed_experts_prompt_start > prompt_len:
            integer("routed_experts_prompt_start", self._routed_experts_prompt_start, range(prompt_len + 1))
        if seed is None:
            return self._plain + wire.encode(max_tokens)
        integer("seed", seed, INT64)
        return self._seeded + wire.encode(max_tokens) + _SEED + wire.encode(seed)


def _with_room(packed: bytes, more: int) -> bytes:
    """A map that `more` entries are appended to."""
    many = packed[0] == 0xDE
    size = more + (int.from_bytes(packed[1:3], "big") if many else packed[0] & 15)
    head = bytes((0x80 | size,)) if size < 16 else b"\xde" + size.to_bytes(2, "big")
    return head + packed[3 if many else 1 :]


def _check(params: SamplingParams, vocab_size: int) -> None:
    require(type(params.n) is int and params.n == 1, "n", params.n, 1)
    number("presence_penalty", params.presence_penalty, -2.0, 2.0)
    number("frequency_penalty", params.frequency_penalty, -2.0, 2.0)
    number("repetition_penalty", params.repetition_penalty, 0.0, math.inf, above=True)
    number("temperature", params.temperature, 0.0, 2.0)
    number("top_p", params.top_p, 0.0, 1.0, above=True)
    number("min_p", params.min_p, 0.0, 1.0)
    integer("top_k", params.top_k, range(-1, 1 << 31))
    integer("min_tokens", params.min_tokens, _COUNT)
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        if value is not None:
            integer(name, value, range(-1, vocab_size + 1))
    if params.stream_interval is not None:
        integer("stream_interval", params.stream_interval, range(1, 1 << 63))
    if params.thinking_token_budget is not None:
        integer("thinking_token_budget", params.thinking_token_budget, range(-1, 1 << 31))
    integer("output_kind", params.output_kind, range(3))
    integer("routed_experts_prompt_start", params.routed_experts_prompt_start, range(1 << 63))
    flag("skip_clone", params.skip_clone)
    for name in ("watermarking", "skip_reading_prefix_cache"):
        value = getattr(params, name)
        if value is not None:
            flag(name, value)
    _check_ids(params, vocab_size)
    _check_constraints(params)


def _check_ids(params: SamplingParams, vocab_size: int) -> None:
    """All ids of the parameters index the logits."""
    token_ids("stop_token_ids", params.stop_token_ids or (), vocab_size)
    if params.eos_token_id is not None:
        integer("eos_token_id", params.eos_token_id, _COUNT)
    # A tokenizer may know an end token that the model's logits lack; they are only indexed to hold it back.
    token_ids("stop_token_ids", params.all_stop_token_ids, vocab_size if params.min_tokens else 1 << 31)
    if params.allowed_token_ids is not None:
        require(bool(params.allowed_token_ids), "allowed_token_ids", params.allowed_token_ids)
        token_ids("allowed_token_ids", params.allowed_token_ids, vocab_size)
    if params.logit_bias is not None:
        token_ids("logit_bias", params.logit_bias, vocab_size)
        for bias in params.logit_bias.values():
            number("logit_bias", bias, -math.inf, math.inf)
    for word in params.bad_words_token_ids or ():
        require(bool(word), "bad_words", word)
        token_ids("bad_words", word, vocab_size)
    if params.logprob_token_ids is not None:
        count = len(params.logprob_token_ids)
        require(count <= MAX_LOGPROB_TOKEN_IDS, "logprob_token_ids", count, MAX_LOGPROB_TOKEN_IDS)
        require(params.logprobs in (None, count), "logprobs", params.logprobs, count)
        token_ids("logprob_token_ids", params.logprob_token_ids, vocab_size)


def _check_constraints(params: SamplingParams) -> None:
    if params.structured_outputs is not None:
        spec = convert("structured_outputs", params.structured_outputs, StructuredOutputs)
        kinds = (spec.json, spec.regex, spec.choice, spec.grammar, spec.json_object, spec.structural_tag)
        given = sum(kind is not None for kind in kinds)
        require(given == 1, "structured_outputs", f"{given} constraints", 1)
        require(bool(spec.backend), "structured_outputs", "no _backend")
        free_form("structured_outputs", params.structured_outputs, MAX_SCHEMA_DEPTH + 1)
        json_depth("structured_outputs", spec.json if isinstance(spec.json, str) else None, MAX_SCHEMA_DEPTH)
        json_depth("structured_outputs", spec.structural_tag, MAX_TAG_DEPTH)
    if params.repetition_detection is not None:
        pattern = convert("repetition_detection", params.repetition_detection, RepetitionDetection)
        fits = 0 <= pattern.min_pattern_size <= pattern.max_pattern_size < 1 << 31
        enough = pattern.max_pattern_size == 0 or 2 <= pattern.min_count < 1 << 31
        require(fits and enough, "repetition_detection", params.repetition_detection)
    if params.extra_args is not None:
        free_form("extra_args", params.extra_args, MAX_DEPTH)
