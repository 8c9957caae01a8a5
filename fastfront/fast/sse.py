"""Server-sent events: JSON escaping, and the out buffer of a connection. Pure twin of `sse_native.pyx`.

An Outbox collects a response body during one turn of the loop; its Flusher then writes each dirty one with a single
system call. While the socket takes everything the bytes never pass the transport; what it does not take is handed to
the owner, and the outbox stays indirect until the owner says that the transport is empty again.
"""

from __future__ import annotations

import json
import logging
import socket
from typing import Protocol

log = logging.getLogger("fastfront.fast")


class Owner(Protocol):
    """Who takes the bytes that the socket did not, and hears of a body that grew past its limit.

    Called from a flush only, never from an append.
    """

    def outbox_blocked(self, data: bytes) -> None:
        """Must write `data`, in order, and call `Outbox.set_direct(True)` once nothing is pending."""

    def outbox_overflow(self) -> None:
        """The client does not read: more than the limit is pending. The outbox drops what comes from now on."""

    def outbox_error(self, error: OSError) -> None:
        """The socket is broken."""


def escape(text: str) -> bytes:
    """The inside of a JSON string: quotes, backslashes and control characters escaped, all else as UTF-8."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


class Flusher:
    """The dirty outboxes of this turn of the loop."""

    def __init__(self) -> None:
        self.dirty: list[Outbox] = []

    def flush(self) -> None:
        """Writes every dirty outbox once."""
        dirty, self.dirty = self.dirty, []
        for outbox in dirty:
            try:
                outbox.flush()
            except Exception:  # one connection's fault must not reach the others
                log.exception("an outbox's owner failed")


class Outbox:
    """The body of one streamed answer on its way to one socket.

    `fd` is the socket's descriptor, or -1 to always hand the bytes to the owner (TLS). `limit` is how many bytes may
    be pending in all. With `chunked` each flush is one HTTP chunk; `raw` bytes (the response head) go out unframed,
    with the body's next flush or the outbox's own.
    """

    def __init__(self, flusher: Flusher, owner: Owner, fd: int, limit: int, chunked: bool) -> None:
        self.flusher = flusher
        self.owner = owner
        self.fd = fd
        self.limit = limit
        self.chunked = chunked
        self.direct = fd >= 0
        self.backlog = 0  # bytes the owner holds for the transport
        self.closed = False
        self.appended = 0  # additions to the body so far: a silent one stays as it is
        self._raw = bytearray()
        self._body = bytearray()
        self._dirty = False
        self._overflowed = False

    def pending(self) -> int:
        """Bytes that the socket has not taken yet."""
        return len(self._raw) + len(self._body) + self.backlog

    def raw(self, data: bytes) -> None:
        """Appends bytes that are not part of the body; only before the first `append` and after the last."""
        if self.closed:
            return
        if self._body:
            self._close_chunk()
        self._raw += data

    def append(self, data: bytes) -> None:
        """Appends to the body."""
        if self.closed:
            return
        self._body += data
        self.appended += 1
        self._mark()
        if self.pending() > self.limit:
            self.closed = self._overflowed = True
            self._body.clear()
            self._raw.clear()

    def set_direct(self, direct: bool) -> None:
        """Whether the socket may be written to; an outbox without a descriptor never is."""
        self.direct = direct and self.fd >= 0

    def flush(self) -> None:
        """Gives the socket, or else the owner, all that is pending."""
        self._dirty = False
        if self._overflowed:
            self._overflowed = False
            self.owner.outbox_overflow()
            return
        if self._body:
            self._close_chunk()
        if not self._raw:
            return
        data = bytes(self._raw)
        self._raw.clear()
        if self.direct:
            try:
                sent = _send(self.fd, data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self.closed = True
                self.owner.outbox_error(error)
                return
            data = data[sent:]
            if not data:
                return
            self.direct = False
        self.owner.outbox_blocked(data)

    def _close_chunk(self) -> None:
        if self.chunked:
            self._raw += b"%x\r\n" % len(self._body)
            self._raw += self._body
            self._raw += b"\r\n"
        else:
            self._raw += self._body
        self._body.clear()

    def _mark(self) -> None:
        if not self._dirty:
            self._dirty = True
            self.flusher.dirty.append(self)


def _send(fd: int, data: bytes) -> int:
    """send(2) without SIGPIPE on a descriptor that somebody else owns."""
    sock = socket.socket(fileno=fd)
    try:
        return sock.send(data, socket.MSG_DONTWAIT)
    finally:
        sock.detach()
