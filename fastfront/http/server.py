"""Serves a router on any number of listeners, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fastfront.errors import StartError
from fastfront.fast import Flusher, Outbox
from fastfront.flow import Work
from fastfront.http.auth import Keys
from fastfront.http.busy_poll import BusyPoll
from fastfront.http.cors import Cors
from fastfront.http.listener import Listener
from fastfront.http.protocol import Connection
from fastfront.http.reply import Exchange, RenderError, Shared
from fastfront.http.router import Router
from fastfront.http.settings import Settings

logger = logging.getLogger("fastfront.http")

#: How often deadlines are looked at, at most and at least (s).
TICK_S = (0.5, 0.01)
#: The head of a stream waits so long (s), or twice as long, for the first event.
HEAD_WAIT_S = 0.01
#: How long after the last connection went the server rests (s): by then the loop has freed what that one had.
REST_S = 0.002
#: How long cancelled handlers get to end at a stop (s).
CANCEL_S = 5.0


class Server:
    """The HTTP server. `render_error` makes the answer of an error; the server itself knows no body format."""

    def __init__(
        self,
        router: Router,
        flusher: Flusher,
        render_error: RenderError,
        settings: Settings | None = None,
        *,
        keys: Keys | None = None,
        cors: Cors | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        settings = settings or Settings()
        observe = settings.observe
        self.shared = Shared(flusher, render_error, settings, cors)
        if observe is not None:
            self.shared.observe = lambda request, status: observe(request.method, router.pattern(request.path), status)
        self.connections: set[Connection] = set()
        self.draining = False
        self.closed = False
        self.loop: asyncio.AbstractEventLoop
        self.poll: BusyPoll
        self._router = router
        self._keys = keys
        self._tls = tls
        self._listeners: list[Listener] = []
        self._servers: list[asyncio.AbstractServer] = []
        self._active: set[asyncio.Task[None]] = set()
        self._heads_new: list[Outbox] = []  # outboxes that began with a head, since the last look
        self._heads_old: list[Outbox] = []  # and since the one before
        self._rest_planned = False
        self._quiet: asyncio.Event
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def active(self) -> int:
        """How many requests are being served."""
        return sum(connection.serving for connection in self.connections)

    async def start(self, listeners: Sequence[Listener]) -> None:
        """Begins to listen and to serve; a connection before this is refused. Raises StartError."""
        self.loop = asyncio.get_running_loop()
        self.poll = BusyPoll(self.loop)
        self._quiet = asyncio.Event()
        self._listeners += listeners
        for listener in listeners:
            try:
                listener.sock.listen(self.shared.settings.backlog)  # uvloop does not tell when its own call fails
                self._servers.append(await self._listen(listener))
            except OSError as error:
                raise StartError(
                    f"cannot listen on {listener.sock.getsockname()}: {error.strerror or error}"
                ) from error
        self._tick()

    async def stop(self, drain: float = 0.0) -> None:
        """Stops listening, lets requests finish for `drain` seconds, cancels the rest, closes everything."""
        self.draining = True
        for server in self._servers:
            server.close()
        for listener in self._listeners:
            listener.remove()
        for connection in list(self.connections):
            connection.drain()
        if drain > 0 and self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), drain)
        self.closed = True
        tasks = set(self._active)
        for connection in list(self.connections):
            connection.drop()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_S)
        if self.connections:
            await self._quiet.wait()
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    def begin(self, exchange: Exchange) -> None:
        """Answers at once, or starts the handler's task, or follows what goes on without one."""
        request = exchange.request
        if request is None:
            exchange.fail(exchange.error or RuntimeError("no request and no error"))
            return
        cors = self.shared.cors
        try:
            if cors is not None and request.method == "OPTIONS":
                preflight = cors.preflight(request)
                if preflight is not None:
                    status, body, headers = preflight
                    exchange.preflight(status, body, headers)
                    return
            if self._keys is not None:
                self._keys.check(request)
            work = self._router.find(request.method, request.path)(request, exchange)
        except Exception as error:
            exchange.fail(error)
            return
        if work is not None and isinstance(work, Coroutine):
            exchange.serving = task = self.loop.create_task(self._handle(work, exchange))
            self._active.add(task)
            # a task cancelled before its first step runs no `finally`
            task.add_done_callback(partial(self._handled, work))
        elif work is not None or not exchange.done:
            exchange.follow(work)

    def flush_later(self, outbox: Outbox) -> None:
        """Flushes the outbox soon. A stream's head can wait for its first event, which saves a system call."""
        if not self._heads_new and not self._heads_old:
            self.loop.call_later(HEAD_WAIT_S, self._flush_heads)
        self._heads_new.append(outbox)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self.connections.discard(connection)
        if self.connections:
            return
        if self.draining:
            self._quiet.set()
        elif not self._rest_planned:
            self._rest_planned = True
            self.loop.call_later(REST_S, self._rest)

    def _handled(self, work: Work, task: asyncio.Task[None]) -> None:
        self._active.discard(task)
        work.close()

    async def _handle(self, work: Work, exchange: Exchange) -> None:
        try:
            running = await work
        except Exception as error:
            exchange.serving = None
            exchange.fail(error)
        except asyncio.CancelledError:
            exchange.serving = None
            if not exchange.gone:
                exchange.fail(RuntimeError("the handler was cancelled"))
            raise
        else:
            exchange.follow(running)

    async def _listen(self, listener: Listener) -> asyncio.AbstractServer:
        options: dict[str, Any] = {"sock": listener.sock, "backlog": self.shared.settings.backlog, "ssl": self._tls}
        if self._tls is not None:
            options["ssl_handshake_timeout"] = self.shared.settings.header_timeout
        if listener.unix:
            if sys.version_info >= (3, 13):
                options["cleanup_socket"] = False  # an inherited one is not ours to remove
            return await self.loop.create_unix_server(self._connection, **options)
        return await self.loop.create_server(self._connection, **options)

    def _connection(self) -> Connection:
        return Connection(self)

    def _flush_heads(self) -> None:
        due, self._heads_old, self._heads_new = self._heads_old, self._heads_new, []
        if self._heads_old:
            self.loop.call_later(HEAD_WAIT_S, self._flush_heads)
        for outbox in due:
            try:
                outbox.flush()
            except Exception:  # one connection's fault must not reach the others
                logger.exception("an outbox's owner failed")

    def _rest(self) -> None:
        self._rest_planned = False
        idle = self.shared.settings.idle
        if idle is not None and not any(one.busy or one.stuck for one in self.connections):
            try:
                idle()
            except Exception:
                logger.exception("what is done at rest failed")

    def _tick(self) -> None:
        self._rest()
        now = self.loop.time()
        for connection in list(self.connections):
            if connection.stuck:
                connection.check(now)
            if connection.deadline <= now:
                connection.expire()
        settings = self.shared.settings
        times = (settings.header_timeout, settings.body_timeout, settings.write_timeout, settings.linger_timeout)
        shortest = min(*times, settings.keep_alive_timeout or TICK_S[0])
        self._ticking = self.loop.call_later(max(TICK_S[1], min(TICK_S[0], shortest / 4)), self._tick)
