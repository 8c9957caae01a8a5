"""The start-up handshake, step by step and with the reference mock engine behind it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import zmq

from fastfront.engine import wire
from fastfront.engine.handshake import Handshake
from fastfront.engine.link import EngineLink
from fastfront.engine.sockets import address_of, unix_listener
from fastfront.errors import StartError
from fastfront.fast import Flusher, Router
from fastfront.flow import EngineRequest, SamplingParams
from tests.conftest import Start
from tests.engine.conftest import Run
from tests.engine.engines import PATIENCE_MS
from tests.engine.links import Caller

ADDRESSES = wire.Addresses(["ipc:///i"], ["ipc:///o"], "tcp://c:1", "tcp://c:2")


class Joiner:
    """An engine's side of the handshake."""

    def __init__(self, address: str, rank: int) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.IDENTITY, wire.identity(rank))
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(address)

    def say(self, status: str, parallel_config_hash: str | None = None) -> None:
        self.socket.send(wire.encode(wire.HandshakeStatus(status, True, False, parallel_config_hash)))

    async def told(self) -> wire.HandshakeInit:
        assert await asyncio.to_thread(self.socket.poll, PATIENCE_MS)
        return wire.decode(self.socket.recv(), wire.HandshakeInit)

    def close(self) -> None:
        self.context.destroy(linger=0)


def test_two_engines(run: Run) -> None:
    async def scene() -> None:
        handshake = Handshake(ADDRESSES, 0, 2, {"data_parallel_size": 2})
        address = await handshake.start("127.0.0.1")
        assert handshake.lacking() == "engine 0 has not said HELLO, engine 1 has not said HELLO"
        engines = [Joiner(address, rank) for rank in range(2)]
        for engine in reversed(engines):
            engine.say("HELLO")
            init = await engine.told()
            assert init.addresses == ADDRESSES
            assert init.parallel_config == {"data_parallel_size": 2}
        engines[1].say("READY", "same")
        with pytest.raises(StartError, match="engine 0 is not ready"):
            await handshake.wait(0.01)
        engines[0].say("READY", "same")
        await handshake.wait(20)
        # A restarted engine goes through the same door.
        engines[0].say("HELLO")
        await engines[0].told()
        engines[0].say("READY", "same")
        for engine in engines:
            engine.close()
        handshake.close()

    run(scene())


@pytest.mark.parametrize(
    ("rank", "words", "message"),
    [
        (5, ["HELLO"], "ranks 0 to 1"),
        (0, ["READY"], "out of turn"),
        (0, ["HELLO", "GOODBYE"], "GOODBYE"),
    ],
)
def test_a_wrong_word_ends_the_start(run: Run, rank: int, words: list[str], message: str) -> None:
    async def scene() -> None:
        handshake = Handshake(ADDRESSES, 0, 2)
        engine = Joiner(await handshake.start("127.0.0.1"), rank)
        for word in words:
            engine.say(word)
        with pytest.raises(StartError, match=message):
            await handshake.wait(20)
        engine.close()
        handshake.close()

    run(scene())


def test_a_malformed_word_ends_the_start(run: Run) -> None:
    async def scene() -> None:
        handshake = Handshake(ADDRESSES, 0, 1)
        engine = Joiner(await handshake.start("127.0.0.1"), 0)
        engine.socket.send(b"\xc1")
        with pytest.raises(StartError, match="malformed HandshakeStatus"):
            await handshake.wait(20)
        engine.close()
        handshake.close()

    run(scene())


def test_engines_of_different_settings_do_not_work_together(run: Run) -> None:
    async def scene() -> None:
        handshake = Handshake(ADDRESSES, 0, 2)
        address = await handshake.start("127.0.0.1")
        engines = [Joiner(address, rank) for rank in range(2)]
        for rank, engine in enumerate(engines):
            engine.say("HELLO")
            await engine.told()
            engine.say("READY", f"hash{rank}")
        with pytest.raises(StartError, match="hash0, 1: hash1"):
            await handshake.wait(20)
        for engine in engines:
            engine.close()
        handshake.close()

    run(scene())


def test_a_port_in_use(run: Run) -> None:
    async def scene() -> None:
        first = Handshake(ADDRESSES, 0, 1)
        port = int((await first.start("127.0.0.1")).rsplit(":", 1)[1])
        with pytest.raises(StartError, match=str(port)):
            await Handshake(ADDRESSES, 0, 1).start("127.0.0.1", port)
        first.close()

    run(scene())


def test_reference_mock_engines_join_and_answer(run: Run, shared: Path, tmp_path: Path, start: Start) -> None:
    """Two of them, from HELLO to the last token; then one is killed."""

    async def scene() -> None:
        inputs, outputs = unix_listener(str(tmp_path / "i")), unix_listener(str(tmp_path / "o"))
        router = Router()
        link = EngineLink(router, Flusher(), vocab_size=32000, count=2)
        await link.start(inputs, outputs)
        handshake = Handshake(wire.Addresses([address_of(inputs)], [address_of(outputs)]), 0, 2)
        address = await handshake.start("127.0.0.1")
        engines = [
            start([sys.executable, shared / "tools/mock_engine.py", "--handshake", address, "--index", str(rank)])
            for rank in range(2)
        ]
        await handshake.wait(50)
        info = await link.wait_ready(20)
        assert (info.max_model_len, info.num_gpu_blocks) == (40960, 200_000)

        callers, sampling = [], SamplingParams()
        for number in range(20):
            caller = Caller()
            request = EngineRequest(
                request_id=router.open(caller.stream, "cmpl"),
                prompt_token_ids=list(range(100)),
                sampling=sampling,
                max_tokens=1 + number,
                arrival_time=0.0,
            )
            link.submit(request)
            callers.append(caller)
        await asyncio.gather(*(caller.done for caller in callers))
        assert [caller.stream.tokens for caller in callers] == list(range(1, 21))
        assert await link.utility("get_supported_tasks", timeout=20) == [["generate"]] * 2

        endless = Caller()
        link.submit(
            EngineRequest(
                request_id=router.open(endless.stream, "cmpl"),
                prompt_token_ids=[1],
                sampling=sampling,
                max_tokens=1 << 30,
                arrival_time=0.0,
                data_parallel_rank=1,
            )
        )
        engines[1].process.kill()
        with pytest.raises(Exception, match="engine 1 is dead"):
            await endless.done
        link.close()
        handshake.close()

    run(scene())
