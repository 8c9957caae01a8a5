"""One keep-alive connection to the server, and one exchange on it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import cast

from fastfront.load.answer import Answer, AnswerError

#: Bytes kept of an answer that nobody reads as it comes.
MAX_KEPT = 1 << 20


class Exchange:
    """A request that was sent and what comes back. `done` is set when the answer is over, to why it failed or "".

    The body of a 200 goes to `take` (bytes, time.perf_counter), any other into `body`, up to MAX_KEPT bytes.
    """

    __slots__ = ("answer", "body", "done", "started", "take")

    def __init__(self, done: asyncio.Future[str], take: Callable[[bytes, float], None] | None = None) -> None:
        self.answer = Answer()
        self.body = b""
        self.done = done
        self.take = take
        #: Whether any byte has come.
        self.started = False

    def feed(self, data: bytes, now: float) -> None:
        """Bytes from the server; raises AnswerError."""
        self.started = True
        body = self.answer.feed(data)
        if not body:
            return
        if self.take is not None and self.answer.status == 200:
            self.take(body, now)
        elif len(self.body) < MAX_KEPT:
            self.body += body

    def end(self, why: str) -> None:
        """Wakes who waits, unless he has gone."""
        if not self.done.done():
            self.done.set_result(why)


class Connection(asyncio.Protocol):
    """Sends what `begin` is given and feeds its exchange; `open` is whether another may follow."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self.open = False
        #: Whether an exchange went before.
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have no common base
        self.open = True

    @property
    def busy(self) -> bool:
        """Whether an exchange is under way."""
        return self._exchange is not None

    def begin(self, request: bytes, exchange: Exchange) -> None:
        """Sends a request; the connection must be open and free."""
        assert self._transport is not None
        self._exchange = exchange
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        exchange = self._exchange
        if exchange is None:  # nobody asked
            self.close()
            return
        try:
            exchange.feed(data, now)
        except AnswerError as error:
            self._over(str(error))
            return
        if exchange.answer.complete:
            self._over("")

    def eof_received(self) -> None:
        """The server sends no more: an answer without a length ends here."""
        if self._exchange is not None:
            try:
                self._exchange.answer.end()
            except AnswerError as error:
                self._over(str(error))
            else:
                self._over("")
        self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._exchange is not None:
            self._over(f"connection lost: {error or 'closed'}")

    def close(self) -> None:
        """Ends the connection, whatever is still to come on it."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def _over(self, why: str) -> None:
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        self.used = True
        if why or not exchange.answer.keep_alive:
            self.close()
        exchange.end(why)
