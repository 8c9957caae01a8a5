"""Waves and loads: our coordinator between a frontend and engines, and us as a client of vLLM's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
import zmq

from fastfront.engine.coordinator import CoordinatorClient, Counts, InProcessCoordinator
from fastfront.errors import StartError
from tests.conftest import Started
from tests.engine.front import PATIENCE_S, Front, pack, unpack

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on both kinds of loop."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def go(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(work, 60))

    return go


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """Sockets of one test."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


async def until(true: Callable[[], bool]) -> None:
    """Returns when `true()`."""
    while not true():  # noqa: ASYNC110 - what is waited for happens in other threads and processes
        await asyncio.sleep(0.005)


def load(engine: int, waiting: int, running: int, *, step: int = 0, wave: int = 0, usage: float = 0.5) -> list[Any]:
    """A report of an engine's load, with all keys that matter."""
    stats = {"num_running_reqs": running, "num_waiting_reqs": waiting, "kv_cache_usage": usage}
    return [engine, [], {**stats, "step_counter": step, "current_wave": wave, "more": None}, 1.0]


class Engine:
    """An engine's two sockets to a coordinator."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], addresses: tuple[str, str], *, subscribe: bool) -> None:
        self._reads = context.socket(zmq.XSUB)
        self._reads.connect(addresses[0])
        self._writes = context.socket(zmq.PUSH)
        self._writes.connect(addresses[1])
        if subscribe:
            self.subscribe()

    def subscribe(self) -> None:
        self._reads.send(b"\x01")

    async def read(self) -> list[bytes]:
        """The next thing published."""
        assert await asyncio.to_thread(self._reads.poll, int(PATIENCE_S * 1000)), "nothing was published"
        return self._reads.recv_multipart()

    async def quiet(self) -> bool:
        return not await asyncio.to_thread(self._reads.poll, 150)

    def say(self, fields: Any) -> None:
        self._writes.send(fields if isinstance(fields, bytes) else pack(fields))


def complete(wave: int) -> list[Any]:
    """Rank 0's word that a wave is over."""
    return [0, [], None, 1.0, None, None, wave]


def begun(engine: int, wave: int) -> list[Any]:
    """An engine's word that a wave has begun."""
    return [engine, [], None, 1.0, None, None, None, wave, None]


# --- our own -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
def test_ready_when_all_have_subscribed(run: Run, context: Any, host: str | None) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(2, host)
        await ours.start()
        assert all(a.startswith("ipc:///" if host is None else "tcp://127.0.0.1:") for a in ours.addresses)
        first = Engine(context, ours.addresses, subscribe=True)
        second = Engine(context, ours.addresses, subscribe=False)
        assert await first.quiet()
        second.subscribe()
        assert await first.read() == await second.read() == [b"READY"]
        late = Engine(context, ours.addresses, subscribe=True)
        assert await late.read() == [b"READY"]
        ours.close()
        left = [Path(address.removeprefix("ipc://")) for address in ours.addresses]
        assert not any(path.exists() for path in left)

    run(work())


def test_waves(run: Run, context: Any, shared: Path) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(2)
        await ours.start()
        engine = Engine(context, ours.addresses, subscribe=True)
        other = Engine(context, ours.addresses, subscribe=True)
        assert await engine.read() == await other.read() == [b"READY"]

        assert ours.before_add(1) == 0
        golden = (shared / "wire/golden/49_coord_start_dp_wave.hex").read_text().split()
        kind, body = await engine.read()
        assert kind == bytes.fromhex(golden[0]) and unpack(body) == [0, 1]
        assert len(body) == len(bytes.fromhex(golden[1]))
        assert ours.before_add(0) == 0
        assert unpack((await engine.read())[1]) == [0, 0], "told again until an engine says that it runs"

        engine.say(begun(0, 0))
        assert unpack((await engine.read())[1]) == [0, 0]
        await until(lambda: ours.running)
        assert ours.before_add(1) == 0
        assert await engine.quiet(), "who runs need not be woken"

        engine.say(bytes.fromhex((shared / "wire/golden/50_coord_wave_complete.hex").read_text().split()[0]))
        await until(lambda: ours.wave == 1)
        engine.say(complete(0))
        assert ours.before_add(1) == 1 and not ours.running
        assert unpack((await engine.read())[1]) == [1, 1]

        engine.say(begun(1, 4))
        assert unpack((await engine.read())[1]) == [4, 1], "an engine that is ahead takes all with it"
        engine.say(begun(0, 3))
        engine.say(begun(0, 4))
        assert await engine.quiet(), "what is past or known is no news"
        assert (ours.wave, ours.running) == (4, True)
        ours.close()

    run(work())


def test_the_link_may_tell_of_waves_too(run: Run, context: Any) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(1)
        await ours.start()
        engine = Engine(context, ours.addresses, subscribe=True)
        await engine.read()
        ours.on_start_wave(0, 0)
        assert ours.running and unpack((await engine.read())[1]) == [0, 0]
        ours.on_wave_complete(0, 0)
        assert (ours.wave, ours.running) == (1, False)
        ours.close()

    run(work())


def test_loads_are_of_one_step(run: Run, context: Any) -> None:
    async def work() -> None:
        seen: list[list[Counts]] = []
        ours = InProcessCoordinator(2, on_counts=seen.append)
        await ours.start()
        engine = Engine(context, ours.addresses, subscribe=False)
        engine.say(load(0, 1, 2, step=1))
        engine.say(load(1, 3, 4, step=1, usage=0.25))
        engine.say(load(0, 5, 6, step=2))
        await until(lambda: len(seen) == 2)
        assert seen == [[(1, 2, 0.5), (3, 4, 0.25)], [(5, 6, 0.5), (3, 4, 0.25)]]
        engine.say(load(0, 0, 0, step=1, wave=1))
        await until(lambda: len(seen) == 3)
        assert seen[-1][0] == (0, 0, 0.5)
        ours.close()

    run(work())


@pytest.mark.parametrize("bad", [b"\xc1", [7, [], None, 1.0], ["x"], [0, [], {"num_running_reqs": "many"}, 1.0]])
def test_a_message_that_cannot_be_read_does_no_harm(run: Run, context: Any, bad: Any) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(1)
        await ours.start()
        engine = Engine(context, ours.addresses, subscribe=True)
        await engine.read()
        engine.say(begun(0, 0))
        await engine.read()
        engine.say(bad)
        await until(lambda: not ours.running)
        assert ours.before_add(0) == 0
        assert unpack((await engine.read())[1]) == [0, 0]
        engine.say(complete(0))
        await until(lambda: ours.wave == 1)
        ours.close()

    run(work())


def test_where_it_cannot_listen(run: Run) -> None:
    with pytest.raises(StartError, match=r"192\.0\.2\.1"):
        run(InProcessCoordinator(2, "192.0.2.1").start())
    with pytest.raises(StartError, match="nonsense"):
        run(CoordinatorClient("nonsense").start())


def test_mock_engines_run_through_waves(run: Run, start: Callable[..., Started]) -> None:
    """Two ranks that step together: without START_DP_WAVE the second would never join, and nothing would come."""

    async def work() -> None:
        seen: list[list[Counts]] = []
        ours = InProcessCoordinator(2, on_counts=seen.append)
        await ours.start()
        with Front(coordinator=ours.addresses) as front:
            flags = ["--handshake", front.address, "--data-parallel-size", "2", "--moe", "--step-ms", "1"]
            start([sys.executable, "-m", "fastfront.cli.mock_engine", *flags])
            await asyncio.to_thread(front.join, 2)
            for number in range(4):
                begin = ours.wave
                for name, rank in (("a", number % 2), ("b", 1 - number % 2), ("c", 0)):
                    front.add(f"{name}{number}", rank=rank, max_tokens=20, wave=ours.before_add(rank))
                got = await asyncio.to_thread(front.drain, *(f"{name}{number}" for name in "abc"))
                assert {len(outs) for outs in got.values()} == {20}
                await until(lambda begin=begin: ours.wave > begin and not ours.running)  # type: ignore[misc]
            # One that believes in a past wave: its engine asks for the next itself.
            begin = ours.wave
            front.add("stale", rank=1, max_tokens=5, wave=begin - 2)
            await asyncio.to_thread(front.drain, "stale")
            await until(lambda: ours.wave > begin)
            await until(lambda: seen[-1] == [(0, 0, 0.0), (0, 0, 0.0)])
            assert any(sum(count[1] for count in counts) > 0 for counts in seen)
            front.add("alone", rank=0, max_tokens=5, wave=ours.wave)
            assert await asyncio.to_thread(front.quiet), "nobody woke the other rank"
        ours.close()

    run(work())


# --- a client of vLLM's --------------------------------------------------------------------------------------------


class Published:
    """The front of a coordinator, played by hand."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._socket = context.socket(zmq.XPUB)
        self.address = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"

    async def read(self) -> bytes:
        assert await asyncio.to_thread(self._socket.poll, int(PATIENCE_S * 1000)), "nothing came"
        return self._socket.recv()

    async def quiet(self) -> bool:
        return not await asyncio.to_thread(self._socket.poll, 150)

    def publish(self, body: Any) -> None:
        self._socket.send(body if isinstance(body, bytes) else pack(body))


def test_client(run: Run, context: Any) -> None:
    async def work() -> None:
        seen: list[list[Counts]] = []
        theirs = Published(context)
        ours = CoordinatorClient(theirs.address, on_counts=seen.append)
        await ours.start()
        assert await theirs.read() == b"\x01"
        assert ours.before_add(0) == 0
        assert await theirs.read() == b"\x92\x00\x00"
        assert ours.before_add(1) == 0
        assert await theirs.quiet(), "told once"
        theirs.publish([[[1, 2, 0.5], [0, 0, 0.0]], 7, False])
        await until(lambda: bool(seen))
        assert seen == [[(1, 2, 0.5), (0, 0, 0.0)]]
        assert ours.before_add(1) == 7
        assert await theirs.read() == b"\x92\x01\x07"
        theirs.publish(b"\xc1")
        theirs.publish([None, 8, True])
        await until(lambda: ours.wave == 8)
        ours.on_wave_complete(0, 8)
        ours.on_start_wave(0, 9)
        assert ours.before_add(0) == 8 and len(seen) == 1
        assert await theirs.quiet()
        ours.close()
        assert await theirs.read() == b"\x00"

    run(work())


def test_client_of_the_real_coordinator(
    run: Run, start: Callable[..., Started], peers: Path, free_port: Callable[[], int]
) -> None:
    """vLLM's own coordinator between our client and mock engines that step in waves."""
    front_address, output, publish = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
    code = (
        "import sys; from vllm.v1.engine.coordinator import DPCoordinatorProc as P; P.run_coordinator(2, *sys.argv[1:])"
    )
    start([peers / "vllm-cpu/bin/python", "-c", code, front_address, output, publish])

    async def work() -> None:
        seen: list[list[Counts]] = []
        ours = CoordinatorClient(front_address, on_counts=seen.append)
        await ours.start()
        with Front(coordinator=(publish, output)) as front:
            flags = ["--handshake", front.address, "--data-parallel-size", "2", "--moe", "--step-ms", "1"]
            engine = start([sys.executable, "-m", "fastfront.cli.mock_engine", *flags])
            for _ in range(2):
                await asyncio.to_thread(front.greet)
            await asyncio.to_thread(engine.wait_for, lambda: bool(front.handshake.poll(0)), "READY")
            await asyncio.to_thread(front.settle, 2)
            for number in range(3):
                begin = ours.wave
                for name, rank in (("a", number % 2), ("b", 1)):
                    front.add(f"{name}{number}", rank=rank, max_tokens=300, wave=ours.before_add(rank))
                got = await asyncio.to_thread(front.drain, f"a{number}", f"b{number}")
                assert {len(outs) for outs in got.values()} == {300}
                await until(lambda begin=begin: ours.wave > begin and not ours.running)  # type: ignore[misc]
            assert any(counts[1][1] for counts in seen)
        ours.close()

    run(work())
