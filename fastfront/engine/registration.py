"""Which engines have reported, and what they said of themselves. A plain state; the link does the I/O."""

from __future__ import annotations

from typing import NamedTuple

from fastfront.engine import wire
from fastfront.errors import StartError, WireError


class EngineInfo(NamedTuple):
    """What a frontend must know of its engines, joined from all registrations.

    `max_model_len` (tokens), `max_num_seqs` and `max_num_batched_tokens` are the least of all, `num_gpu_blocks` is the
    sum; abilities are there if every engine has them; the rest is the first engine's.
    """

    max_model_len: int
    num_gpu_blocks: int
    block_size: int
    mamba_block_size: int | None
    effective_attention_block_size: int | None
    kv_cache_size_tokens: int | None
    kv_cache_max_concurrency: float | None
    dtype: str
    vllm_version: str
    world_size: int
    data_parallel_size: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    decode_context_parallel_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    dp_stats_address: str | None
    supports_lora: bool
    max_loras: int
    enable_sleep_mode: bool
    supports_draft_weight_updates: bool
    weight_transfer_backend: str | None
    instance_ids: tuple[str, ...]
    #: Global rank -> the engine's KV event settings, of those that publish events.
    kv_events: dict[int, dict[str, object]]


class Registrations:
    """The registrations of the engines with the global ranks `start` to `start + count - 1`."""

    def __init__(self, start: int, count: int) -> None:
        self.expected = range(start, start + count)
        self.responses: dict[int, wire.ReadyResponse] = {}
        self._away: dict[int, wire.ReadyResponse] = {}

    def add(self, identity: bytes, payload: bytes) -> int:
        """Takes one in; the engine's rank. StartError for an engine that is not expected or says nonsense."""
        rank = wire.engine_index(identity)
        if rank is None or rank not in self.expected:
            name = f"engine {rank}" if rank is not None else f"a socket named {identity!r}"
            raise StartError(f"{name} registered; expected were {_ranks(self.expected)}")
        try:
            response = wire.decode(payload, wire.ReadyResponse)
        except WireError as error:
            raise StartError(f"the registration of engine {rank} cannot be read: {error}") from error
        if response.max_model_len < 1:
            raise StartError(f"engine {rank} registered with max_model_len {response.max_model_len}")
        self.responses[rank] = response
        return rank

    def remove(self, rank: int) -> None:
        """The engine's connection is gone before all were there."""
        response = self.responses.pop(rank, None)
        if response is not None:
            self._away[rank] = response

    def restore(self, rank: int) -> bool:
        """The engine is connected again: it registers once, not with each connection. False if it never has."""
        response = self._away.pop(rank, None)
        if response is not None:
            self.responses[rank] = response
        return response is not None

    def missing(self) -> list[int]:
        """The ranks that have not registered."""
        return [rank for rank in self.expected if rank not in self.responses]

    def too_late(self, seconds: float) -> StartError:
        """What to raise when the time is up."""
        missing = self.missing()
        return StartError(
            f"{len(missing)} of {len(self.expected)} engines did not register within {seconds:g} s: {_ranks(missing)}"
        )

    def info(self) -> EngineInfo:
        """The joined view; all must be there."""
        everyone = [self.responses[rank] for rank in self.expected]
        first = everyone[0]
        addresses = {one.dp_stats_address for one in everyone if one.dp_stats_address is not None}
        if len(addresses) > 1:
            raise StartError(f"the engines name different coordinators: {', '.join(sorted(addresses))}")
        attention = {one.effective_attention_block_size for one in everyone}
        return EngineInfo(
            max_model_len=min(one.max_model_len for one in everyone),
            num_gpu_blocks=sum(one.num_gpu_blocks for one in everyone),
            block_size=first.block_size,
            mamba_block_size=first.mamba_block_size,
            effective_attention_block_size=attention.pop() if len(attention) == 1 else None,
            kv_cache_size_tokens=first.kv_cache_size_tokens,
            kv_cache_max_concurrency=first.kv_cache_max_concurrency,
            dtype=first.dtype,
            vllm_version=first.vllm_version,
            world_size=first.world_size,
            data_parallel_size=first.data_parallel_size,
            tensor_parallel_size=first.tensor_parallel_size,
            pipeline_parallel_size=first.pipeline_parallel_size,
            decode_context_parallel_size=first.decode_context_parallel_size,
            max_num_seqs=min(one.max_num_seqs for one in everyone),
            max_num_batched_tokens=min(one.max_num_batched_tokens for one in everyone),
            dp_stats_address=addresses.pop() if addresses else None,
            supports_lora=all(one.supports_lora for one in everyone),
            max_loras=min(one.max_loras for one in everyone),
            enable_sleep_mode=all(one.enable_sleep_mode for one in everyone),
            supports_draft_weight_updates=all(one.supports_draft_weight_updates for one in everyone),
            weight_transfer_backend=first.weight_transfer_backend,
            instance_ids=tuple(one.instance_id for one in everyone),
            kv_events={
                rank: self.responses[rank].kv_events_config or {}
                for rank in self.expected
                if self.responses[rank].kv_events_config is not None
            },
        )


def _ranks(ranks: range | list[int]) -> str:
    return "engine " + ", ".join(map(str, ranks)) if len(ranks) == 1 else "engines " + ", ".join(map(str, ranks))
