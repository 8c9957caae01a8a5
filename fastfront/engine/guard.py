"""The last check before the wire. The engine trusts its frontend: each thing refused here stops or kills one (wire f).

The API refuses the same earlier and says it better; what comes by here in spite of that is a fault of ours. Checking
and packing are one: what goes out are the bytes that this gives.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fastfront.engine.checks import INT64, flag, free_form, integer, number, require, text, token_ids
from fastfront.engine.sampling import MAX_DEPTH, PackedSampling
from fastfront.errors import RequestError
from fastfront.flow import EngineRequest, SamplingParams

_RANKS = range(1 << 16)


class Checked(NamedTuple):
    """The large parts of a request that an engine may see, as msgpack."""

    prompt: bytes
    sampling: bytes


class Guard:
    """Checks requests for engines whose logits are `vocab_size` wide.

    Requests that are alike share their sampling parameters, which are checked once and cannot change.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._known: WeakKeyDictionary[SamplingParams, PackedSampling] = WeakKeyDictionary()

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
        return Checked(prompt, sampling.of(request.max_tokens, request.seed, count))


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
    if request.reasoning_parser_kwargs is not None:
        free_form("reasoning_parser_kwargs", request.reasoning_parser_kwargs, MAX_DEPTH)
