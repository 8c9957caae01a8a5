"""Our own coordinator between engines, the frontend of its process, and those of other processes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfront.engine.coordinator import InProcessCoordinator
from fastfront.engine.coordinator_client import CoordinatorClient
from fastfront.engine.coordinator_wire import Counts
from fastfront.engine.link import Waves
from fastfront.errors import StartError
from tests.conftest import Started
from tests.engine.conftest import Run
from tests.engine.coordination import Context, Engine, Frontend, begun, complete, load, rules, until
from tests.engine.front import Front, pack, unpack


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
def test_ready_when_all_have_subscribed(run: Run, context: Context, host: str | None) -> None:
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


def test_waves(run: Run, context: Context, shared: Path) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(2)
        await ours.start()
        engine = Engine(context, ours.addresses, subscribe=True)
        other = Engine(context, ours.addresses, subscribe=True)
        assert await engine.read() == await other.read() == [b"READY"]

        assert ours.before_add(1) == 0
        golden = (shared / "wire/golden/49_coord_start_dp_wave.hex").read_text().split()
        kind, body = await engine.read()
        assert kind == bytes.fromhex(golden[0]) and unpack(body) == [0, None]
        assert len(body) == len(bytes.fromhex(golden[1]))
        assert ours.before_add(0) == 0
        assert unpack((await engine.read())[1]) == [0, None], "told again until an engine says that it runs"

        engine.say(begun(0, 0))
        assert unpack((await engine.read())[1]) == [0, None]
        await until(lambda: ours.running)
        assert ours.before_add(1) == 0
        assert await engine.quiet(), "who runs need not be woken"

        engine.say(bytes.fromhex((shared / "wire/golden/50_coord_wave_complete.hex").read_text().split()[0]))
        await until(lambda: ours.wave == 1)
        engine.say(complete(0))
        assert ours.before_add(1) == 1 and not ours.running
        assert unpack((await engine.read())[1]) == [1, None]

        engine.say(begun(1, 4))
        assert unpack((await engine.read())[1]) == [4, None], "an engine that is ahead takes all with it"
        engine.say(begun(0, 3))
        engine.say(begun(0, 4))
        assert await engine.quiet(), "what is past or known is no news"
        assert (ours.wave, ours.running) == (4, True)
        ours.close()

    run(work())


def test_the_link_may_tell_of_waves_too(run: Run, context: Context) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(1)
        await ours.start()
        engine = Engine(context, ours.addresses, subscribe=True)
        await engine.read()
        ours.on_start_wave(0, 0)
        assert ours.running and unpack((await engine.read())[1]) == [0, None]
        ours.on_wave_complete(0, 0)
        assert (ours.wave, ours.running) == (1, False)
        ours.close()

    run(work())


def test_loads_are_of_one_step(run: Run, context: Context) -> None:
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
def test_a_message_that_cannot_be_read_does_no_harm(run: Run, context: Context, bad: Any) -> None:
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
        assert unpack((await engine.read())[1]) == [0, None]
        engine.say(complete(0))
        await until(lambda: ours.wave == 1)
        ours.close()

    run(work())


def test_where_it_cannot_listen(run: Run) -> None:
    with pytest.raises(StartError, match=r"192\.0\.2\.1"):
        run(InProcessCoordinator(2, "192.0.2.1").start())


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


# --- the frontends of other processes ------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Where a front may be."""
    return f"ipc://{tmp_path}/front"


async def joined(context: Context, ours: InProcessCoordinator) -> tuple[Engine, Engine]:
    """Two engines that have had READY."""
    one, two = (Engine(context, ours.addresses, subscribe=True) for _ in range(2))
    assert await one.read() == await two.read() == [b"READY"]
    return one, two


def test_notes(run: Run, context: Context, place: str) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(2, front=place)
        await ours.start()
        engine, _ = await joined(context, ours)
        await rules(engine, Frontend(context, place))
        # One that is left out would sleep on if the request that should wake it is aborted before it is seen.
        assert set(engine.left_out) == {None}
        ours.close()

    run(work())


def test_a_note_with_an_identity(run: Run, context: Context, place: str) -> None:
    """As vLLM's Python client sends it."""

    async def work() -> None:
        ours = InProcessCoordinator(300, front=place)
        await ours.start()
        engine = Engine(context, ours.addresses, subscribe=False)
        # With 300 engines there is no READY that would tell that this subscription has come.
        engine.subscribe()
        await until(lambda: ours._subscribed == 1)
        frontend = Frontend(context, place)
        frontend.note(b"\x02\x01", 0)
        assert await engine.woken() == 0
        ours.close()

    run(work())


def test_who_comes_late_learns_what_holds(run: Run, context: Context, place: str) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(2, front=place)
        await ours.start()
        engine, _ = await joined(context, ours)
        engine.say(load(1, 3, 4))
        ours.on_start_wave(0, 4)
        await Frontend(context, place).reads([[0, 0, 0.0], [3, 4, 0.5]], 4, True)
        seen: list[list[Counts]] = []
        client = CoordinatorClient(place, seen.append)
        await client.start()
        await until(lambda: bool(seen))
        assert (seen, client.wave, client.running) == ([[(0, 0, 0.0), (3, 4, 0.5)]], 4, True)
        client.close()
        ours.close()

    run(work())


def test_two_clients_and_our_own_frontend(run: Run, context: Context, place: str) -> None:
    async def work() -> None:
        seen: dict[str, list[list[Counts]]] = {"own": [], "one": [], "two": []}
        ours = InProcessCoordinator(2, on_counts=seen["own"].append, front=place)
        await ours.start()
        engine, _ = await joined(context, ours)
        one, two = (CoordinatorClient(place, seen[name].append) for name in ("one", "two"))
        for client in (one, two):
            await client.start()
        await until(lambda: bool(seen["one"] and seen["two"]))

        assert one.before_add(1) == 0 and one.running
        assert await engine.woken() == 0
        await until(lambda: not one.running)
        assert two.before_add(0) == 0
        assert await engine.woken() == 0, "no engine has said that it runs"

        for number, name in enumerate(("link", "engine")):
            if name == "engine":
                engine.say(begun(0, number))
            else:
                ours.on_start_wave(0, number)
            assert await engine.woken() == number
            await until(lambda: one.running and two.running)
            assert one.before_add(0) == two.before_add(1) == ours.before_add(1) == number
            assert await engine.quiet(), "all know that the engines run"
            if name == "engine":
                engine.say(complete(number))
            else:
                ours.on_wave_complete(0, number)
            await until(lambda number=number: (one.wave, one.running, two.wave) == (number + 1, False, number + 1))  # type: ignore[misc]

        for counts in seen.values():
            counts.clear()
        engine.say(load(1, 3, 4))
        await until(lambda: all(seen.values()))
        assert all(counts == [[(0, 0, 0.0), (3, 4, 0.5)]] for counts in seen.values())

        one.close()
        assert two.before_add(1) == 2
        assert await engine.woken() == 2, "who goes takes nobody along"
        two.close()
        ours.close()

    run(work())


GARBAGE = [
    (b"\xc1",), (b"",), (b"READY",), (b"\x01topic",), (b"\x91" * 5000,), (pack([0, 0]), pack([0, 0])),
    *((pack(body),) for body in (7, [0], [0, "1"], [-1, 0], [2, 0], [b"\0", 0], [0, 0, 0], ["SCALE_ELASTIC_EP", 3])),
]  # fmt: skip


def test_what_a_frontend_sends_is_never_fatal(
    run: Run, context: Context, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(2, front=place)
        await ours.start()
        engine, _ = await joined(context, ours)
        frontend = Frontend(context, place)
        for frames in GARBAGE:
            frontend.send(*frames)
        frontend.note(1, 0)
        assert await engine.woken() == 0, "the first that could be read"
        ours.close()

    with caplog.at_level(logging.WARNING):
        run(work())
    assert len(caplog.records) == len(GARBAGE)


def test_what_cannot_be_read_may_have_been_the_end_of_a_wave(run: Run, context: Context, place: str) -> None:
    async def work() -> None:
        ours = InProcessCoordinator(2, front=place)
        await ours.start()
        ours.on_start_wave(0, 3)
        frontend = Frontend(context, place)
        await frontend.reads(3, True)
        engine, _ = await joined(context, ours)
        engine.say(b"\xc1")
        await frontend.reads(None, 3, False)
        ours.close()

    run(work())


def test_dense_engines_have_no_waves(run: Run, context: Context, place: str) -> None:
    """A real one logs an error for each START_DP_WAVE; of it only the loads are wanted."""

    async def work() -> None:
        seen: list[list[Counts]] = []
        ours = InProcessCoordinator(2, on_counts=seen.append, front=place, lockstep=False)
        await ours.start()
        engine, _ = await joined(context, ours)
        frontend = Frontend(context, place)
        assert await frontend.read() == [[[0, 0, 0.0], [0, 0, 0.0]], 0, True]
        for note in ((1, 0), (1, 7), (0, -1)):
            frontend.note(*note)
        engine.say(b"\xc1")
        engine.say(begun(1, 4))
        engine.say(complete(4))
        ours.on_start_wave(0, 2)
        ours.on_wave_complete(0, 2)
        for number in range(2):
            engine.say(load(0, number, 2))
            engine.say(load(1, 3, number))
            await frontend.reads([[number, 2, 0.5], [3, number, 0.5]], 0, True)
        assert seen[-1] == [(1, 2, 0.5), (3, 1, 0.5)]
        assert ours.before_add(1) == 0
        assert await engine.quiet(), "nobody is woken"
        ours.close()

    run(work())


@pytest.mark.parametrize("moe", [True, False], ids=["moe", "dense"])
def test_mock_engines_with_two_frontends(run: Run, start: Callable[..., Started], place: str, moe: bool) -> None:
    """Requests of both, together and in turns; in waves the other rank must be woken each time."""

    async def work() -> None:
        seen: list[list[Counts]] = []
        ours = InProcessCoordinator(2, front=place, lockstep=moe)
        await ours.start()
        client = CoordinatorClient(place, seen.append)
        await client.start()
        await until(lambda: bool(seen))
        with Front(clients=2, coordinator=ours.addresses) as front:
            flags = ["--handshake", front.address, "--data-parallel-size", "2", "--step-ms", "1", *["--moe"] * moe]
            engine = start([sys.executable, "-m", "fastfront.cli.mock_engine", *flags])
            await asyncio.to_thread(front.join, 2)
            for number in range(6):
                begin = ours.wave
                who: list[tuple[int, Waves]]
                who = [(0, ours), (1, client)] if number < 2 else [(number % 2, (ours, client)[number % 2])]
                for index, waves in who:
                    wave = waves.before_add(number % 2)
                    front.add(f"{number}.{index}", rank=number % 2, max_tokens=20, wave=wave, client=index)
                for index, _ in who:
                    got = await asyncio.to_thread(front.drain, f"{number}.{index}", client=index)
                    assert len(got[f"{number}.{index}"]) == 20
                if moe:
                    await until(lambda begin=begin: client.wave == ours.wave > begin and not client.running)  # type: ignore[misc]
            await until(lambda: seen[-1] == [(0, 0, 0.0), (0, 0, 0.0)])
            assert any(count[1] for counts in seen for count in counts)
            assert (ours.wave > 0) == moe and "cannot read" not in engine.output()
        client.close()
        ours.close()

    run(work())


def test_close_leaves_what_is_not_its_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", str(tmp_path))

    async def work() -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "input0").touch()
        before = set(os.listdir("/proc/self/fd"))
        seen: list[list[Counts]] = []
        ours = InProcessCoordinator(2, on_counts=seen.append, front=f"ipc://{folder}/front")
        await ours.start()
        client = CoordinatorClient(f"ipc://{folder}/front")
        await client.start()
        client.before_add(1)
        await until(lambda: not client.running)
        client.before_add(0)
        ours._take_report([pack(load(0, 1, 1))])
        opened = set(os.listdir("/proc/self/fd")) - before
        ours.close()
        client.close()
        loop = asyncio.get_running_loop()
        # asyncio's own loop tells whether there was one.
        assert not any(loop.remove_reader(int(fd)) for fd in opened), "a reader is left"
        assert sorted(os.listdir(folder)) == ["front", "input0"]
        assert os.listdir(tmp_path) == [folder.name]
        # What it had planned does not come any more, and to close again does nothing.
        await asyncio.sleep(0.15)
        assert not seen
        ours.close()

    run(work())


def test_where_there_can_be_no_front(run: Run, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="nowhere"):
        run(InProcessCoordinator(2, front=f"ipc://{tmp_path}/nowhere/front").start())
