"""An engine in pyzmq, driven step by step, for testing the frontend's side: both data sockets, no model."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq

from fastfront.engine import wire

PATIENCE_MS = 20_000

READY: dict[str, Any] = {
    "max_model_len": 100_000, "num_gpu_blocks": 10, "block_size": 16, "dp_stats_address": None, "dtype": "bfloat16",
    "vllm_version": "0.32.0", "world_size": 1, "data_parallel_size": 1, "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1, "decode_context_parallel_size": 1, "data_parallel_rank": 0, "max_num_seqs": 64,
    "max_num_batched_tokens": 2048, "instance_id": "x", "supports_lora": False, "max_loras": 0,
}  # fmt: skip


def listeners(family: str, folder: Path) -> tuple[list[socket.socket], list[str]]:
    """Two raw sockets, bound and listening as vLLM's supervisor leaves them, and their addresses for ZMQ."""
    sockets, addresses = [], []
    for name in ("input", "output"):
        if family == "ipc":
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(folder / name))
            addresses.append(f"ipc://{folder / name}")
        else:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.bind(("127.0.0.1", 0))
            addresses.append(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        listener.listen(16)
        sockets.append(listener)
    return sockets, addresses


def adopted(listener: socket.socket) -> socket.socket:
    """The same socket through nothing but its descriptor, as a started process gets it."""
    return socket.socket(fileno=listener.detach())


class FakeEngine:
    """Connects to a frontend; context manager. `recv` waits without holding the loop."""

    def __init__(self, rank: int, addresses: Sequence[str], reconnect_ms: int = 10) -> None:
        self.rank = rank
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.inputs = self.context.socket(zmq.DEALER)
        self.inputs.setsockopt(zmq.IDENTITY, wire.identity(rank))
        self.outputs = self.context.socket(zmq.PUSH)
        for sock, address in zip((self.inputs, self.outputs), addresses, strict=True):
            sock.setsockopt(zmq.LINGER, 0)
            sock.setsockopt(zmq.SNDHWM, 0)
            sock.setsockopt(zmq.RCVHWM, 0)
            sock.setsockopt(zmq.RECONNECT_IVL, reconnect_ms)
            sock.connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.context.destroy(linger=0)

    def register(self, **changes: Any) -> None:
        """Sends the registration; a value of ... leaves the key out."""
        ready = {**READY, "data_parallel_rank": self.rank, **changes}
        self.inputs.send(wire.encode({key: value for key, value in ready.items() if value is not ...}))

    async def recv(self) -> list[bytes]:
        """The next message from the frontend, all frames."""

        def wait() -> list[bytes]:
            assert self.inputs.poll(PATIENCE_MS), "nothing came from the frontend"
            return self.inputs.recv_multipart()

        return await asyncio.to_thread(wait)

    async def added(self) -> wire.EngineCoreRequest:
        """The next message, which must be an ADD."""
        kind, payload = await self.recv()
        assert kind == wire.ADD, (kind, payload)
        return wire.decode(payload, wire.EngineCoreRequest)

    async def aborted(self) -> list[str]:
        """The next message, which must be an ABORT."""
        kind, payload = await self.recv()
        assert kind == wire.ABORT, (kind, payload)
        ids: list[str] = msgspec.msgpack.decode(payload)
        return ids

    async def called(self) -> list[Any]:
        """The next message, which must be a UTILITY call: [client, call id, method, args]."""
        kind, payload = await self.recv()
        assert kind == wire.UTILITY, (kind, payload)
        call: list[Any] = msgspec.msgpack.decode(payload)
        return call

    def say(self, *outputs: wire.EngineCoreOutput, aux: Sequence[bytes] = (), **fields: Any) -> None:
        """Sends an output message."""
        message = wire.EngineCoreOutputs(engine_index=self.rank, outputs=list(outputs), **fields)
        self.outputs.send_multipart([wire.encode(message), *aux])

    def answer(self, call_id: int, value: Any = None, failure: str | None = None) -> None:
        """Sends the result of a utility call."""
        result = None if failure is not None else [None, value]
        self.say(utility_output=wire.UtilityOutput(call_id, failure, result))
