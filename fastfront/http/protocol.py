"""One connection: reads requests, serves them in their order, keeps its times, notices when the client leaves.

Whatever happens (bytes, an answer that is complete, a drained transport) ends in `_pump`: it takes requests from the
parser as far as there is room for them and starts the next one when none is being served. Reading pauses while the
room is used up. The handler of a client that leaves is cancelled by `_leave`.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import struct
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, cast

from fastfront.errors import RequestError, RequestTimeoutError
from fastfront.http.parser import RequestParser
from fastfront.http.reply import Exchange
from fastfront.http.strict import Stage

if TYPE_CHECKING:
    from fastfront.fast import Outbox
    from fastfront.http.server import Server

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
#: Requests answered in one go before others get their turn of the loop.
BURST = 32


class State(Enum):
    """`OPEN` takes requests; `LAST` serves those that it has; then the connection lingers, or is closed."""

    OPEN = 0
    LAST = 1
    LINGERING = 2
    CLOSED = 3


# Looking one up in its enum takes ten times as long.
_OPEN, _LAST, _LINGERING, _CLOSED = State
_NOTHING, _HEAD, _BODY = Stage


class Connection(asyncio.Protocol):
    """A client's connection."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._poll = server.poll
        settings = server.shared.settings
        self._settings = settings
        #: What a stage may take; from the end of a request to the next one's first byte the connection is idle.
        self._times = (settings.keep_alive_timeout, settings.header_timeout, settings.body_timeout)
        self._keeps_alive = settings.keep_alive_timeout > 0
        self._parser = RequestParser(settings, server.shared.heads)
        self._state = State.OPEN
        self._current: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._queued_bytes = 0
        self._pumping = False
        self._refused = False
        self._read_paused = False
        self._write_paused = False
        self._written = (0, 0.0)  # bytes pending, and until when they must have become fewer
        self._waits_for = (-1, -1)  # what `deadline` is about
        self._socket_fd = -1
        self.fd = -1
        self.client = ""
        #: When `expire` must be called (s, the loop's time).
        self.deadline = math.inf

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's have no common base
        if self._server.closed:
            self.transport.abort()
            return
        self._socket_fd = transport.get_extra_info("socket").fileno()
        # The outbox may write by itself only while nothing is pending here: be told exactly when that is so.
        if transport.get_extra_info("sslcontext") is None:
            self.fd = self._socket_fd
            self.transport.set_write_buffer_limits(high=0, low=0)
        else:  # TLS transports pause at the limit, others above it
            self.transport.set_write_buffer_limits(high=1, low=0)
        self.client = self._parser.client = _name(transport.get_extra_info("peername"))
        self._server.connections.add(self)
        self.deadline = self._server.loop.time() + self._settings.header_timeout

    def data_received(self, data: bytes) -> None:
        """Bytes from the client; after a refusal they are thrown away."""
        if self._state is not _OPEN:
            return
        parser = self._parser
        parser.feed(data)
        if self._current is None and not self._queue and not self._write_paused:
            exchange = self._next()
            if exchange is not None and not parser.pending():
                self._serve_alone(exchange)
                if self._current is None:
                    self._poll.answered(self._socket_fd)
                return
            if exchange is not None:
                self._wait(exchange)
        self._pump()

    def eof_received(self) -> None:
        """The client has left, or sends no more, which counts as leaving; the transport closes by itself."""
        self._leave()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._leave()
        self.fd = self._socket_fd = -1
        self._server.forget(self)

    def pause_writing(self) -> None:
        """Bytes are pending in the transport."""
        self._write_paused = True
        self._written = (self.transport.get_write_buffer_size(), self._write_deadline())

    def resume_writing(self) -> None:
        """Nothing is pending in the transport."""
        self._write_paused = False
        if self._current is not None:
            self._current.drained()
        self._pump()

    # --- reply.Channel

    def last(self) -> bool:
        """Whether the connection closes after this answer on its own account."""
        if self._keeps_alive and not self._server.draining:
            return False
        return not self._queue and self._parser.stage is _NOTHING

    def answered(self, keep_alive: bool) -> None:
        """The answer to the current request is complete."""
        self._current = None
        if not keep_alive or self.last():
            self._end()
        elif self._queue or self._parser.pending():
            self._pump()
        elif not self._pumping:
            self._settle()

    def flush_later(self, outbox: Outbox) -> None:
        """Sees to it that what is in the outbox goes out soon, even if nobody flushes it."""
        self._server.flush_later(outbox)

    def drop(self, reset: bool = False) -> None:
        """Cancels what runs and closes at once."""
        if self._state is _CLOSED and self._socket_fd < 0:
            return
        self._leave()
        if reset and self._socket_fd >= 0:
            _reset_on_close(self._socket_fd)
        self.transport.abort()

    # --- the server

    @property
    def busy(self) -> bool:
        """Whether a request is being received, waits or is served."""
        if self._state is _CLOSED:
            return self._write_paused
        return self._current is not None or bool(self._queue) or self._parser.stage is not _NOTHING

    @property
    def serving(self) -> bool:
        """Whether a request is being served."""
        return self._current is not None

    @property
    def stuck(self) -> bool:
        """Whether `check` has something to look at."""
        return self._read_paused or self._write_paused

    def check(self, now: float) -> None:
        """Notices what no event tells: a client that left while reading is paused, one that reads nothing."""
        if self._write_paused and (self._current is None or not self._current.streaming()):
            pending = self.transport.get_write_buffer_size()
            if pending < self._written[0]:
                self._written = (pending, self._write_deadline())
            elif now >= self._written[1]:
                self.drop()
                return
        if self._read_paused and _hung_up(self._socket_fd):
            self.drop()

    def expire(self) -> None:
        """The deadline has passed."""
        self.deadline = math.inf
        if self._state is not _OPEN:
            self.drop()
        elif self._parser.stage is _NOTHING:
            self._leave()
            self.transport.close()
        else:
            what = "headers" if self._parser.stage is _HEAD else "body"
            self._refuse(RequestTimeoutError(f"The request's {what} did not arrive in time"))
            self._pump()

    def drain(self) -> None:
        """Closes now if nothing is under way, else after the last answer."""
        if not self.busy and self._state is _OPEN:
            self._leave()
            self.transport.close()

    # --- inside

    def _serve_alone(self, exchange: Exchange) -> None:
        """What `_pump` does, where nothing else waits or is served: mostly."""
        self._pumping = True
        self._current = exchange
        try:
            self._server.begin(exchange)
        finally:
            self._pumping = False
        if self._state is _OPEN or self._state is _LAST:
            self._settle()

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        try:
            self._serve_queue()
        finally:
            self._pumping = False
        if self._state is _OPEN or self._state is _LAST:
            self._settle()

    def _serve_queue(self) -> None:
        started = 0
        while True:
            if self._parser.pending():
                self._take()
            if self._current is not None or not self._queue or self._write_paused or self._state is _CLOSED:
                return
            if started == BURST:
                self._server.loop.call_soon(self._pump)
                return
            started += 1
            self._current = exchange = self._queue.popleft()
            if exchange.request is not None:
                self._queued_bytes -= len(exchange.request.body)
            self._server.begin(exchange)

    def _room(self) -> bool:
        return len(self._queue) < self._settings.max_pipelined and self._queued_bytes <= self._settings.max_body_size

    def _take(self) -> None:
        while self._state is _OPEN and self._room():
            exchange = self._next()
            if exchange is None:
                return
            self._wait(exchange)
            if not self._parser.pending():
                return

    def _next(self) -> Exchange | None:
        """The next whole request; a refusal waits in the queue already."""
        try:
            incoming = self._parser.next()
        except RequestError as error:
            self._refuse(error)
            return None
        if incoming is None:
            return None
        if not incoming.keep_alive:
            self._state = _LAST
        return Exchange(self, self._server.shared, incoming)

    def _wait(self, exchange: Exchange) -> None:
        self._queue.append(exchange)
        if exchange.request is not None:
            self._queued_bytes += len(exchange.request.body)

    def _refuse(self, error: RequestError) -> None:
        self._queue.append(Exchange(self, self._server.shared, None, error))
        self._refused = True
        self._state = _LAST

    def _settle(self) -> None:
        """Sets what follows from where we are: reading or not, the deadline, whether to ask for the body."""
        parser = self._parser
        stage = parser.stage
        serving = self._current is not None or bool(self._queue) or self._write_paused
        if self._read_paused or (serving and parser.pending()):
            self._pause_or_resume()
        if self._state is _LAST:
            self.deadline = math.inf
            return
        if stage is _BODY and parser.awaits_continue:
            if serving:
                self.deadline = math.inf
                return
            parser.awaits_continue = False
            self.transport.write(CONTINUE)
        if stage is _NOTHING and serving:
            self.deadline = math.inf
            self._waits_for = (-1, parser.begun)
        elif self._waits_for != (stage, parser.begun):
            self._waits_for = (stage, parser.begun)
            self.deadline = self._server.loop.time() + self._times[stage]

    def _pause_or_resume(self) -> None:
        full = self._state is _OPEN and self._parser.pending() and not self._room()
        if full and not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()
        elif self._read_paused and not full:
            self._read_paused = False
            self.transport.resume_reading()

    def _end(self) -> None:
        """The last answer is written: closes, but not so that unread bytes would reset it on its way."""
        unread = self._refused or self._parser.pending()
        if not unread or self.transport.is_closing() or not self.transport.can_write_eof():
            self._leave()
            self.transport.close()
            return
        self._state = _LINGERING
        self._queue.clear()
        self.deadline = self._server.loop.time() + self._settings.linger_timeout
        self.transport.write_eof()
        if self._read_paused:
            self._read_paused = False
            self.transport.resume_reading()

    def _leave(self) -> None:
        """Nobody is there to answer any more."""
        self._state = _CLOSED
        self.deadline = math.inf
        current, self._current = self._current, None
        if current is not None:
            current.abandon()
        for exchange in self._queue:
            exchange.abandon()
        self._queue.clear()

    def _write_deadline(self) -> float:
        return self._server.loop.time() + self._settings.write_timeout


def _name(peer: object) -> str:
    """`host:port`, or nothing for a unix socket."""
    if not isinstance(peer, tuple):
        return ""
    return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"


def _reset_on_close(fd: int) -> None:
    sock = socket.socket(fileno=fd)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        sock.detach()


def _hung_up(fd: int) -> bool:
    """Whether the peer has closed, even though bytes before that are unread."""
    poller = select.poll()
    poller.register(fd, getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR)
    return bool(poller.poll(0))
