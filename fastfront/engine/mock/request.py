"""Requests as the mock needs them, and the ways in which bad ones break an engine (wire f)."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec

from fastfront.engine.rank.request import UnreadableError, decode_add


class FatalError(Exception):
    """A request that a real engine trips over: it says ENGINE_CORE_DEAD and exits."""


class Request(NamedTuple):
    """One ADD, as far as a mock uses it; `params` is the sampling map as it came."""

    id: str
    prompt: list[int]
    params: dict[str, Any]
    client: int
    wave: int
    abort_immediately: bool
    #: Monotonic seconds.
    arrived: float

    @property
    def max_tokens(self) -> int | None:
        """The token limit; None where the request set none."""
        limit: int | None = self.params.get("max_tokens", 16)
        return limit


class Loose(msgspec.Struct, array_like=True):
    """The same array, as far as a mock needs it, and nothing checked but the types of that."""

    request_id: str
    prompt_token_ids: list[int] | None
    mm_features: Any
    sampling_params: dict[str, Any] | None
    pooling_params: Any
    arrival_time: Any
    lora_request: Any
    cache_salt: Any
    data_parallel_rank: Any
    prompt_embeds: Any = None
    prompt_is_token_ids: Any = None
    client_index: int = 0
    current_wave: int = 0
    priority: Any = 0
    trace_headers: Any = None
    resumable: Any = False
    external_req_id: Any = None
    reasoning_ended: Any = None
    reasoning_parser_kwargs: Any = None
    abort_immediately: bool = False


loosely = msgspec.msgpack.Decoder(Loose).decode


def read_add(frames: list[bytes], *, strict: bool) -> Request:
    """The request in an ADD's payload; UnreadableError where it is none."""
    try:
        if strict:
            decode_add(frames[0])
        body = loosely(frames[0])
    except (msgspec.MsgspecError, IndexError, UnicodeDecodeError) as error:
        raise UnreadableError(f"ADD: {error}") from error
    return Request(
        id=body.request_id,
        prompt=body.prompt_token_ids or [],
        params=body.sampling_params or {},
        client=body.client_index,
        wave=body.current_wave,
        abort_immediately=body.abort_immediately,
        arrived=time.monotonic(),
    )


def check(request: Request, *, max_model_len: int, vocab: int | None) -> None:
    """FatalError for a request that decodes and still breaks a real engine."""
    length = len(request.prompt)
    if not 1 <= length < max_model_len:
        raise FatalError(f"prompt of {length} tokens, the model takes 1 to {max_model_len - 1}")
    if min(request.prompt) < 0 or (vocab is not None and max(request.prompt) >= vocab):
        raise FatalError(f"prompt ids outside 0..{(vocab or 0) - 1}")
    if not request.params:
        raise FatalError("no sampling parameters: this engine only generates")
