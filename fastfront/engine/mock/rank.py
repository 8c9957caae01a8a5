"""One rank's sockets: the handshake that tells where they lead, and what goes over them (wire b)."""

from __future__ import annotations

from typing import Any

import msgspec
import zmq

from fastfront.engine.mock.options import Options
from fastfront.engine.mock.stats import BLOCK_SIZE, BLOCKS
from fastfront.engine.mock.wire import DEAD, pack, unpack

LINGER_MS = 4000


class Addresses(msgspec.Struct):
    """Where the frontend told the engine to connect (wire b.2)."""

    inputs: list[str]
    outputs: list[str]
    coordinator_input: str | None = None
    coordinator_output: str | None = None
    frontend_stats_publish_address: str | None = None


class Rank:
    """The sockets of one data-parallel rank; `hello`, then `register` once the init message is there, then `ready`."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], options: Options, index: int) -> None:
        self.index = index
        self.inputs: list[zmq.Socket[bytes]] = []
        self.coordinator: zmq.Socket[bytes] | None = None
        self._options = options
        self._context = context
        self._identity = index.to_bytes(2, "little")
        self._outputs: list[zmq.Socket[bytes]] = []
        self._coordinator_out: zmq.Socket[bytes] | None = None
        self.handshake = self._connect(zmq.DEALER, options.handshake)

    def _connect(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        if kind == zmq.DEALER:
            socket.setsockopt(zmq.IDENTITY, self._identity)
        socket.connect(address)
        return socket

    def _status(self, status: str) -> dict[str, Any]:
        return {"status": status, "local": self._options.local, "headless": not self._options.local}

    def hello(self) -> None:
        """Says that this rank is there."""
        self.handshake.send(pack(self._status("HELLO")))

    def register(self) -> None:
        """Reads the init message, connects to all that it names and sends the registration on every input."""
        init = unpack(self.handshake.recv())
        to = msgspec.convert(init["addresses"], Addresses)
        if to.coordinator_input:
            self.coordinator = self._connect(zmq.XSUB, to.coordinator_input)
            self.coordinator.send(b"\x01")
        if to.coordinator_output:
            self._coordinator_out = self._connect(zmq.PUSH, to.coordinator_output)
        self._outputs = [self._connect(zmq.PUSH, address) for address in to.outputs]
        registration = pack(registered(self._options, self.index, to.frontend_stats_publish_address))
        for address in to.inputs:
            socket = self._connect(zmq.DEALER, address)
            socket.send(registration)
            self.inputs.append(socket)

    def ready(self) -> None:
        """Tells the handshake's owner that this rank serves now."""
        status = self._status("READY")
        if self._options.data_parallel_size > 1:
            status["parallel_config_hash"] = "mock"
        self.handshake.send(pack(status))

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
            socket.send(DEAD)

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


def registered(options: Options, index: int, stats_address: str | None) -> dict[str, Any]:
    """EngineCoreReadyResponse (wire d.9)."""
    return {
        "max_model_len": options.max_model_len,
        "num_gpu_blocks": BLOCKS,
        "block_size": BLOCK_SIZE,
        "dp_stats_address": stats_address,
        "dtype": "bfloat16",
        "vllm_version": "0.32.0",
        "world_size": 1,
        "data_parallel_size": options.data_parallel_size,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "data_parallel_rank": index,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": 8192,
        "instance_id": "mock",
        "supports_lora": False,
        "max_loras": 0,
        "mamba_block_size": None,
        "kv_cache_size_tokens": BLOCKS * BLOCK_SIZE,
        "kv_cache_max_concurrency": BLOCKS * BLOCK_SIZE / options.max_model_len,
        "kv_events_config": None,
        "weight_transfer_backend": None,
        "enable_sleep_mode": True,
        "supports_draft_weight_updates": False,
        "effective_attention_block_size": BLOCK_SIZE,
    }
