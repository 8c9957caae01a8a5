"""What of an engine's output is seldom there: log-probabilities, what a cache did, hand-over parameters (wire d.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from fastfront.engine.wire import Array, decode, read_array
from fastfront.errors import WireError
from fastfront.flow import LogprobRows


class PrefillStats(msgspec.Struct):
    """Of the prompt's tokens, how many came from a cache and how many went into one."""

    num_cached_tokens: int = 0
    num_cache_creation_tokens: int | None = None


class Extras(msgspec.Struct, array_like=True):
    """The first places of an EngineCoreOutput, those that nobody here needs unread."""

    request_id: msgspec.Raw
    token_ids: msgspec.Raw
    logprobs: list[Any] | None = None
    prompt_logprobs: list[Any] | None = None
    pooling_output: msgspec.Raw = msgspec.Raw()
    finish_reason: msgspec.Raw = msgspec.Raw()
    stop_reason: msgspec.Raw = msgspec.Raw()
    events: msgspec.Raw = msgspec.Raw()
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    trace_headers: msgspec.Raw = msgspec.Raw()
    prefill: PrefillStats | None = None


def read_extras(raw: bytes) -> Extras:
    """Reads a step's `raw`; WireError."""
    return decode(raw, Extras)


def read_rows(value: list[Any], frames: Sequence[bytes]) -> LogprobRows:
    """The rows of `logprobs` or `prompt_logprobs`; `frames` are those of the message. WireError."""
    if len(value) < 3:
        raise WireError("log-probabilities are not [ids, logprobs, ranks, ...]")
    ids, logprobs, ranks = (read_array(part, frames) for part in value[:3])
    if len(ids.shape) != 2 or logprobs.shape != ids.shape or ranks.shape != ids.shape[:1]:
        raise WireError(f"log-probabilities have the shapes {ids.shape}, {logprobs.shape} and {ranks.shape}")
    if ids.shape[1] < 1 or not (_whole(ids) and _whole(ranks)):
        raise WireError(f"log-probabilities are of {ids.shape[1]} candidates with {ids.dtype} ids, {ranks.dtype} ranks")
    return LogprobRows(
        ids.shape[1], cast("list[int]", ids.values()), logprobs.values(), cast("list[int]", ranks.values())
    )


def _whole(array: Array) -> bool:
    return array.dtype.lstrip("u").startswith("int")
