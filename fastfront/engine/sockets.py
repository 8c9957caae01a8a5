"""Bound ZMTP sockets on plain asyncio transports: `ZmtpServer` is the socket, a `Peer` one connection of it.

Unlike libzmq's they tell when a peer is gone, and hand on all messages of one read together. Nothing is dropped to a
slow peer (vLLM sets its high-water marks to none): what it does not take waits in the connection's buffer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable, Sequence
from typing import cast

from fastfront.engine.zmtp import GREETING, MAX_MESSAGE, Codec, Message, ZmtpError, encode_message
from fastfront.errors import StartError

log = logging.getLogger(__name__)

#: So many takeovers of one identity within so many seconds are a quarrel of two living peers.
QUARREL_TAKEOVERS, QUARREL_SECONDS = 3, 30.0
#: Bytes of one read: behind more of them new requests would wait.
READ_SIZE = 1 << 16
#: Messages of one turn of the loop that wait for each other: to wake a peer costs more than to write.
JOINED = 16


class Peer(asyncio.BufferedProtocol):
    """One connection of a ZmtpServer."""

    transport: asyncio.Transport

    def __init__(self, server: ZmtpServer) -> None:
        self.identity = b""
        self.ready = False
        self.owner: object = None  # whose it is, as far as the server's user has found out
        self.reason = ""  # why it was closed from here
        self._server = server
        self._codec = Codec(server.kind, server.max_message)
        self._deadline: asyncio.TimerHandle | None = None
        self._unsent: list[bytes] = []
        self._unsent_messages = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # So that a machine that vanished is noticed; Nagle's algorithm is already off.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.transport.write(GREETING)
        seconds = self._server.handshake_seconds
        late = f"no READY within {seconds:g} s"
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.close, late)
        self._server._connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer

    def buffer_updated(self, size: int) -> None:
        if self.reason:
            return
        codec, at = self._codec, 0
        data = codec.join(self._server.buffer[:size])
        if self._server.take is not None and codec.between_messages:
            at = self._server.take(self, data)
            if self.reason:
                return  # it was cut off for what it sent
        try:
            messages = codec.read(data, at)
        except ZmtpError as error:
            # What came before it in this read is lost with it: the connection is not to be trusted.
            self._reply()
            self.reason = str(error)
            self.transport.close()
            return
        self._reply()
        if codec.identity is not None and not self.ready:
            self._become_ready(codec.identity)
        if messages and not self.reason:
            self._server.on_messages(self, messages)

    def connection_lost(self, error: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        reason = self.reason or (str(error) if error else "the peer closed the connection")
        self._server._lost(self, reason)

    def send(self, frames: Sequence[bytes]) -> None:
        """Sends a message, with others of this turn of the loop; what the peer does not take at once waits."""
        self._unsent += encode_message(frames)
        self._unsent_messages += 1
        if self._unsent_messages == 1:
            asyncio.get_running_loop().call_soon(self.flush)
        elif self._unsent_messages >= JOINED:
            self.flush()

    def flush(self) -> None:
        """Writes what waits for the turn to end."""
        pieces, self._unsent = self._unsent, []
        self._unsent_messages = 0
        if pieces and not self.transport.is_closing():
            self.transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def close(self, reason: str) -> None:
        """Ends the connection at once; what waits to be written is lost."""
        if not self.reason:
            self.reason = reason
            self.transport.abort()

    def _reply(self) -> None:
        for reply in self._codec.replies:
            self.transport.write(reply)
        self._codec.replies.clear()

    def _become_ready(self, identity: bytes) -> None:
        self.ready = True
        if self._deadline is not None:
            self._deadline.cancel()
        self.identity = identity
        self._server._ready(self)


class ZmtpServer:
    """A bound ROUTER or PULL socket.

    `on_messages(peer, messages)` gets all messages that one read completed (`peer.identity` says whose they are),
    `on_peer(peer)` those who have connected and said who they are, `on_lost(peer, reason)` those of them who are gone.
    Of two peers with one identity the older is closed, and told of as lost, before the newer is told of; if they take
    it from each other again and again, the one that has it keeps it.
    `take(peer, data)` may take messages that stand at the beginning of `data`, as they came; it tells how far it did.
    `max_message` (bytes, all frames) closes the connection of a peer that sends more, `handshake_seconds` that of one
    which does not greet.
    """

    def __init__(
        self,
        kind: str,
        on_messages: Callable[[Peer, list[Message]], None],
        on_peer: Callable[[Peer], None] | None = None,
        on_lost: Callable[[Peer, str], None] | None = None,
        max_message: int = MAX_MESSAGE,
        handshake_seconds: float = 30.0,
        take: Callable[[Peer, bytes], int] | None = None,
    ) -> None:
        self.kind = kind
        self.take = take
        self.buffer = memoryview(bytearray(READ_SIZE))  # what was just read, by whichever peer
        self.on_messages = on_messages
        self.max_message = max_message
        self.handshake_seconds = handshake_seconds
        self._on_peer = on_peer
        self._on_lost = on_lost
        self._servers: list[asyncio.Server] = []
        self._connections: set[Peer] = set()
        self._named: dict[bytes, Peer] = {}
        self._numbers = itertools.count(1)
        self._takeovers: dict[bytes, list[float]] = {}
        self._quarrels: set[bytes] = set()  # that were told of
        self._closed = False

    async def serve(self, listener: socket.socket) -> None:
        """Takes over a bound stream socket (unix or TCP, listening or not) and accepts peers on it."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        serve = loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
        self._servers.append(await serve(lambda: Peer(self), sock=listener, backlog=128))

    def peer(self, identity: bytes) -> Peer | None:
        """The connected peer of that name (ROUTER)."""
        return self._named.get(identity)

    def send(self, identity: bytes, frames: Sequence[bytes]) -> bool:
        """Sends a message to the peer of that name; False if there is none."""
        peer = self._named.get(identity)
        if peer is None:
            return False
        peer.send(frames)
        return True

    def close(self) -> None:
        """Stops listening and ends every connection once all has gone out; nobody is told of anything more."""
        self._closed = True
        for server in self._servers:
            server.close()
        for peer in list(self._connections):
            peer.reason = peer.reason or "this side closes"
            peer.flush()
            peer.transport.close()
        self._named.clear()

    def _connected(self, peer: Peer) -> None:
        self._connections.add(peer)

    def _ready(self, peer: Peer) -> None:
        if self.kind == "ROUTER":
            # libzmq, too, makes up a name of a zero byte and a number for a peer that gives none.
            peer.identity = peer.identity or b"\0" + next(self._numbers).to_bytes(4, "big")
            older = self._named.get(peer.identity)
            if older is not None:
                if self._quarrel(peer.identity):
                    self._connections.discard(peer)  # nobody is told that it is lost: the other is not
                    peer.close("another peer with its identity is connected")
                    return
                older.close("another peer took over its identity")
                self._lost(older, older.reason)
            self._named[peer.identity] = peer
        if self._on_peer is not None:
            self._on_peer(peer)

    def _quarrel(self, identity: bytes) -> bool:
        """Whether two peers take an identity from each other again and again, as libzmq's do, which come back at once.

        An engine that was started again takes over from one that is gone; of two that both live the one that is
        connected stays.
        """
        now = asyncio.get_running_loop().time()
        recent = [then for then in self._takeovers.get(identity, ()) if now - then < QUARREL_SECONDS]
        if len(recent) < QUARREL_TAKEOVERS:
            self._takeovers[identity] = [*recent, now]
            return False
        if identity not in self._quarrels:
            self._quarrels.add(identity)
            log.error("%s socket: two peers call themselves %r: the later is refused", self.kind, identity)
        return True

    def _lost(self, peer: Peer, reason: str) -> None:
        """The first call for a peer counts; it was closed from here or its connection is gone."""
        if peer not in self._connections:
            return
        self._connections.discard(peer)
        if self._named.get(peer.identity) is peer:
            del self._named[peer.identity]
        if self._closed:
            return
        if not peer.ready:
            log.warning("%s socket: a connection ended before it was ready: %s", self.kind, reason)
        elif self._on_lost is not None:
            self._on_lost(peer, reason)


def tcp_listener(host: str, port: int = 0) -> socket.socket:
    """A bound and listening TCP socket; port 0 takes a free one. StartError if that cannot be."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise StartError(f"cannot listen on {host}:{port}: {error}") from error


def unix_listener(path: str) -> socket.socket:
    """A bound and listening unix socket; StartError if that cannot be."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise StartError(f"cannot listen on {path}: {error}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    """A listener's address as ZMQ writes it: tcp://HOST:PORT or ipc://PATH."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"ipc://{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"tcp://{host}:{name[1]}"
