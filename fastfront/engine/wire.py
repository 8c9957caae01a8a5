"""vLLM's EngineCore wire (0.32.0): the records, as msgpack, of every message between a frontend and an engine.

Array records are written in full and read with their tail missing. The hot messages have their own code (`add_frames`,
`fast.Router.feed`); the records here are the reference for those, and all that is used for the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from fastfront.errors import WireError
from fastfront.flow import EngineRequest

ADD, ABORT, START_DP_WAVE, UTILITY = b"\x00", b"\x01", b"\x02", b"\x03"
ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"
RAW_VIEW = 3  # the extension code of an array's bytes; 1 and 2 are pickles and never read
HELLO, READY = "HELLO", "READY"

T = TypeVar("T")


class EngineCoreRequest(msgspec.Struct, array_like=True):
    """The payload of an ADD message: 22 places."""

    request_id: str
    prompt_token_ids: list[int] | None
    mm_features: list[dict[str, Any]] | None
    sampling_params: dict[str, Any] | None
    pooling_params: list[Any] | None
    arrival_time: float
    lora_request: list[Any] | None
    cache_salt: str | None
    data_parallel_rank: int | None
    prompt_embeds: list[Any] | None = None
    prompt_is_token_ids: list[bool] | None = None
    client_index: int = 0
    current_wave: int = 0
    priority: int = 0
    trace_headers: dict[str, str] | None = None
    resumable: bool = False
    external_req_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None
    abort_immediately: bool = False
    session_id: str | None = None
    kv_hints: dict[str, Any] | None = None


class EngineCoreOutput(msgspec.Struct, array_like=True):
    """One request's share of an engine step: 18 places."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: list[Any] | None = None
    new_prompt_logprobs_tensors: list[Any] | None = None
    pooling_output: list[Any] | None = None
    finish_reason: int | None = None
    stop_reason: int | str | None = None
    events: list[dict[str, Any]] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    trace_headers: dict[str, str] | None = None
    prefill_stats: dict[str, Any] | None = None
    routed_experts: list[Any] | None = None
    num_nans_in_logits: int = 0
    mm_cache_miss_hashes: list[str] | None = None
    new_sampling_mask: list[Any] | None = None
    spec_decode_metrics: dict[str, Any] | None = None
    prompt_token_id_logprobs: list[Any] | None = None


class SchedulerStats(msgspec.Struct):
    """What of an engine's statistics a frontend uses; other keys are skipped."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0
    current_wave: int = 0
    prefix_cache_stats: dict[str, Any] | None = None
    spec_decoding_stats: dict[str, Any] | None = None
    waiting_lora_adapters: dict[str, int] = {}
    running_lora_adapters: dict[str, int] = {}


class UtilityOutput(msgspec.Struct, array_like=True):
    """The answer to a utility call; `result` is [type information or nil, value]."""

    call_id: int
    failure_message: str | None = None
    result: list[Any] | None = None


class EngineCoreOutputs(msgspec.Struct, array_like=True):
    """One output message: 9 places. `timestamp` is the engine's monotonic clock."""

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = []
    scheduler_stats: dict[str, Any] | None = None
    timestamp: float = 0.0
    utility_output: UtilityOutput | None = None
    finished_requests: list[str] | None = None
    wave_complete: int | None = None
    start_wave: int | None = None
    weight_version: str | None = None


class ReadyResponse(msgspec.Struct):
    """An engine's registration: the keys up to `max_loras` must be there (`dp_stats_address` may be absent)."""

    max_model_len: int
    num_gpu_blocks: int
    block_size: int
    dtype: str
    vllm_version: str
    world_size: int
    data_parallel_size: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    decode_context_parallel_size: int
    data_parallel_rank: int
    max_num_seqs: int
    max_num_batched_tokens: int
    instance_id: str
    supports_lora: bool
    max_loras: int
    dp_stats_address: str | None = None
    mamba_block_size: int | None = None
    kv_cache_size_tokens: int | None = None
    kv_cache_max_concurrency: float | None = None
    kv_events_config: dict[str, Any] | None = None
    weight_transfer_backend: str | None = None
    enable_sleep_mode: bool = False
    supports_draft_weight_updates: bool = False
    effective_attention_block_size: int | None = None


class Addresses(msgspec.Struct):
    """Where an engine is to connect; `inputs[k]` and `outputs[k]` belong to client k."""

    inputs: list[str]
    outputs: list[str]
    coordinator_input: str | None = None
    coordinator_output: str | None = None
    frontend_stats_publish_address: str | None = None


class HandshakeInit(msgspec.Struct):
    """The answer to HELLO; `parallel_config` is set on the engine's own."""

    addresses: Addresses
    parallel_config: dict[str, Any] = {}


class HandshakeStatus(msgspec.Struct, omit_defaults=True):
    """What an engine says in the handshake: HELLO, later READY."""

    status: str
    local: bool
    headless: bool
    parallel_config_hash: str | None = None


class Array(NamedTuple):
    """A tensor or ndarray of a message: its dtype without byte order (`int32`), its shape, its little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def values(self) -> list[int] | list[float]:
        """The elements in a flat row; WireError for a dtype that Python has no number for."""
        if self.dtype == "bfloat16":
            words = struct.unpack(f"<{len(self.data) // 2}H", self.data)
            return list(struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words))))
        code, size = _DTYPES[self.dtype]
        return list(struct.unpack(f"<{len(self.data) // size}{code}", self.data))


#: dtype -> struct code and bytes an element.
_DTYPES = {
    "bool": ("?", 1), "int8": ("b", 1), "uint8": ("B", 1), "int16": ("h", 2), "uint16": ("H", 2), "int32": ("i", 4),
    "uint32": ("I", 4), "int64": ("q", 8), "uint64": ("Q", 8), "float16": ("e", 2), "bfloat16": ("", 2),
    "float32": ("f", 4), "float64": ("d", 8),
}  # fmt: skip
#: numpy's letters for the same.
_NUMPY = {
    "b1": "bool", "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32",
    "i8": "int64", "u8": "uint64", "f2": "float16", "f4": "float32", "f8": "float64",
}  # fmt: skip


def read_array(value: Any, frames: Sequence[bytes] = ()) -> Array:
    """A `[dtype, shape, data]` of a message; `frames` are all of the message's, frame 0 the one `value` is from."""
    if not isinstance(value, list) or len(value) != 3:
        raise WireError("an array is not [dtype, shape, data]")
    name, shape, data = value
    dtype = _NUMPY.get(name[1:], name) if isinstance(name, str) and name[:1] in "<|=" else name
    if dtype not in _DTYPES:
        raise WireError(f"an array has the unknown dtype {name!r}")
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise WireError(f"an array has the shape {shape!r}")
    if isinstance(data, msgspec.msgpack.Ext) and data.code == RAW_VIEW:
        raw = bytes(data.data)
    elif type(data) is int and 0 < data < len(frames):
        raw = bytes(frames[data])
    else:
        raise WireError(f"an array's data is neither inline nor in one of the {len(frames)} frames")
    size = _DTYPES[dtype][1]
    for dimension in shape:
        size *= dimension
    if size != len(raw):
        raise WireError(f"an array of {dtype} {shape} has {len(raw)} bytes, not {size}")
    return Array(dtype, tuple(shape), raw)


def write_array(array: Array, frames: list[bytes], threshold: int = 256) -> list[Any]:
    """An array for a message in torch's manner: inline below `threshold` bytes, else as one more of `frames`."""
    if len(array.data) < threshold or not array.shape:
        return [array.dtype, list(array.shape), msgspec.msgpack.Ext(RAW_VIEW, array.data)]
    frames.append(array.data)
    return [array.dtype, list(array.shape), len(frames) - 1]


encode = msgspec.msgpack.Encoder().encode

_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def decode(data: bytes, kind: type[T]) -> T:
    """Reads one record of `kind`; WireError names what is wrong in it."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        record: T = decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"malformed {kind.__name__}: {error}") from error
    return record


def add_frames(
    request: EngineRequest,
    prompt: bytes,
    sampling: bytes,
    reasoning_kwargs: bytes,
    client_index: int,
    current_wave: int,
) -> tuple[bytes, bytes]:
    """An ADD message. `prompt`, `sampling` and `reasoning_kwargs` are those of the request as msgpack."""
    payload = (
        request.request_id,
        msgspec.Raw(prompt),
        None,  # mm_features
        msgspec.Raw(sampling),
        None,  # pooling_params
        request.arrival_time,
        None,  # lora_request
        request.cache_salt,
        request.data_parallel_rank,
        None,  # prompt_embeds
        None,  # prompt_is_token_ids
        client_index,
        current_wave,
        request.priority,
        request.trace_headers,
        False,  # resumable
        request.external_req_id,
        request.reasoning_ended,
        msgspec.Raw(reasoning_kwargs),
        False,  # abort_immediately
        request.session_id,
        None,  # kv_hints
    )
    return ADD, encode(payload)


def abort_frames(request_ids: Sequence[str]) -> tuple[bytes, bytes]:
    """An ABORT message."""
    return ABORT, encode(list(request_ids))


def utility_frames(client_index: int, call_id: int, method: str, args: Sequence[Any]) -> tuple[bytes, bytes]:
    """A UTILITY message."""
    return UTILITY, encode([client_index, call_id, method, list(args)])


def identity(engine_index: int) -> bytes:
    """The name of an engine's sockets: its global rank, 2 bytes little-endian."""
    return engine_index.to_bytes(2, "little")


def engine_index(identity: bytes) -> int | None:
    """The rank that a socket's name stands for, None if it is not one."""
    return int.from_bytes(identity, "little") if len(identity) == 2 else None
