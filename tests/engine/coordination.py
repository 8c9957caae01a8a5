"""Both sides of a coordinator in pyzmq: an engine's two sockets and a frontend's, spoken to step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import zmq

from tests.engine.front import PATIENCE_S, pack, unpack

Context = zmq.Context[zmq.Socket[bytes]]


async def until(true: Callable[[], bool]) -> None:
    """Returns when `true()`."""
    while not true():  # noqa: ASYNC110 - what is waited for happens in other threads and processes
        await asyncio.sleep(0.005)


def load(engine: int, waiting: int, running: int, *, step: int = 0, wave: int = 0, usage: float = 0.5) -> list[Any]:
    """A report of an engine's load, with all keys that matter."""
    stats = {"num_running_reqs": running, "num_waiting_reqs": waiting, "kv_cache_usage": usage}
    return [engine, [], {**stats, "step_counter": step, "current_wave": wave, "more": None}, 1.0]


class Engine:
    """An engine's two sockets to a coordinator, at the addresses where it reads and where it writes."""

    def __init__(self, context: Context, addresses: tuple[str, str], *, subscribe: bool) -> None:
        self._reads = context.socket(zmq.XSUB)
        self._reads.connect(addresses[0])
        self._writes = context.socket(zmq.PUSH)
        self._writes.connect(addresses[1])
        self.left_out: list[Any] = []
        if subscribe:
            self.subscribe()

    def subscribe(self) -> None:
        """What an engine that starts sends."""
        self._reads.send(b"\x01")

    async def read(self) -> list[bytes]:
        """The next thing published."""
        assert await asyncio.to_thread(self._reads.poll, int(PATIENCE_S * 1000)), "nothing was published"
        return self._reads.recv_multipart()

    async def woken(self) -> int:
        """The wave of the START_DP_WAVE that comes next; `left_out` gets whom it leaves out."""
        kind, body = await self.read()
        assert kind == b"\x02"
        wave, left_out = unpack(body)
        self.left_out.append(left_out)
        return int(wave)

    async def quiet(self) -> bool:
        """Whether nothing is published for a while."""
        return not await asyncio.to_thread(self._reads.poll, 150)

    def say(self, fields: Any) -> None:
        """A report; `fields` are packed unless they are bytes."""
        self._writes.send(fields if isinstance(fields, bytes) else pack(fields))


def complete(wave: int) -> list[Any]:
    """Rank 0's word that a wave is over."""
    return [0, [], None, 1.0, None, None, wave]


def begun(engine: int, wave: int) -> list[Any]:
    """An engine's word that a wave has begun."""
    return [engine, [], None, 1.0, None, None, None, wave, None]


class Frontend:
    """A frontend's socket to the front of a coordinator; it subscribes."""

    def __init__(self, context: Context, address: str) -> None:
        self._socket = context.socket(zmq.XSUB)
        self._socket.connect(address)
        self.send(b"\x01")

    def send(self, *frames: bytes) -> None:
        """One message as it is."""
        self._socket.send_multipart(frames)

    def note(self, engine: int | bytes, wave: int) -> None:
        """Its word that it has sent a request of this wave to this engine, while all pause."""
        self.send(pack((engine, wave)))

    async def read(self) -> list[Any]:
        """The next [counts, wave, running]."""
        assert await asyncio.to_thread(self._socket.poll, int(PATIENCE_S * 1000)), "nothing was published"
        return list(unpack(self._socket.recv()))

    async def reads(self, *state: Any) -> None:
        """Returns when a state has come that ends so: (wave, running), or all three."""
        while (await self.read())[-len(state) :] != list(state):
            pass


async def rules(engine: Engine, frontend: Frontend) -> None:
    """What any coordinator does with notes; it is that of two engines in wave 0, and `engine` has had READY."""
    frontend.note(1, 0)
    assert await engine.woken() == 0
    frontend.note(0, 0)
    assert await engine.woken() == 0, "told again until an engine says that it runs"
    await frontend.reads(0, False)

    engine.say(begun(1, 0))
    assert await engine.woken() == 0
    await frontend.reads(0, True)
    frontend.note(1, 0)
    assert await engine.quiet(), "who runs need not be woken"

    engine.say(complete(0))
    await frontend.reads(1, False)
    frontend.note(1, 0)
    assert await engine.woken() == 1, "the request was of a past wave"
    frontend.note(0, 1)
    assert await engine.woken() == 1
    frontend.note(0, 9)
    assert await engine.woken() == 1, "what frontends believe makes no wave"

    engine.say(begun(1, 4))
    assert await engine.woken() == 4
    await frontend.reads(4, True)
    engine.say(complete(3))
    frontend.note(0, 3)
    assert await engine.quiet(), "the end of a past wave is no news"
    engine.say(complete(4))
    await frontend.reads(5, False)

    engine.say(load(0, 1, 2, step=1))
    engine.say(load(1, 3, 4, step=1, usage=0.25))
    await frontend.reads([[1, 2, 0.5], [3, 4, 0.25]], 5, False)
