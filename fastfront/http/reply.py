"""One request and its answer: the `flow.Reply` that a handler gets, and the owner of its outbox."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from fastfront.errors import FastfrontError, RequestError
from fastfront.fast import Flusher, HeadReader, Outbox
from fastfront.flow import HttpRequest, Running
from fastfront.http.answer_head import Clock, Headers, header_lines
from fastfront.http.cors import VARY, Cors
from fastfront.http.parser import head_reader
from fastfront.http.settings import Settings
from fastfront.http.strict import Incoming

if TYPE_CHECKING:
    from fastfront.fast.sse import Owner

logger = logging.getLogger("fastfront.http")
access_logger = logging.getLogger("fastfront.access")

#: Turns an error into status, body, content type and further headers.
RenderError = Callable[[Exception], tuple[int, bytes, str, Headers]]

_CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_CLOSE = b"connection: close\r\n"
_KEEP_ALIVE = b"connection: keep-alive\r\n"


@dataclass(slots=True)
class Shared:
    """What all answers of a server have in common."""

    flusher: Flusher
    render_error: RenderError
    settings: Settings
    cors: Cors | None = None
    #: Told of every answer to a request as it begins, with its status.
    observe: Callable[[HttpRequest, int], None] | None = None
    clock: Clock = field(init=False)
    heads: HeadReader = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(VARY if self.cors is not None else b"")
        self.heads = head_reader(self.settings)


class Channel(Protocol):
    """The connection, as far as an answer needs it."""

    transport: asyncio.Transport
    fd: int  # -1 where only the transport may write
    client: str

    def last(self) -> bool:
        """Whether the connection closes after this answer on its own account."""

    def answered(self, keep_alive: bool) -> None:
        """The answer is complete: serve the next request, or close."""

    def flush_later(self, outbox: Outbox) -> None:
        """Sees to it that what is in the outbox goes out soon, even if nobody flushes it."""

    def drop(self, reset: bool = False) -> None:
        """Cancels what runs and closes at once; with `reset` the client sees an error, not an end."""


class Exchange:
    """A request on its way through its handler. `request` is None when what came was not one: `error` says why."""

    _chunked = False
    _opened = False
    _outbox: Outbox | None = None
    #: The handler's task, or what goes on for it.
    serving: asyncio.Task[None] | Running | None = None
    #: The status once the answer has begun.
    status = 0
    #: The answer is complete.
    done = False
    #: The client is gone; nothing is written any more.
    gone = False

    def __init__(
        self, channel: Channel, shared: Shared, request: Incoming | None, error: RequestError | None = None
    ) -> None:
        self._channel = channel
        self._shared = shared
        self._cors = shared.cors
        self._keep_alive = request is not None and request.keep_alive
        self._http10 = request is not None and request.http10
        self._head_only = request is not None and request.method == "HEAD"
        self.request = request
        self.error = error

    # --- flow.Reply

    def send(
        self,
        status: int,
        body: bytes = b"",
        content_type: str | None = "application/json",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Sends a whole answer; ValueError for headers that may not be sent."""
        if self.status:
            raise RuntimeError("the request has been answered already")
        if self.gone:
            self.status = status
            return
        head = self._head(status, content_type, headers)
        self._begin(status)
        if status == 204 or status == 304:
            answer = head + b"\r\n"
        else:
            answer = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), b"" if self._head_only else body)
        self._channel.transport.write(answer)
        self._finish()

    def open_stream(self, status: int, content_type: str, headers: Sequence[tuple[str, str]] = ()) -> Outbox:
        """Starts an answer of unknown length; what is appended to the outbox is its body."""
        if self.status:
            raise RuntimeError("the request has been answered already")
        self._opened = True
        self._chunked = not self._http10
        if not self._chunked:
            self._keep_alive = False  # the end of the body is the end of the connection
        head = self._head(status, content_type, headers) + (_CHUNKED if self._chunked else b"\r\n")
        self._begin(status)
        channel, shared = self._channel, self._shared
        limit = shared.settings.outbox_limit
        if self.gone or self._head_only:
            if not self.gone:
                channel.transport.write(head)
            self._outbox = Outbox(shared.flusher, SINK, -1, limit, False)
            return self._outbox
        outbox = Outbox(shared.flusher, self, channel.fd, limit, self._chunked)
        if channel.transport.get_write_buffer_size():
            outbox.set_direct(False)  # answers before this one are still on their way
        outbox.raw(head)
        self._outbox = outbox
        channel.flush_later(outbox)
        return outbox

    def close_stream(self) -> None:
        """Ends the stream's body and writes what is pending."""
        if not self._opened:
            raise RuntimeError("there is no stream to close")
        outbox = self._outbox
        if self.done or self.gone or outbox is None:
            return
        if not self._head_only:
            if self._chunked:
                outbox.raw(_LAST_CHUNK)
            outbox.flush()
            outbox.set_direct(False)
        if not self.gone:
            self._finish()

    # --- fast.sse.Owner

    def outbox_blocked(self, data: bytes) -> None:
        """Hands to the transport what the socket did not take."""
        outbox = self._outbox
        if self.gone or self.done or outbox is None:
            return
        transport = self._channel.transport
        transport.write(data)
        pending = transport.get_write_buffer_size()
        outbox.backlog = pending
        if not pending and not transport.is_closing():
            outbox.set_direct(True)

    def outbox_overflow(self) -> None:
        """The client reads too slowly: cut it off."""
        logger.info("%s does not read its answer: connection closed", self._channel.client or "a client")
        self._channel.drop()

    def outbox_error(self, error: OSError) -> None:
        """The socket is broken: the client has left."""
        self._channel.drop()

    # --- the connection and the server

    def drained(self) -> None:
        """The transport has written everything: the socket may be written to again."""
        if self._outbox is not None and not self.gone and not self.done:
            self._outbox.backlog = 0
            self._outbox.set_direct(True)

    def streaming(self) -> bool:
        """Whether a stream is open: its outbox bounds what is pending."""
        return self._outbox is not None and not self.done

    def abandon(self) -> None:
        """The client is gone: cancels the handler. The descriptor may soon be another socket's, so it is let go."""
        if self.gone:
            return
        self.gone = True
        # Both know this exchange: a circle would wait for the collector.
        outbox, self._outbox = self._outbox, None
        serving, self.serving = self.serving, None
        if outbox is not None:
            outbox.set_direct(False)
        if serving is not None:
            serving.cancel()

    def preflight(self, status: int, body: bytes, headers: Headers) -> None:
        """Answers a preflight, whose cross-origin headers are all in `headers`."""
        self._cors = None
        self.send(status, body, "text/plain; charset=utf-8", headers)

    def follow(self, running: Running | None) -> None:
        """The handler has returned; `running`, if there is one, goes on for it."""
        self.serving = None
        if running is None:
            self.complete()
        elif self.gone:
            running.cancel()
        elif not self.done:
            self.serving = running

    def end(self, error: Exception | None = None) -> None:
        """What a Running was about is over: it has answered, or `error` is the answer."""
        self.serving = None
        if error is None:
            self.complete()
        else:
            self.fail(error)

    def complete(self) -> None:
        """Nothing serves the request any more: ends its stream, or answers for it if nobody did."""
        if self.gone or self.done:
            return
        if self._outbox is not None:
            self.close_stream()
        else:
            self.fail(RuntimeError("the handler gave no answer"))

    def fail(self, error: Exception) -> None:
        """Answers with the error, or, when the answer has begun, cuts it short so that the client can tell."""
        if self.gone:
            return
        if not isinstance(error, RequestError):
            unexpected = not isinstance(error, FastfrontError)
            logger.error("%s: %s", self._line(), error, exc_info=error if unexpected else None)
        if self.done:
            return
        if self.status:
            if self._outbox is not None:
                self._outbox.flush()
            # A chunked body shows by itself that its end is missing.
            self._channel.drop(reset=not self._chunked)
            return
        try:
            status, body, content_type, headers = self._shared.render_error(error)
            self.send(status, body, content_type, headers)
        except Exception:
            logger.exception("%s: the error could not be rendered", self._line())
            if not self.status:
                self.send(500, b"Internal Server Error", "text/plain; charset=utf-8")

    def _begin(self, status: int) -> None:
        self.status = status
        observe = self._shared.observe
        if observe is not None and self.request is not None and not self.gone:
            observe(self.request, status)

    def _head(self, status: int, content_type: str | None, headers: Headers) -> bytes:
        """All but how long the body is."""
        shared, request = self._shared, self.request
        head = shared.clock.begin(status, content_type)
        if headers:
            head += header_lines(headers)
        if self._cors is not None and request is not None:
            origin = request.headers.get("origin")
            if origin is not None:
                head += header_lines(self._cors.headers(origin))
        if shared.settings.request_id_headers:
            given = None if request is None else request.headers.get("x-request-id")
            head += b"x-request-id: %b\r\n" % (given or secrets.token_hex(16)).encode("latin-1")
        if not self._keep_alive or self._channel.last():
            self._keep_alive = False
            head += _CLOSE
        elif self._http10:
            head += _KEEP_ALIVE
        return head

    def _finish(self) -> None:
        self.done = True
        self._outbox = None  # it knows its owner: a circle would wait for the collector
        if self._shared.settings.access_log:
            access_logger.info('%s - "%s" %d', self._channel.client, self._line(), self.status)
        self._channel.answered(self._keep_alive)

    def _line(self) -> str:
        request = self.request
        if request is None:
            return "-  HTTP/1.1"
        return f"{request.method} {request.target} HTTP/1.{'0' if request.http10 else '1'}"


class _Sink:
    """Owns outboxes whose bytes nobody gets: of HEAD requests, and of clients that left."""

    def outbox_blocked(self, data: bytes) -> None:
        pass

    def outbox_overflow(self) -> None:
        pass

    def outbox_error(self, error: OSError) -> None:
        pass


SINK: Owner = _Sink()
