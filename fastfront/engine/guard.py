"""The last check before the wire. The engine trusts its frontend: each thing refused here stops or kills one (wire f).

The API refuses the same earlier and says it better; what comes by here in spite of that is a fault of ours. Checking
and packing are one: what goes out are the bytes that this gives.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import msgspec

from fastfront.engine.checks import INT64, flag, free_form, integer, number, require, text, token_ids, written
from fastfront.engine.sampling import MAX_DEPTH, PackedSampling
from fastfront.errors import RequestError
from fastfront.flow import EngineRequest, SamplingParams

_RANKS = range(1 << 16)
#: Variables of reasoning parsers that are kept packed (most requests have the same), and the bytes of one's JSON.
_KEPT, _KEPT_SIZE = 64, 4096
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Checked(NamedTuple):
    """The large parts of a request that an engine may see, as msgpack."""

    prompt: bytes
    sampling: bytes
    reasoning_parser_kwargs: bytes


class Guard:
    """Checks requests for engines whose logits are `vocab_size` wide.

    Requests that are alike share their sampling parameters, which are checked once and cannot change.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._known: WeakKeyDictionary[SamplingParams, PackedSampling] = WeakKeyDictionary()
        self._known_kwargs: dict[bytes | None, bytes] = {None: written(None)}

    def check(self, request: EngineRequest, max_model_len: int) -> Checked:
        """RequestError for a request that the engine must not see."""
        ids = request.prompt_token_ids
        count = len(ids)
        if not 1 <= count < max_model_len:
            raise RequestError(
                f"a prompt must have 1 to {max_model_len - 1} tokens, this one has {count}",
                param="prompt", value=count, limit=max_model_len - 1,
            )  # fmt: skip
        prompt = token_ids("prompt", ids, self.vocab_size)
        _check_others(request)
        sampling = self._known.get(request.sampling)
        if sampling is None:
            sampling = self._known[request.sampling] = PackedSampling(request.sampling, self.vocab_size)
        kwargs = self._known_kwargs.get(request.reasoning_parser_kwargs)
        if kwargs is None:
            kwargs = self._pack_reasoning_kwargs(cast("bytes", request.reasoning_parser_kwargs))
        return Checked(prompt, sampling.of(request.max_tokens, request.seed, count), kwargs)

    def _pack_reasoning_kwargs(self, json: bytes) -> bytes:
        name = "reasoning_parser_kwargs"
        try:
            value = _decode(json)
        except (TypeError, RecursionError, msgspec.MsgspecError) as error:
            raise RequestError(f"{name}: {error}", param=name) from error
        free_form(name, value, MAX_DEPTH)
        packed = written(value)
        if len(json) <= _KEPT_SIZE:
            if len(self._known_kwargs) >= _KEPT:
                self._known_kwargs = {None: self._known_kwargs[None]}
            self._known_kwargs[json] = packed
        return packed


def _check_others(request: EngineRequest) -> None:
    text("request_id", request.request_id)
    require(bool(request.request_id), "request_id", request.request_id)
    number("arrival_time", request.arrival_time, 0.0, math.inf)
    integer("priority", request.priority, INT64)
    if request.external_req_id is not None:
        text("external_req_id", request.external_req_id)
    if request.cache_salt is not None:
        text("cache_salt", request.cache_salt)
    if request.session_id is not None:
        text("session_id", request.session_id)
    if request.data_parallel_rank is not None:
        integer("data_parallel_rank", request.data_parallel_rank, _RANKS)
    if request.trace_headers:
        for key, value in request.trace_headers.items():
            require(isinstance(key, str) and isinstance(value, str), "trace_headers", value)
    if request.reasoning_ended is not None:
        flag("reasoning_ended", request.reasoning_ended)
