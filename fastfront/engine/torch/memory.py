"""How many blocks the cache gets, and its tensors."""

from __future__ import annotations

import logging
import mmap

import torch

from fastfront.engine.torch.attention import Cache, LayerCache
from fastfront.engine.torch.device import free_memory, total_memory
from fastfront.engine.torch.settings import RunnerSettings
from fastfront.engine.torch.shape import Shape
from fastfront.errors import StartError

GIB = 1 << 30
#: A cache on the CPU takes no more than this unless num_gpu_blocks_override says so: the machine is not ours alone.
CPU_CACHE = 4 * GIB
#: What CUDA's libraries and captured graphs take beside.
CUDA_RESERVE = GIB

log = logging.getLogger(__name__)


def check_weights(shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
    """StartError if the weights are more than what is free."""
    needed, free = shape.parameters * dtype.itemsize, free_memory(device)
    if needed > free:
        raise StartError(
            f"too little memory on {device}: the weights take {_gib(needed)} as {str(dtype).removeprefix('torch.')} "
            f"and {_gib(free)} are free"
        )


def cache_size(
    shape: Shape, settings: RunnerSettings, device: torch.device, dtype: torch.dtype, length: int
) -> tuple[int, int]:
    """Blocks of the cache, with that for padding, and tokens of one sequence at most; StartError if memory is short.

    To be asked when the weights are loaded. `length` is shortened to what fits if the settings leave it open.
    """
    size = settings.block_size
    block_bytes = shape.kv_values * dtype.itemsize * size
    free = free_memory(device)
    if settings.num_gpu_blocks_override is not None:
        blocks = settings.num_gpu_blocks_override
        if blocks * block_bytes > free:
            raise StartError(
                f"too little memory: {blocks} blocks (--num-gpu-blocks-override) take {_gib(blocks * block_bytes)} "
                f"and {_gib(free)} are free"
            )
    else:
        room = _room(settings, device, free) - working_bytes(shape, settings, dtype, length)
        # Of each layer in turn the blocks are gathered, so one layer's share is needed twice, and some to spare.
        blocks = max(0, int(room / (block_bytes * (1 + 1.5 / shape.num_layers))))
        blocks = min(blocks, 1 + settings.max_num_seqs * -(-length // size))
        if device.type == "cpu":
            blocks = min(blocks, max(CPU_CACHE // block_bytes, 1 + -(-length // size)))
    held = (blocks - 1) * size
    if held < length and (settings.max_model_len is not None or held < size):
        raise StartError(
            f"too little memory: the KV cache has room for {max(0, held)} tokens and one sequence may have {length} "
            f"({_gib(free)} are free on {device}, {_limit(settings)}): lower --max-model-len, raise that, or free some"
        )
    if held < length:
        log.warning(
            "sequences are limited to %d tokens of the model's %d: no more fit with %s", held, length, _limit(settings)
        )
    log.info("the KV cache holds %d tokens in %s", held, _gib(blocks * block_bytes))
    return blocks, min(length, held)


def _limit(settings: RunnerSettings) -> str:
    """What of the settings keeps the cache from being larger."""
    if settings.num_gpu_blocks_override is not None:
        return f"--num-gpu-blocks-override {settings.num_gpu_blocks_override}"
    return f"--gpu-memory-utilization {settings.gpu_memory_utilization:g}"


def _room(settings: RunnerSettings, device: torch.device, free: int) -> int:
    """Bytes for the cache and for what a step computes."""
    if device.type == "cpu":
        return int(free * settings.gpu_memory_utilization)
    return int(free - total_memory(device) * (1 - settings.gpu_memory_utilization)) - CUDA_RESERVE


def working_bytes(shape: Shape, settings: RunnerSettings, dtype: torch.dtype, length: int) -> int:
    """What a step takes at most beside weights and cache: activations, a long prompt's mask, logits and copies."""
    heads = shape.num_heads + 2 * shape.num_kv_heads
    token = (6 * shape.hidden_size + 3 * heads * shape.head_dim + 3 * shape.intermediate_size) * dtype.itemsize
    mask = length * (8 + dtype.itemsize)
    logits = 4 * shape.vocab_size * torch.float32.itemsize
    return settings.max_num_batched_tokens * (token + mask) + settings.max_num_seqs * logits


def make_cache(shape: Shape, blocks: int, block_size: int, device: torch.device, dtype: torch.dtype) -> Cache:
    """A cache of zeros: what is masked is multiplied by 0, so it must be finite."""
    size = (2 * shape.num_layers, blocks * shape.num_kv_heads, block_size * shape.head_dim)
    count = size[0] * size[1] * size[2]
    try:
        if device.type == "cpu":
            # Fresh pages of the system are zero and cost nothing before they are written.
            whole = torch.frombuffer(mmap.mmap(-1, count * dtype.itemsize), dtype=dtype).view(size)
        else:
            whole = torch.zeros(size, dtype=dtype, device=device)
    except (OSError, MemoryError, torch.OutOfMemoryError) as error:
        raise StartError(f"too little memory for a KV cache of {_gib(count * dtype.itemsize)}: {error}") from error
    halves = whole.unbind()
    return Cache(whole, tuple(LayerCache(*pair) for pair in zip(halves[::2], halves[1::2], strict=True)))


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
