"""A frontend in pyzmq for testing engines: the handshake's owner and both data sockets, spoken to step by step."""

from __future__ import annotations

import struct
import time
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode
PATIENCE_S = 60.0
DEAD = b"ENGINE_CORE_DEAD"


def identity(index: int) -> bytes:
    """A rank's name on the wire."""
    return index.to_bytes(2, "little")


def add(
    request_id: str, *, prompt: list[int] | None = None, client: int = 0, wave: int = 0, **params: Any
) -> list[Any]:
    """An EngineCoreRequest's fields (wire d.1)."""
    head = [request_id, prompt or [1, 2, 3], None, params, None, time.time(), None, None, None]
    return [*head, None, None, client, wave]


def array(value: list[Any], frames: list[bytes]) -> list[float]:
    """The numbers in `[dtype, shape, data]`."""
    dtype, _, data = value
    raw = bytes(frames[data] if isinstance(data, int) else data.data)
    code = {"<i4": "i", "int32": "i", "<f4": "f", "float32": "f", "<i8": "q"}[dtype]
    return list(struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw))


class Front:
    """Binds for `clients` frontends and the ranks named; context manager."""

    def __init__(self, clients: int = 1, coordinator: tuple[str, str] | None = None) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.handshake, self.address = self._bind(zmq.ROUTER)
        self.inputs: list[zmq.Socket[bytes]] = []
        self.outputs: list[zmq.Socket[bytes]] = []
        self.init: dict[str, Any] = {"inputs": [], "outputs": [], "frontend_stats_publish_address": None}
        self.init["coordinator_input"], self.init["coordinator_output"] = coordinator or (None, None)
        for _ in range(clients):
            for kind, sockets, name in ((zmq.ROUTER, self.inputs, "inputs"), (zmq.PULL, self.outputs, "outputs")):
                socket, address = self._bind(kind)
                sockets.append(socket)
                self.init[name].append(address)
        self.registered: dict[int, dict[str, Any]] = {}

    def _bind(self, kind: int) -> tuple[zmq.Socket[bytes], str]:
        socket = self.context.socket(kind)
        for option in (zmq.LINGER, zmq.SNDHWM, zmq.RCVHWM):
            socket.setsockopt(option, 0)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        return socket, f"tcp://127.0.0.1:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.context.destroy(linger=0)

    def receive(self, socket: zmq.Socket[bytes], patience: float = PATIENCE_S) -> list[bytes]:
        """The next message; fails when none comes."""
        assert socket.poll(int(patience * 1000)), "no message came"
        return socket.recv_multipart()

    def greet(self) -> tuple[int, dict[str, Any]]:
        """Answers one HELLO; its rank and fields."""
        name, hello = self.receive(self.handshake)
        fields = unpack(hello)
        assert fields.pop("status") == "HELLO"
        self.handshake.send_multipart([name, pack({"addresses": self.init, "parallel_config": {}})])
        return int.from_bytes(name, "little"), fields

    def settle(self, ranks: int = 1) -> list[dict[str, Any]]:
        """Takes every rank's registration and READY; the fields of the latter."""
        for socket in self.inputs:
            for _ in range(ranks):
                name, body = self.receive(socket)
                self.registered[int.from_bytes(name, "little")] = unpack(body)
        readies = []
        for _ in range(ranks):
            _, body = self.receive(self.handshake)
            readies.append(unpack(body))
            assert readies[-1].pop("status") == "READY"
        return readies

    def join(self, ranks: int = 1) -> None:
        """The whole handshake."""
        for _ in range(ranks):
            self.greet()
        self.settle(ranks)

    def send(self, kind: int, body: Any, rank: int = 0, client: int = 0) -> None:
        """One message to a rank; `body` is packed unless it is bytes."""
        payload = body if isinstance(body, bytes) else pack(body)
        self.inputs[client].send_multipart([identity(rank), bytes([kind]), payload])

    def add(self, request_id: str, *, rank: int = 0, **fields: Any) -> None:
        """An ADD."""
        self.send(0, add(request_id, **fields), rank, fields.get("client", 0))

    def abort(self, *request_ids: str, rank: int = 0) -> None:
        """An ABORT."""
        self.send(1, list(request_ids), rank)

    def call(self, method: str, *args: Any, rank: int = 0, call_id: int = 1) -> list[Any]:
        """A utility call and the first answer that comes."""
        self.send(3, [0, call_id, method, list(args)], rank)
        while True:
            answer = self.message()[0][4]
            if answer is not None:
                assert answer[0] == call_id
                return list(answer)

    def message(self, client: int = 0) -> tuple[list[Any], list[bytes]]:
        """The next output message, filled up to nine fields, and its frames."""
        frames = self.receive(self.outputs[client])
        fields = unpack(frames[0])
        return fields + [None] * (9 - len(fields)), frames

    def quiet(self, client: int = 0, ms: int = 200) -> bool:
        """Whether nothing comes for that long."""
        return not self.outputs[client].poll(ms)

    def drain(self, *request_ids: str, client: int = 0) -> dict[str, list[list[Any]]]:
        """Every output up to the last of these requests, by request and with arrays as numbers."""
        got: dict[str, list[list[Any]]] = {}
        left = set(request_ids)
        while left:
            message, frames = self.message(client)
            for output in message[1]:
                output += [None] * (18 - len(output))
                for place in (2, 3):
                    if output[place] is not None:
                        output[place] = [array(part, frames) for part in output[place][:3]]
                got.setdefault(output[0], []).append(output)
                if output[5] is not None:
                    left.discard(output[0])
        return got
