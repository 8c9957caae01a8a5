"""Reads the bytes of HTTP/1.1 answers, however they are cut. No I/O: bytes in, bytes of the body out.

head -> sized | chunked | until the end of the connection -> complete
chunked: a size line -> its bytes -> a line end -> ... -> size 0 -> trailer lines -> an empty line
"""

from __future__ import annotations

from fastfront.errors import FastfrontError

#: Most bytes of a head, and of a chunk's size line or a trailer line.
MAX_HEAD = 64 << 10
MAX_LINE = 4096

_SIZE, _DATA, _END, _TRAILER = range(4)
#: Usual size lines: a look here takes half of what reading one does.
_SIZES = {b"%x" % size: size for size in range(1, 4096)}


class AnswerError(FastfrontError):
    """The server's bytes are no HTTP answer, or the connection ended before it was whole."""


class Answer:
    """One answer. `status` is 0 until the head is there; `keep_alive` says whether the connection may go on."""

    __slots__ = ("_chunk", "_held", "_left", "_mode", "complete", "headers", "keep_alive", "reason", "status")

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        self.complete = False
        self.keep_alive = False
        self._mode = ""
        self._chunk = _SIZE
        self._left = 0
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What of the body is in `data`; raises AnswerError."""
        if self._held:
            data, self._held = self._held + data, b""
        if not self._mode:
            data = self._head(data)
            if not self._mode:
                return b""
        if self._mode == "chunked":
            return self._chunked(data)
        if self._mode == "sized":
            return self._sized(data)
        return data

    def end(self) -> None:
        """The connection has ended; raises AnswerError unless that ends the answer."""
        if self.complete:
            return
        if self._mode != "open":
            raise AnswerError("the connection ended within an answer" if self.status else "no answer")
        self.complete = True

    def _head(self, data: bytes) -> bytes:
        """Takes the head off `data` and returns what follows; keeps all of it where the head is not whole."""
        end = data.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD:
            if len(data) > MAX_HEAD:
                raise AnswerError(f"a head of more than {MAX_HEAD} bytes")
            self._held = data
            return b""
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code, _, reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not (len(code) == 3 and code.isdecimal()):
            raise AnswerError(f"not an HTTP answer: {first[:80]!r}")
        data = data[end + 4 :]
        if code.startswith("1"):  # 100 Continue and the like go before the answer
            return self._head(data)
        self.status, self.reason = int(code), reason
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._frame(version)
        return data

    def _frame(self, version: str) -> None:
        connection = self.headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        length = self.headers.get("content-length")
        if self.headers.get("transfer-encoding", "").lower().endswith("chunked"):
            self._mode = "chunked"
        elif self.status in (204, 304):
            self._mode = "sized"
            self.complete = True
        elif length is None:
            self._mode, self.keep_alive = "open", False
        elif length.isascii() and length.isdecimal():
            self._mode, self._left = "sized", int(length)
            self.complete = not self._left
        else:
            raise AnswerError(f"content-length {length[:40]!r}")

    def _sized(self, data: bytes) -> bytes:
        if len(data) > self._left:
            raise AnswerError("more bytes than content-length says")
        self._left -= len(data)
        self.complete = not self._left
        return data

    def _chunked(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        at, end = (self._whole(data, pieces) if self._chunk == _SIZE else 0), len(data)
        while at < end:
            if self._chunk == _DATA:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._chunk = _END
                continue
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                self._held = data[at:]
                if len(self._held) > MAX_LINE:
                    raise AnswerError("a chunk without an end")
                break
            line, at = data[at:line_end], line_end + 2
            self._line(line, at < end)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @staticmethod
    def _whole(data: bytes, pieces: list[bytes]) -> int:
        """Takes the whole chunks that `data` begins with, an event each as a rule; how many bytes those were."""
        at, find, sizes = 0, data.find, _SIZES
        while True:
            line_end = find(b"\r\n", at)
            size = sizes.get(data[at:line_end])
            if size is None or line_end < 0:
                return at
            start = line_end + 2
            stop = start + size
            if data[stop : stop + 2] != b"\r\n":
                return at
            pieces.append(data[start:stop])
            at = stop + 2

    def _line(self, line: bytes, more: bool) -> None:
        """A line between the bytes of chunks."""
        if self._chunk == _SIZE:
            self._left = _size(line)
            self._chunk = _DATA if self._left else _TRAILER
        elif self._chunk == _END:
            if line:
                raise AnswerError("a chunk is longer than its size says")
            self._chunk = _SIZE
        elif not line:
            if more:
                raise AnswerError("bytes after the end of an answer")
            self.complete = True


def _size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
        raise AnswerError(f"chunk size {line[:40]!r}")
    return int(digits, 16)
