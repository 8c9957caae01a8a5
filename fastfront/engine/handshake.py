"""The start-up handshake (wire b.2), owned by whoever starts the engines: HELLO -> where to connect -> READY."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fastfront.engine import wire
from fastfront.engine.sockets import Peer, ZmtpServer, address_of, tcp_listener
from fastfront.engine.zmtp import Message
from fastfront.errors import StartError, WireError

log = logging.getLogger(__name__)


class Handshake:
    """Tells the engines with the ranks `start` to `start + count - 1` where to connect, and waits for each to be ready.

    It goes on answering until it is closed, so that an engine that is started again joins in the same way.
    """

    def __init__(
        self, addresses: wire.Addresses, start: int, count: int, parallel_config: dict[str, Any] | None = None
    ) -> None:
        self._init = wire.encode(wire.HandshakeInit(addresses, parallel_config or {}))
        self._expected = range(start, start + count)
        self._told: set[int] = set()
        self._ready: dict[int, wire.HandshakeStatus] = {}
        self._done: asyncio.Future[None] | None = None
        self._server = ZmtpServer("ROUTER", self._on_messages)

    async def start(self, host: str, port: int = 0) -> str:
        """Listens on TCP and gives the address for the engines; StartError if it cannot."""
        self._done = asyncio.get_running_loop().create_future()
        listener = await asyncio.to_thread(tcp_listener, host, port)
        await self._server.serve(listener)
        return address_of(listener)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109
        """Returns once every engine is READY; StartError after `timeout` seconds or for an engine that does not fit."""
        if self._done is None:
            raise StartError("the handshake was not started")
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._done)
        except TimeoutError:
            raise StartError(f"no complete start within {timeout:g} s: {self.lacking()}") from None

    def lacking(self) -> str:
        """Which engines are not there yet and how far they are, for people."""
        states = [
            f"engine {rank} {'is not ready' if rank in self._told else 'has not said HELLO'}"
            for rank in self._expected
            if rank not in self._ready
        ]
        return ", ".join(states) or "all engines are ready"

    def close(self) -> None:
        """Stops listening."""
        self._server.close()
        if self._done is not None:
            self._done.cancel()

    def _on_messages(self, peer: Peer, messages: list[Message]) -> None:
        for message in messages:
            try:
                self._take(peer, message[0])
            except (WireError, StartError) as error:
                peer.close(str(error))
                if self._done is not None and not self._done.done():
                    self._done.set_exception(StartError(f"handshake: {error}"))
                else:
                    log.error("handshake: %s", error)

    def _take(self, peer: Peer, payload: bytes) -> None:
        rank = wire.engine_index(peer.identity)
        if rank is None or rank not in self._expected:
            ranks = f"{self._expected.start} to {self._expected.stop - 1}"
            raise StartError(f"a socket named {peer.identity!r} came; expected are the ranks {ranks}")
        status = wire.decode(payload, wire.HandshakeStatus)
        if status.status == wire.HELLO:
            self._told.add(rank)
            self._ready.pop(rank, None)
            peer.send((self._init,))
            log.info("engine %d is starting", rank)
        elif status.status == wire.READY and rank in self._told:
            self._ready[rank] = status
            self._check_hashes()
            log.info("engine %d is ready", rank)
            if len(self._ready) == len(self._expected) and self._done is not None and not self._done.done():
                self._done.set_result(None)
        else:
            raise StartError(f"engine {rank} said {status.status!r} out of turn")

    def _check_hashes(self) -> None:
        """Engines that work together must have been started alike."""
        hashes = {rank: status.parallel_config_hash for rank, status in self._ready.items()}
        if len(set(hashes.values()) - {None}) > 1:
            told = ", ".join(f"{rank}: {text}" for rank, text in sorted(hashes.items()))
            raise StartError(f"the engines were started with different parallel settings (hashes {told})")
