"""Reads any request, with httptools; no I/O.

httptools can neither stop between two requests of one read nor say where it is. So it is fed in pieces that end where a
message may end: a body of known length ends where it ends; a head, and a chunked body, end with an empty line. After
each piece at most one request has become whole, which bounds what waits, and a head's size is counted exactly.
llhttp's strict mode refuses what smuggling is made of (both or double lengths, bare CR or LF, folded headers, odd chunk
sizes); what it lets pass is refused here.
"""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace
from urllib.parse import unquote

import httptools

from fastfront.errors import HeadersTooLargeError, MalformedRequestError, PayloadTooLargeError, RequestError
from fastfront.flow import HttpRequest
from fastfront.http.settings import Settings

EMPTY_LINE = b"\r\n\r\n"
ONCE = ("host", "content-length", "transfer-encoding")
#: Bytes that one chunk may cost beside its data; more (long extensions) counts towards the size of the head.
CHUNK_OVERHEAD = 128


class Stage(IntEnum):
    """What of the next request is there."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


_NOTHING, _HEAD, _BODY = Stage  # looking one up in the enum takes ten times as long


class Incoming(HttpRequest):
    """A whole request, and what only its connection needs to know; `target` is the request line's."""

    target: str
    keep_alive: bool
    http10: bool


class StrictParser:
    """One connection's requests. After an error it must not be fed again."""

    #: The client's name, for its requests.
    client = ""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._parser = httptools.HttpRequestParser(self)
        self._data = b""
        self._pos = 0
        self._tail = b""  # the last bytes of an unfinished head or chunked body: an empty line may be cut in two
        self._error: RequestError | None = None
        self._left = 0  # bytes of a body of known length that are still to come
        self._upgrade = False
        self._priming = False
        self._method = ""
        self._where = ("", "")
        self._keep_alive = False
        self._http10 = False
        #: How many requests have begun.
        self.begun = 0
        self.stage = Stage.NOTHING
        #: The client waits for `100 Continue` before it sends the body.
        self.awaits_continue = False
        self._reset()

    def _reset(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._count = 0
        self._overhead = 0  # bytes of the head, later of a chunked body, that are not data
        self._chunks = 0
        self._chunked = False
        self._body: bytes | bytearray = b""
        self._done = False

    def feed(self, data: bytes) -> None:
        """Adds bytes; `next` makes requests of them."""
        if self._data:
            data = self._data[self._pos :] + data
            self._pos = 0
        self._data = data

    def pending(self) -> bool:
        """Whether there are bytes that `next` has not looked at."""
        return self._data != b""

    def next(self) -> Incoming | None:
        """The next whole request, None when more bytes are needed; raises a RequestError that ends the connection."""
        data = self._data
        size = len(data)
        while self._pos < size:
            start = self._pos
            in_body = self.stage is _BODY
            if self._left:
                end = min(size, start + self._left)
                self._left -= end - start
            else:
                end = self._piece_end(data, start)
                if not in_body:
                    self._overhead += end - start
                    if self._overhead > self._settings.max_head_size:
                        raise self._refuse(self._too_large())
            self._pos = end
            try:
                self._parser.feed_data(data if end - start == size else memoryview(data)[start:end])
            except httptools.HttpParserUpgrade:
                self._ignore_upgrade()
            except httptools.HttpParserError as error:
                raise self._refuse(self._error or MalformedRequestError(f"Invalid HTTP request: {error}")) from error
            if in_body and self._chunked and self._error is None:
                self._count_overhead(end - start)
            if self._error is not None:
                raise self._refuse(self._error)
            if self._done:
                self._seen(end)
                return self._take()
        self._seen(size)
        return None

    def _seen(self, end: int) -> None:
        """All before `end` is read; `_data` is empty unless something is left."""
        if end < len(self._data):
            self._pos = end
        else:
            self._data, self._pos = b"", 0

    def _piece_end(self, data: bytes, start: int) -> int:
        if start == 0 and self._tail:
            at = (self._tail + data[:3]).find(EMPTY_LINE)
            if at >= 0:
                end = at + len(EMPTY_LINE) - len(self._tail)
                self._tail = b""
                return end
        at = data.find(EMPTY_LINE, start)
        if at >= 0:
            self._tail = b""
            return at + len(EMPTY_LINE)
        self._tail = (self._tail + data[max(start, len(data) - 3) :])[-3:]
        return len(data)

    def _refuse(self, error: RequestError) -> RequestError:
        self.stage = _NOTHING
        self.awaits_continue = False
        self._data = b""
        self._pos = 0
        self._reset()
        return error

    def _take(self) -> Incoming:
        path, query = self._where
        body = self._body if isinstance(self._body, bytes) else bytes(self._body)
        incoming = Incoming(
            self._method, path, query, self._headers, body, self.client,
            self._target.decode(), self._keep_alive, self._http10,
        )  # fmt: skip
        if self._upgrade:
            self._upgrade = False
            self._parser = httptools.HttpRequestParser(self)
        self.stage = _NOTHING
        self.awaits_continue = False
        self._reset()
        return incoming

    def _too_large(self) -> HeadersTooLargeError:
        limit = self._settings.max_head_size
        return HeadersTooLargeError(f"The request line and headers are longer than {limit} bytes", limit=limit)

    def _count_overhead(self, fed: int) -> None:
        """What a chunked body holds beside its data is bounded like the head; each chunk allows for a bit more."""
        self._overhead = max(0, self._overhead + fed - CHUNK_OVERHEAD * self._chunks)
        self._chunks = 0
        if self._overhead > self._settings.max_head_size:
            self._error = self._too_large()

    def _ignore_upgrade(self) -> None:
        """httptools leaves HTTP here and skips the body; we go on as if nobody had asked to upgrade."""
        if not self._left and not self._chunked:
            self._done = True
            return
        length = f"content-length: {self._left}" if self._left else "transfer-encoding: chunked"
        rest = SimpleNamespace(
            on_header=self._on_trailer,
            on_body=self.on_body,
            on_chunk_header=self.on_chunk_header,
            on_message_complete=self._on_body_complete,
        )
        self._parser = httptools.HttpRequestParser(rest)
        self._priming = True
        self._parser.feed_data(f"POST / HTTP/1.1\r\n{length}\r\n\r\n".encode())
        self._priming = False

    def _on_trailer(self, name: bytes, value: bytes) -> None:
        if not self._priming:
            self.on_header(name, value)

    def _on_body_complete(self) -> None:
        self._done = True

    # --- called by httptools; an exception here would lose its meaning, so errors are kept for `next`

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self.stage = _HEAD
        self.begun += 1

    def on_url(self, url: bytes) -> None:
        """A part of the request target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which is dropped."""
        self._count += 1
        if self._count > self._settings.max_header_count:
            limit = self._settings.max_header_count
            self._error = HeadersTooLargeError(f"The request has more than {limit} headers", limit=limit)
        if self.stage is not _HEAD:
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1").rstrip(" \t")
        if key not in self._headers:
            self._headers[key] = text
        elif key in ONCE:
            self._error = MalformedRequestError(f"The header {key!r} is there twice", param=key)
        else:
            self._headers[key] += ", " + text

    def on_headers_complete(self) -> None:
        """The end of the head: decides how the body is read."""
        self.stage = _BODY
        self._overhead = 0
        self._keep_alive = self._parser.should_keep_alive()
        self._upgrade = self._parser.should_upgrade()
        self._method = self._parser.get_method().decode()
        if self._error is None:
            self._error = self._examine()

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self.awaits_continue = False
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytes):
            self._body = bytearray(self._body) + data
        else:
            self._body += data
        if self._chunked:
            self._overhead -= len(data)
            if len(self._body) > self._settings.max_body_size:
                self._error = self._body_too_large()

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._chunks += 1

    def on_message_complete(self) -> None:
        """The end of the request; of one that asks for an upgrade only httptools thinks so."""
        self._done = not self._upgrade

    def _examine(self) -> RequestError | None:
        headers = self._headers
        version = self._parser.get_http_version()
        self._http10 = version == "1.0"
        if version not in ("1.1", "1.0"):
            return MalformedRequestError(f"HTTP/{version} is not served", value=version)
        if "host" not in headers and not self._http10:
            return MalformedRequestError("The header 'host' is missing", param="host")
        where = split_target(self._method, self._target)
        if where is None:
            return MalformedRequestError("The request target is not a path", value=self._target.decode("latin-1"))
        self._where = where
        coding = headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked" or self._http10:
                return MalformedRequestError("Only 'chunked' is served, of HTTP/1.1", param="transfer-encoding")
            self._chunked = True
        else:
            self._left = int(headers.get("content-length", "0"))
            if self._left > self._settings.max_body_size:
                return self._body_too_large()
        expect = headers.get("expect")
        if expect is not None and not self._http10:
            if expect.lower() != "100-continue":
                return MalformedRequestError("Only '100-continue' can be expected", param="expect", value=expect)
            self.awaits_continue = self._chunked or self._left > 0
        return None

    def _body_too_large(self) -> PayloadTooLargeError:
        limit = self._settings.max_body_size
        return PayloadTooLargeError(f"The request body is longer than {limit} bytes", limit=limit)


def split_target(method: str, target: bytes) -> tuple[str, str] | None:
    """Decoded path and raw query of a request target; None when it has no path (CONNECT's, `*` but for OPTIONS)."""
    text = target.decode("latin-1")
    if method == "CONNECT":
        return None
    if text == "*":
        return ("*", "") if method == "OPTIONS" else None
    if not text.startswith("/"):
        scheme, _, rest = text.partition("://")
        if scheme.lower() not in ("http", "https"):
            return None
        authority, slash, rest = rest.partition("/")
        if "?" in authority or "#" in authority:
            return None
        text = slash + rest or "/"
    path, _, query = text.partition("#")[0].partition("?")
    return (unquote(path) if "%" in path else path), query
