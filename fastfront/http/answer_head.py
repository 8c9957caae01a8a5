"""The head of an answer as bytes. Nothing that a handler or a client gives can begin a new line in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
#: Headers that only the connection may write: they decide where the answer ends.
FRAMING = {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "trailer"}

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

Headers = Sequence[tuple[str, str]]


def status_line(status: int) -> bytes:
    """The first line; ValueError for what is no final status."""
    line = STATUS_LINES.get(status)
    if line is None or status < 200:
        if not 200 <= status <= 999:
            raise ValueError(f"{status} is not the status of an answer")
        line = f"HTTP/1.1 {status} \r\n".encode()
    return line


def header_line(name: str, value: str) -> bytes:
    """One header; ValueError when name or value may not stand in one."""
    return _short_line(name, value) if len(value) <= 128 else _line(name, value)


def _line(name: str, value: str) -> bytes:
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ValueError(f"not a header: {name!r}: {value!r}")
    return f"{name}: {value}\r\n".encode("latin-1")


_short_line = lru_cache(maxsize=256)(_line)


def header_lines(headers: Headers) -> bytes:
    """A handler's headers; ValueError as `header_line`, and for those that frame the answer."""
    return _constant_lines(headers) if isinstance(headers, tuple) else _lines(headers)


def _lines(headers: Headers) -> bytes:
    for name, _ in headers:
        if name.lower() in FRAMING:
            raise ValueError(f"a handler may not set the header {name!r}")
    return b"".join([header_line(name, value) for name, value in headers])


_constant_lines = lru_cache(maxsize=64)(_lines)


class Clock:
    """How answers begin: made once a second for each status and content type. `always` are lines that all have."""

    def __init__(self, always: bytes = b"") -> None:
        self._always = b"server: fastfront\r\n" + always
        self._second = -1
        self._made: dict[tuple[int, str | None], bytes] = {}

    def begin(self, status: int, content_type: str | None) -> bytes:
        """The status line, date, server, what all have, content type; ValueError for what cannot be an answer's."""
        second = int(time())
        if second != self._second:
            self._second = second
            self._made.clear()
        made = self._made.get((status, content_type))
        if made is None:
            date = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
            kind = b"" if content_type is None else header_line("content-type", content_type)
            made = self._made[status, content_type] = status_line(status) + date + self._always + kind
        return made
