"""One rank's sockets: the handshake that tells where they lead, and what goes over them (wire b)."""

from __future__ import annotations

from typing import Any

import zmq

from fastfront.engine import wire
from fastfront.engine.rank.frames import pack

LINGER_MS = 4000

Socket = zmq.Socket[bytes]


class Rank:
    """The sockets of one data-parallel rank: `hello`, `take_init` once that message is there, `register`, `ready`."""

    def __init__(self, context: zmq.Context[Socket], handshake: str, index: int, *, local: bool) -> None:
        self.index = index
        self.inputs: list[Socket] = []
        self.coordinator: Socket | None = None
        #: Where the frontend wants to be told the coordinator's statistics from.
        self.stats_address: str | None = None
        self._context = context
        self._local = local
        self._identity = wire.identity(index)
        self._to = wire.Addresses([], [])
        self._outputs: list[Socket] = []
        self._coordinator_out: Socket | None = None
        self.handshake = self._connect(zmq.DEALER, handshake)

    def _connect(self, kind: int, address: str) -> Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        if kind == zmq.DEALER:
            socket.setsockopt(zmq.IDENTITY, self._identity)
        socket.connect(address)
        return socket

    def _say(self, status: str, parallel_config_hash: str | None = None) -> None:
        told = wire.HandshakeStatus(status, self._local, not self._local, parallel_config_hash)
        self.handshake.send(wire.encode(told))

    def hello(self) -> None:
        """Says that this rank is there."""
        self._say(wire.HELLO)

    def take_init(self) -> None:
        """Reads where to connect; WireError."""
        self._to = wire.decode(self.handshake.recv(), wire.HandshakeInit).addresses
        self.stats_address = self._to.frontend_stats_publish_address

    def register(self, registration: dict[str, Any]) -> None:
        """Connects to all that the init message named and says on every input what this rank is; ZMQError."""
        to = self._to
        if to.coordinator_input:
            self.coordinator = self._connect(zmq.XSUB, to.coordinator_input)
            self.coordinator.send(b"\x01")
        if to.coordinator_output:
            self._coordinator_out = self._connect(zmq.PUSH, to.coordinator_output)
        self._outputs = [self._connect(zmq.PUSH, address) for address in to.outputs]
        body = pack(registration)
        for address in to.inputs:
            socket = self._connect(zmq.DEALER, address)
            socket.send(body)
            self.inputs.append(socket)

    def ready(self, parallel_config_hash: str | None = None) -> None:
        """Tells the handshake's owner that this rank serves now."""
        self._say(wire.READY, parallel_config_hash)

    @property
    def clients(self) -> int:
        """Frontend processes this rank is connected to."""
        return len(self._outputs)

    def send(self, client: int, frames: list[bytes]) -> None:
        """One output message."""
        socket = self._outputs[client]
        if len(frames) == 1:
            socket.send(frames[0])
        else:
            socket.send_multipart(frames)

    def send_dead(self) -> None:
        """The sentinel, to every client."""
        for socket in self._outputs:
            socket.send(wire.ENGINE_CORE_DEAD)

    def tell(self, fields: list[Any]) -> None:
        """One message to the coordinator, if there is one."""
        if self._coordinator_out is not None:
            self._coordinator_out.send(pack(fields))

    def go_deaf(self) -> None:
        """Reads nothing more: what is left of a real engine whose input thread has ended."""
        for socket in self.inputs:
            socket.close(linger=0)
        self.inputs.clear()

    def close(self, linger_ms: int) -> None:
        """Closes all; what is unsent may still go out for that long."""
        for socket in (*self.inputs, *self._outputs, self.coordinator, self._coordinator_out, self.handshake):
            if socket is not None:
                socket.close(linger=linger_ms)


def registration(
    *,
    index: int,
    stats_address: str | None,
    dtype: str,
    instance: str,
    max_model_len: int,
    num_blocks: int,
    block_size: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    data_parallel_size: int = 1,
) -> dict[str, Any]:
    """EngineCoreReadyResponse (wire d.9) of an engine that is parallel at most over data; `num_blocks` to give out."""
    return {
        "max_model_len": max_model_len,
        "num_gpu_blocks": num_blocks,
        "block_size": block_size,
        "dp_stats_address": stats_address,
        "dtype": dtype,
        "vllm_version": "0.32.0",
        "world_size": 1,
        "data_parallel_size": data_parallel_size,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "data_parallel_rank": index,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "instance_id": instance,
        "supports_lora": False,
        "max_loras": 0,
        "mamba_block_size": None,
        "kv_cache_size_tokens": num_blocks * block_size,
        "kv_cache_max_concurrency": num_blocks * block_size / max_model_len,
        "kv_events_config": None,
        "weight_transfer_backend": None,
        "enable_sleep_mode": True,
        "supports_draft_weight_updates": False,
        "effective_attention_block_size": block_size,
    }
