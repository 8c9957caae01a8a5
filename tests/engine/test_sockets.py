"""The bound sockets against libzmq's own, over ipc and TCP, on descriptors that others have bound."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from fastfront.engine.sockets import QUARREL_TAKEOVERS, Peer, ZmtpServer, address_of, tcp_listener, unix_listener
from fastfront.engine.zmtp import GREETING, Message, command
from fastfront.errors import StartError
from tests.engine.conftest import Run
from tests.engine.engines import FakeEngine, adopted, listeners

FAMILIES = pytest.mark.parametrize("family", ["ipc", "tcp"])


class Sink:
    """Keeps what a server tells and lets a test wait for it."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.server = ZmtpServer(kind, self._messages, self._peer, self._lost, **options)
        self.batches: list[list[Message]] = []
        self.peers: list[Peer] = []
        self.lost: list[tuple[bytes, str]] = []
        self._changed = asyncio.Event()

    def _messages(self, peer: Peer, messages: list[Message]) -> None:
        self.batches.append(messages)
        self._changed.set()

    def _peer(self, peer: Peer) -> None:
        self.peers.append(peer)
        self._changed.set()

    def _lost(self, peer: Peer, reason: str) -> None:
        self.lost.append((peer.identity, reason))
        self._changed.set()

    @property
    def messages(self) -> list[Message]:
        return [message for batch in self.batches for message in batch]

    async def until(self, there: Callable[[], bool]) -> None:
        while not there():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)


@FAMILIES
def test_both_ways(run: Run, family: str, tmp_path: Path) -> None:
    async def scene() -> None:
        (raw_in, raw_out), addresses = listeners(family, tmp_path)
        router, pull = Sink("ROUTER"), Sink("PULL")
        with FakeEngine(258, addresses) as engine:
            engine.inputs.send(b"before anybody accepts")
            await router.server.serve(adopted(raw_in))
            await pull.server.serve(adopted(raw_out))
            await router.until(lambda: bool(router.messages))
            assert router.messages == [[b"before anybody accepts"]]
            assert router.peers[0].identity == b"\x02\x01"
            assert router.server.send(b"\x02\x01", (b"\x00", b"payload", b"", b"x" * 300))
            assert await engine.recv() == [b"\x00", b"payload", b"", b"x" * 300]
            assert not router.server.send(b"\x03\x01", (b"nobody",))
            engine.outputs.send_multipart([b"a", b"", b"b" * 100_000])
            await pull.until(lambda: bool(pull.messages))
            assert pull.messages == [[b"a", b"", b"b" * 100_000]]
        await router.until(lambda: bool(router.lost))
        await pull.until(lambda: bool(pull.lost))
        assert router.lost[0][0] == b"\x02\x01"
        router.server.close()
        pull.server.close()

    run(scene())


@FAMILIES
def test_big_messages(run: Run, family: str, tmp_path: Path) -> None:
    async def scene() -> None:
        (raw_in, raw_out), addresses = listeners(family, tmp_path)
        router, pull = Sink("ROUTER"), Sink("PULL")
        await router.server.serve(raw_in)
        await pull.server.serve(raw_out)
        big = bytes(range(256)) * (40 << 10)  # 10 MiB
        with FakeEngine(0, addresses) as engine:
            await router.until(lambda: bool(router.peers))
            for _ in range(3):  # the engine does not read yet: they wait in the buffer
                router.server.send(b"\0\0", (b"\x00", big))
            assert [await engine.recv() for _ in range(3)] == [[b"\x00", big]] * 3
            engine.outputs.send_multipart([b"head", big, big])
            await pull.until(lambda: bool(pull.messages))
            assert pull.messages == [[b"head", big, big]]
        router.server.close()
        pull.server.close()

    run(scene())


def test_many_small_messages_come_in_batches(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        (raw_in, raw_out), addresses = listeners("ipc", tmp_path)
        pull = Sink("PULL")
        with FakeEngine(0, addresses) as engine, FakeEngine(1, addresses) as other:
            for number in range(20_000):
                engine.outputs.send(b"%d" % number)
                other.outputs.send(b"-")
            await pull.server.serve(raw_out)
            await pull.until(lambda: len(pull.messages) == 40_000)
            numbers = [int(frame) for (frame,) in pull.messages if frame != b"-"]
            assert numbers == list(range(20_000))
            assert len(pull.batches) < 4_000
        raw_in.close()
        pull.server.close()

    run(scene())


def test_libzmq_heartbeats_are_answered(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        (raw_in, raw_out), addresses = listeners("tcp", tmp_path)
        raw_out.close()
        router = Sink("ROUTER")
        await router.server.serve(raw_in)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        for option, value in ((zmq.LINGER, 0), (zmq.HEARTBEAT_IVL, 20), (zmq.HEARTBEAT_TIMEOUT, 2000)):
            dealer.setsockopt(option, value)
        dealer.connect(addresses[0])
        await router.until(lambda: bool(router.peers))
        codec = router.peers[0]._codec
        pings = 0
        read_command = codec._read_command

        def counted(body: bytes) -> None:
            nonlocal pings
            pings += 1
            read_command(body)
            router._changed.set()

        codec._read_command = counted  # type: ignore[method-assign]
        await router.until(lambda: pings >= 5)
        dealer.send(b"still here")
        await router.until(lambda: bool(router.messages))
        assert router.lost == []
        assert router.peers[0].identity[0] == 0
        assert len(router.peers[0].identity) == 5
        context.destroy(linger=0)
        router.server.close()

    run(scene())


def test_a_later_peer_takes_over_the_identity(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        (raw_in, raw_out), addresses = listeners("ipc", tmp_path)
        raw_out.close()
        router = Sink("ROUTER")
        await router.server.serve(raw_in)
        with FakeEngine(1, addresses, reconnect_ms=-1):
            await router.until(lambda: len(router.peers) == 1)
            with FakeEngine(1, addresses) as newer:
                await router.until(lambda: len(router.peers) == 2)
                assert router.lost[0] == (b"\x01\x00", "another peer took over its identity")
                router.server.send(b"\x01\x00", (b"for the newer",))
                assert await newer.recv() == [b"for the newer"]
                assert router.server.peer(b"\x01\x00") is router.peers[-1]
        router.server.close()

    run(scene())


def test_two_living_peers_do_not_take_an_identity_from_each_other_for_ever(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        (raw_in, raw_out), addresses = listeners("ipc", tmp_path)
        raw_out.close()
        router = Sink("ROUTER")
        await router.server.serve(raw_in)
        with FakeEngine(1, addresses), FakeEngine(1, addresses):  # both come back whenever they are closed
            await router.until(lambda: len(router.peers) == QUARREL_TAKEOVERS + 1)
            kept = router.peers[-1]
            async with asyncio.timeout(30):
                while not router.server._quarrels:  # noqa: ASYNC110  (nobody is told of a refusal)
                    await asyncio.sleep(0.01)
            assert router.server.peer(b"\x01\x00") is kept
            assert len(router.lost) == QUARREL_TAKEOVERS
        router.server.close()

    run(scene())


async def refused(address: tuple[str, int], data: bytes) -> bytes:
    """What a peer gets that sends `data` and waits for the end."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


def test_nonsense_closes_only_its_own_connection(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        (raw_in, raw_out), addresses = listeners("tcp", tmp_path)
        raw_out.close()
        address = raw_in.getsockname()
        router = Sink("ROUTER")
        await router.server.serve(raw_in)
        with FakeEngine(0, addresses) as engine:
            engine.inputs.send(b"1")
            await router.until(lambda: len(router.messages) == 1)
            assert (await refused(address, b"GET /health HTTP/1.1\r\n\r\n")).startswith(GREETING)
            pusher = command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x03PUB")
            assert (await refused(address, GREETING + pusher)).endswith(command(b"ERROR", b"\x13Invalid socket type"))
            engine.inputs.send(b"2")
            await router.until(lambda: len(router.messages) == 2)
            dealer = command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x06DEALER")
            await refused(address, GREETING + dealer + b"\x02" + struct.pack(">Q", 1 << 40))
            engine.inputs.send(b"3")
            await router.until(lambda: len(router.messages) == 3)
        router.server.close()

    run(scene())
    assert "not ZMTP" in caplog.text
    assert "a PUB socket connected to a ROUTER" in caplog.text
    assert "a message of 1099511627776 bytes" in caplog.text


def test_a_peer_that_never_greets_is_dropped(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        listener = tcp_listener("127.0.0.1")
        address = listener.getsockname()
        server = ZmtpServer("PULL", lambda peer, messages: None, handshake_seconds=0.01)
        await server.serve(listener)
        assert await refused(address, GREETING[:20]) == GREETING
        server.close()

    run(scene())
    assert "no READY within 0.01 s" in caplog.text


def test_what_was_sent_goes_out_before_the_close(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        (raw_in, raw_out), addresses = listeners("ipc", tmp_path)
        raw_out.close()
        router = Sink("ROUTER")
        await router.server.serve(raw_in)
        with FakeEngine(0, addresses) as engine:
            await router.until(lambda: bool(router.peers))
            router.server.send(b"\0\0", (b"x" * (4 << 20),))
            router.server.send(b"\0\0", (b"last",))
            router.server.close()
            assert [len((await engine.recv())[0]) for _ in range(2)] == [4 << 20, 4]

    run(scene())


def test_listeners_say_where_they_are(tmp_path: Path) -> None:
    with unix_listener(str(tmp_path / "s")) as listener:
        assert address_of(listener) == f"ipc://{tmp_path}/s"
        with pytest.raises(StartError, match="cannot listen on"):
            unix_listener(str(tmp_path / "s"))
    with tcp_listener("127.0.0.1") as listener:
        port = listener.getsockname()[1]
        assert address_of(listener) == f"tcp://127.0.0.1:{port}"
        with pytest.raises(StartError, match=str(port)):
            tcp_listener("127.0.0.1", port)
    if socket.has_ipv6:
        with tcp_listener("::1") as listener:
            assert address_of(listener).startswith("tcp://[::1]:")
