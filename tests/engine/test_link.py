"""The engine link, with engines that are libzmq's sockets in this process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from fastfront.engine import wire
from fastfront.engine.link import EngineLink
from fastfront.engine.utility import UtilityError
from fastfront.errors import (
    EngineDeadError,
    EngineError,
    EngineRequestError,
    RequestError,
    StartError,
)
from fastfront.fast import Flusher, Router
from fastfront.flow import EngineRequest, SamplingParams
from tests.engine.conftest import Run
from tests.engine.engines import FakeEngine, listeners
from tests.engine.links import bench, said

STOP, LENGTH = 0, 1
FAMILIES = pytest.mark.parametrize("family", ["ipc", "tcp"])


# --- requests and outputs ---


@FAMILIES
def test_one_request(run: Run, family: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, family=family) as b:
            caller = b.submit(priority=3, cache_salt="salt")
            (engine,) = b.engines
            seen = await engine.added()
            assert seen.request_id == caller.request_id
            assert (seen.prompt_token_ids, seen.priority, seen.cache_salt) == ([1, 2, 3], 3, "salt")
            assert b.open_requests() == [caller.request_id]
            engine.say(said(caller.request_id, "Hel"))
            engine.say(said(caller.request_id, "lo", LENGTH))
            assert await caller.done == "Hello"
            assert b.open_requests() == []
            assert b.router.dropped == 0

    run(scene())


def test_before_the_engines_are_there(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        link = EngineLink(Router(), Flusher(), vocab_size=256)
        with pytest.raises(StartError):
            await link.wait_ready(1)
        with pytest.raises(EngineDeadError, match="not all registered"):
            link.submit(
                EngineRequest(
                    request_id="x", prompt_token_ids=[1], sampling=SamplingParams(), max_tokens=1, arrival_time=0.0
                )
            )
        link.close()

    run(scene())


def test_a_bad_request_never_reaches_the_engine(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            bad: list[dict[str, Any]] = [
                {"prompt": []},
                {"prompt": [256]},
                {"sampling": SamplingParams(temperature=float("nan"))},
                {"cache_salt": "\ud800"},
            ]
            for fields in bad:
                with pytest.raises(RequestError):
                    b.submit(**fields)
            good = b.submit()
            with pytest.raises(EngineError, match="in use"):
                b.link.submit(
                    EngineRequest(
                        request_id=good.request_id,
                        prompt_token_ids=[1],
                        sampling=SamplingParams(),
                        max_tokens=1,
                        arrival_time=0.0,
                    )
                )
            assert (await b.engines[0].added()).request_id == good.request_id
            assert b.open_requests() == [good.request_id]

    run(scene())


@FAMILIES
def test_a_long_prompt(run: Run, family: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, family=family, vocab_size=1 << 20) as b:
            prompt = [n % (1 << 20) for n in range(70_000)]
            b.submit(prompt=prompt)
            assert (await b.engines[0].added()).prompt_token_ids == prompt

    run(scene())


def test_many_outputs_in_one_read(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            callers = [b.submit() for _ in range(300)]
            for _ in callers:
                await b.engines[0].added()
            for text, finish in (("a", None), ("b", None), ("c", LENGTH)):
                b.engines[0].say(*(said(caller.request_id, text, finish) for caller in callers))
            assert await asyncio.gather(*(caller.done for caller in callers)) == ["abc"] * 300

    run(scene())


def test_arrays_in_frames_are_at_hand(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            caller = b.submit()
            ids = wire.Array("int32", (1, 2), b"\x01\0\0\0\x02\0\0\0")
            frames: list[bytes] = [b""]
            logprobs = [wire.write_array(ids, frames, threshold=1)]
            got: list[Any] = []

            def on_step(step: Any) -> None:
                raw = wire.decode(step.raw, wire.EngineCoreOutput)
                assert raw.new_logprobs is not None
                got.append(wire.read_array(raw.new_logprobs[0], b.link.frames).values())
                caller.done.set_result("")

            caller.on_step = on_step  # type: ignore[method-assign]
            output = wire.EngineCoreOutput(caller.request_id, [65], new_logprobs=logprobs, finish_reason=LENGTH)
            b.engines[0].say(output, aux=frames[1:])
            await caller.done
            assert got == [[1, 2]]

    run(scene())


# --- aborts ---


def test_aborts_are_joined_and_come_before_the_next_request(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            first, second, third = (b.submit() for _ in range(3))
            b.link.abort([first.request_id])
            b.link.abort([second.request_id, "unknown", first.request_id])
            fourth = b.submit()
            b.link.abort([third.request_id])
            assert b.open_requests() == [fourth.request_id]
            (engine,) = b.engines
            for caller in (first, second, third):
                assert (await engine.added()).request_id == caller.request_id
            assert await engine.aborted() == [first.request_id, second.request_id]
            assert (await engine.added()).request_id == fourth.request_id
            assert await engine.aborted() == [third.request_id]

    run(scene())


def test_a_stop_string_aborts(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            caller = b.submit(stop="X")
            await b.engines[0].added()
            b.engines[0].say(said(caller.request_id, "abXcd"))
            assert await caller.done == "ab"
            assert caller.steps[-1].stop_reason == "X"
            assert await b.engines[0].aborted() == [caller.request_id]

    run(scene())


def test_late_outputs_are_dropped_and_counted(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            gone, kept = b.submit(), b.submit()
            b.link.abort([gone.request_id])
            b.engines[0].say(
                said(gone.request_id, "late"), said("never-heard-of", "?"), said(kept.request_id, "ok", LENGTH)
            )
            assert await kept.done == "ok"
            assert b.router.dropped == 2
            assert not gone.done.done()

    run(scene())


def test_a_request_that_the_engine_drops_without_a_word_fails(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            dropped, done = b.submit(), b.submit()
            ids = [dropped.request_id, done.request_id, "other"]
            b.engines[0].say(said(done.request_id, "ok", LENGTH), finished_requests=ids)
            assert await done.done == "ok"
            with pytest.raises(EngineRequestError):
                await dropped.done

    run(scene())


def test_one_owner_s_fault_does_not_hurt_others(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            faulty, good = b.submit(), b.submit()

            def on_step(step: Any) -> None:
                raise ZeroDivisionError

            faulty.on_step = on_step  # type: ignore[method-assign]
            event = {"type": 1, "timestamp": 0.0}
            rare = wire.EngineCoreOutput(faulty.request_id, [65], events=[event])
            b.engines[0].say(rare, said(good.request_id, "ok", LENGTH))
            assert await good.done == "ok"
            with pytest.raises(ZeroDivisionError):
                await faulty.done
            for _ in range(2):
                await b.engines[0].added()
            assert await b.engines[0].aborted() == [faulty.request_id]
            assert b.link.dead is None

    run(scene())


# --- registration ---


def test_info_joins_all_registrations(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        sockets, addresses = listeners("ipc", tmp_path)
        link = EngineLink(Router(), Flusher(), vocab_size=256, start=2, count=2)
        await link.start(*sockets)
        with FakeEngine(2, addresses) as first, FakeEngine(3, addresses) as second:
            second.register(max_model_len=500, max_num_seqs=7, supports_lora=True)
            first.register(max_model_len=1000, dp_stats_address="tcp://x:1", supports_lora=True)
            info = await link.wait_ready(20)
            assert (info.max_model_len, info.num_gpu_blocks, info.max_num_seqs) == (500, 20, 7)
            assert (info.dp_stats_address, info.supports_lora, info.vllm_version) == ("tcp://x:1", True, "0.32.0")
            assert await link.wait_ready(1) == info
        link.close()

    run(scene())


def test_missing_engines_are_named(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        sockets, addresses = listeners("ipc", tmp_path)
        link = EngineLink(Router(), Flusher(), vocab_size=256, count=3)
        await link.start(*sockets)
        with FakeEngine(1, addresses) as engine:
            engine.register()
            with pytest.raises(StartError, match=r"3 of 3 engines .*: engines 0, 1, 2"):
                await link.wait_ready(0)
            left = list(range(3))
            while len(left) == 3:
                with pytest.raises(StartError, match=r"engines .*") as caught:
                    await link.wait_ready(0.01)
                left = link._registrations.missing()
            assert left == [0, 2]
            assert "engines 0, 2" in str(caught.value)
        link.close()

    run(scene())


REQUIRED = [field.name for field in msgspec.structs.fields(wire.ReadyResponse) if field.required]


@pytest.mark.parametrize(
    ("rank", "changes"),
    [(1, {}), (0, {"max_model_len": "many"}), (0, {"max_model_len": 0}), *((0, {name: ...}) for name in REQUIRED)],
)
def test_a_wrong_registration_ends_the_start(run: Run, tmp_path: Path, rank: int, changes: dict[str, Any]) -> None:
    async def scene() -> None:
        sockets, addresses = listeners("ipc", tmp_path)
        link = EngineLink(Router(), Flusher(), vocab_size=256)
        await link.start(*sockets)
        with FakeEngine(rank, addresses) as engine:
            engine.register(**changes)
            with pytest.raises(StartError, match=f"engine {rank}"):
                await link.wait_ready(20)
        link.close()

    run(scene())


def test_an_engine_that_dies_while_starting_ends_the_start(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        sockets, addresses = listeners("ipc", tmp_path)
        link = EngineLink(Router(), Flusher(), vocab_size=256)
        await link.start(*sockets)
        with FakeEngine(0, addresses) as engine:
            engine.outputs.send(wire.ENGINE_CORE_DEAD)
            with pytest.raises(StartError, match="fatal failure"):
                await link.wait_ready(20)
        link.close()

    run(scene())


# --- death and return ---


def test_the_sentinel_is_death_until_a_new_registration(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            caller = b.submit()
            call = asyncio.ensure_future(b.link.utility("sleep"))
            await b.engines[0].added()
            await b.engines[0].called()
            b.engines[0].outputs.send(wire.ENGINE_CORE_DEAD)
            with pytest.raises(EngineDeadError, match="fatal failure"):
                await caller.done
            with pytest.raises(EngineDeadError):
                await call
            assert len(b.events) == 1
            with pytest.raises(EngineDeadError):
                b.submit()
            with pytest.raises(EngineDeadError):
                await b.link.utility("sleep")
            b.engines[0].context.destroy(linger=0)
            b.engine(0).register(max_model_len=5)
            await b.until(lambda: b.events[-1:] == ["alive"])
            assert b.link.dead is None
            assert b.link.info is not None
            assert b.link.info.max_model_len == 5
            with pytest.raises(RequestError, match="1 to 4"):
                b.submit(prompt=[1] * 5)
            again = b.submit()
            assert await b.engines[1].aborted() == [caller.request_id]
            assert (await b.engines[1].added()).request_id == again.request_id

    run(scene())


@FAMILIES
def test_a_killed_engine_is_noticed_at_once(run: Run, family: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, family=family) as b:
            caller = b.submit()
            await b.engines[0].added()
            b.engines[0].context.destroy(linger=0)
            with pytest.raises(EngineDeadError, match="connection was lost"):
                await caller.done
            assert b.link.dead is not None
            assert b.open_requests() == []

    run(scene())


def test_outputs_that_came_with_the_end_still_count(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            caller = b.submit()
            await b.engines[0].added()
            engine = b.engines[0]
            engine.outputs.setsockopt(zmq.LINGER, 5000)
            engine.say(said(caller.request_id, "the end", LENGTH))
            engine.outputs.send(wire.ENGINE_CORE_DEAD)
            engine.outputs.close()
            engine.inputs.close()
            engine.context.term()  # the loop sees both connections only after both have ended
            assert await caller.done == "the end"
            await b.until(lambda: bool(b.events))
            assert "fatal failure" in b.events[0]

    run(scene())


def test_a_lost_connection_heals(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, family="tcp") as b:
            caller = b.submit()
            await b.engines[0].added()
            peer = b.link._inputs.peer(b"\0\0")
            assert peer is not None
            peer.transport.abort()
            with pytest.raises(EngineDeadError):
                await caller.done
            await b.until(lambda: b.events[-1:] == ["alive"])
            assert await b.engines[0].aborted() == [caller.request_id]
            again = b.submit()
            assert (await b.engines[0].added()).request_id == again.request_id
            b.engines[0].say(said(caller.request_id, "late"), said(again.request_id, "x", LENGTH))
            assert await again.done == "x"

    run(scene())


def test_a_lost_output_connection_is_death_too(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, family="tcp") as b:
            caller = b.submit()
            await b.engines[0].added()
            other = b.submit()
            b.engines[0].say(said(other.request_id, "x", LENGTH))
            await other.done
            peer = b.link._engines[0].output
            assert peer is not None
            peer.transport.abort()
            with pytest.raises(EngineDeadError):
                await caller.done
            await b.until(lambda: b.events[-1:] == ["alive"])
            await b.engines[0].added()
            assert await b.engines[0].aborted() == [caller.request_id]

    run(scene())


def test_a_restarted_engine_that_takes_over_fails_what_was_open(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, reconnect_ms=-1) as b:
            caller = b.submit()
            await b.engines[0].added()
            b.engine(0).register()
            with pytest.raises(EngineDeadError):
                await caller.done
            await b.until(lambda: b.events[-1:] == ["alive"])
            assert await b.engines[1].aborted() == [caller.request_id]

    run(scene())


BROKEN = [
    b"\xc1",
    b"",
    b"garbage that is not msgpack",
    wire.encode([0]),
    wire.encode(["zero", []]),
    wire.encode([0, [["id", "not a list"]]]),
    wire.encode([0, [], None, 0.0, "not a utility output"]),
    wire.encode([0, [], None, 0.0, None, [1, 2]]),
    wire.encode([0, []]) + b"trailing",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_malformed_message_is_death(run: Run, tmp_path: Path, broken: bytes) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            caller, done = b.submit(), b.submit()
            b.engines[0].say(said(done.request_id, "ok", LENGTH))
            assert await done.done == "ok"
            b.engines[0].outputs.send(broken)
            with pytest.raises(EngineDeadError, match="cannot be handled"):
                await caller.done
            assert b.link.dead is not None

    run(scene())


def test_only_what_cannot_be_handled_is_told_to_other_frontends(run: Run, tmp_path: Path) -> None:
    async def scene(words: bytes) -> list[tuple[int, int, str]]:
        told: list[tuple[int, int, str]] = []
        async with bench(tmp_path, family="tcp") as b:
            b.link.on_broken = lambda *word: told.append(word)
            caller = b.submit()
            b.engines[0].say(said(caller.request_id, "ok", LENGTH))
            await caller.done
            b.engines[0].outputs.send(words)
            await b.until(lambda: bool(b.events))
        return told

    ((rank, times, reason),) = run(scene(b"\xc1"))
    assert (rank, times) == (0, 1) and "cannot be handled" in reason
    assert run(scene(wire.ENGINE_CORE_DEAD)) == []  # that word comes to every frontend


def test_an_engine_that_another_frontend_gives_up(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            caller = b.submit()
            await b.engines[0].added()
            b.link.give_up(0, 1, "it spoke nonsense elsewhere")
            with pytest.raises(EngineDeadError, match="engine 0 is dead: it spoke nonsense elsewhere"):
                await caller.done
            assert await b.engines[0].aborted() == [caller.request_id]  # it lives, and would go on
            b.link.give_up(7, 1, "no engine here")
            assert len(b.events) == 1
            b.engine(0).register()
            await b.until(lambda: b.events[-1:] == ["alive"])
            b.link.give_up(0, 1, "a word about the engine before")
            caller = b.submit()
            b.engines[1].say(said(caller.request_id, "ok", LENGTH))
            assert await caller.done == "ok"

    run(scene())


def test_a_word_that_comes_before_the_registration_that_it_is_about(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            b.link.give_up(0, 2, "the next one is broken")
            b.engine(0).register()
            while b.link._engines[0].times < 2:  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(0.001)
            assert b.link.dead is not None
            b.engine(0).register()
            await b.until(lambda: b.events[-1:] == ["alive"])

    run(scene())


def test_an_engine_that_was_given_up_is_not_healed_by_a_connection(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            caller = b.submit()
            b.engines[0].say(said(caller.request_id, "ok", LENGTH))
            await caller.done
            b.link.on_dead = lambda error: b.link.give_up(0, 1, "it spoke nonsense elsewhere")
            engine = b.link._engines[0]
            lost = b.link._inputs.peer(engine.identity)
            assert lost is not None
            lost.transport.abort()
            while b.link._inputs.peer(engine.identity) in (None, lost):  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(0.001)
            assert b.link.dead is not None and b.events == []
            b.engine(0).register()
            await b.until(lambda: b.events == ["alive"])

    run(scene())


def test_nonsense_on_the_output_port_hurts_nobody(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, family="tcp") as b:
            caller = b.submit()
            port = int(b.addresses[1].rsplit(":", 1)[1])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
            b.engines[0].say(said(caller.request_id, "ok", LENGTH))
            assert await caller.done == "ok"
            assert b.events == []

    run(scene())


# --- several engines ---


def test_a_named_rank_gets_the_request(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, ranks=[2, 3, 4]) as b:
            for rank in (4, 2, 4):
                caller = b.submit(data_parallel_rank=rank)
                seen = await b.engines[rank - 2].added()
                assert (seen.request_id, seen.data_parallel_rank) == (caller.request_id, rank)
                b.engines[rank - 2].say(said(caller.request_id, f"from {rank}", LENGTH))
                assert await caller.done == f"from {rank}"
            with pytest.raises(RequestError, match="2 to 4"):
                b.submit(data_parallel_rank=0)

    run(scene())


def test_load_and_ties(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, ranks=[0, 1, 2]) as b:
            callers = [b.submit() for _ in range(6)]
            places = {rank: [(await b.engines[rank].added()).request_id for _ in range(2)] for rank in range(3)}
            assert sorted(id_ for ids in places.values() for id_ in ids) == sorted(c.request_id for c in callers)
            stats = {"num_running_reqs": 2, "num_waiting_reqs": 40, "kv_cache_usage": 0.9, "unknown": [1]}
            one = next(c for c in callers if c.request_id in places[1])
            b.engines[1].say(said(one.request_id, "x", LENGTH), scheduler_stats=stats)
            await one.done
            assert b.link.stats()[1].num_waiting_reqs == 40
            for _ in range(4):  # engine 1 has the fewest open here and says that it is full
                b.submit()
            assert [len(b.link._outstanding.of(rank)) for rank in range(3)] == [4, 1, 4]

    run(scene())


def test_a_coordinator_s_counts_decide_too(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, ranks=[1, 2]) as b:
            b.link.take_counts([(0, 0, 0.0), (3, 5, 0.9), (0, 0, 0.0), (9, 9, 0.9)])
            for _ in range(4):
                b.submit()
            assert [len(b.link._outstanding.of(rank)) for rank in (1, 2)] == [0, 4]
            b.link.take_counts([])

    run(scene())


def test_one_dead_engine_of_several(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, ranks=[0, 1]) as b:
            there, here = b.submit(data_parallel_rank=0), b.submit(data_parallel_rank=1)
            b.engines[0].context.destroy(linger=0)
            with pytest.raises(EngineDeadError, match="engine 0 is dead"):
                await there.done
            b.engines[1].say(said(here.request_id, "ok", LENGTH))
            assert await here.done == "ok"
            with pytest.raises(EngineDeadError):
                b.submit(data_parallel_rank=1)
            b.engine(0).register()
            await b.until(lambda: b.events[-1:] == ["alive"])
            b.submit(data_parallel_rank=1)
            assert (await b.engines[1].added()).request_id == here.request_id
            await b.engines[1].added()

    run(scene())


def test_an_unknown_output_connection_that_dies_makes_the_living_show_themselves(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, ranks=[0, 1], family="tcp") as b:
            b.engines[0].outputs.send(wire.ENGINE_CORE_DEAD)  # its first word: nobody knows whose it is
            await b.until(lambda: b.events[-1:] == ["alive"])
            caller = b.submit(data_parallel_rank=1)
            b.engines[1].say(said(caller.request_id, "ok", LENGTH))
            assert await caller.done == "ok"

    run(scene())


class Recorder:
    """A coordinator that only writes down."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int, int]] = []

    def before_add(self, engine_index: int) -> int:
        self.log.append(("add", engine_index, 7))
        return 7

    def on_wave_complete(self, engine_index: int, wave: int) -> None:
        self.log.append(("complete", engine_index, wave))

    def on_start_wave(self, engine_index: int, wave: int) -> None:
        self.log.append(("start", engine_index, wave))


def test_waves(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        waves = Recorder()
        async with bench(tmp_path, ranks=[0, 1], waves=waves) as b:
            caller = b.submit(data_parallel_rank=1)
            assert (await b.engines[1].added()).current_wave == 7
            b.engines[1].say(said(caller.request_id, "x", LENGTH), wave_complete=7)
            b.engines[1].say(start_wave=8)
            await caller.done
            async with asyncio.timeout(30):
                # the second message may come after the first was taken
                while len(waves.log) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            last = b.submit(data_parallel_rank=1)
            b.engines[1].say(said(last.request_id, "x", LENGTH))
            await last.done
            assert waves.log == [("add", 1, 7), ("complete", 1, 7), ("start", 1, 8), ("add", 1, 7)]

    run(scene())


# --- utility calls ---


def test_utility_answers_out_of_order(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, ranks=[0, 1]) as b:
            first = asyncio.ensure_future(b.link.utility("is_sleeping"))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(b.link.utility("collective_rpc", ["m", None, [1], {"a": 2.5}]))
            calls = [[await engine.called() for _ in range(2)] for engine in b.engines]
            assert [[call[2] for call in mine] for mine in calls] == [["is_sleeping", "collective_rpc"]] * 2
            assert calls[0][1][3] == ["m", None, [1], {"a": 2.5}]
            ids = [call[1] for mine in calls for call in mine]
            assert len(set(ids)) == 4
            for engine, mine in reversed(list(zip(b.engines, calls, strict=True))):
                engine.answer(-1, ["RECONFIGURE_FINISHED", 0])  # a notice, not an answer
                engine.answer(mine[1][1], [engine.rank])
                engine.answer(mine[0][1], bool(engine.rank))
            assert await second == [[0], [1]]
            assert await first == [False, True]

    run(scene())


def test_utility_failure_timeout_and_bad_arguments(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path, ranks=[0, 1]) as b:
            call = asyncio.ensure_future(b.link.utility("nope"))
            ids = [(await engine.called())[1] for engine in b.engines]
            b.engines[1].answer(ids[1], failure="Call to nope method failed: no")
            with pytest.raises(UtilityError, match="nope method failed") as caught:
                await call
            assert (caught.value.method, caught.value.engine) == ("nope", 1)
            b.engines[0].answer(ids[0], "late")

            started = time.monotonic()
            slow = asyncio.ensure_future(b.link.utility("slow", timeout=0.05))
            ids = [(await engine.called())[1] for engine in b.engines]
            b.engines[0].answer(ids[0])
            with pytest.raises(EngineError, match=r"within 0\.05 s"):
                await slow
            assert time.monotonic() - started < 20
            b.engines[1].answer(ids[1])

            for args in ([1 << 70], [object()], ["\ud800"]):
                with pytest.raises(RequestError):
                    await b.link.utility("x", args)

            left = asyncio.ensure_future(b.link.utility("left"))
            await asyncio.sleep(0)
            left.cancel()
            with pytest.raises(asyncio.CancelledError):
                await left
            assert len(b.link._utilities) == 0
            assert b.link.dead is None

    run(scene())


def test_a_typed_utility_result_is_refused(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with bench(tmp_path) as b:
            call = asyncio.ensure_future(b.link.utility("odd"))
            (_, call_id, _, _) = await b.engines[0].called()
            b.engines[0].say(utility_output=wire.UtilityOutput(call_id, None, [["builtins", "set"], [1]]))
            with pytest.raises(UtilityError, match="odd"):
                await call

    run(scene())
