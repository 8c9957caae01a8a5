"""Reads the heads of plain requests, which are nearly all. Pure twin of `head_native.pyx`.

Plain is what every parser of HTTP/1.1 reads alike: a common method, a path without escapes, no header twice, empty or
folded, only visible ASCII, a host, and a body of known length or none; nothing to upgrade or to wait for, and nothing
that is against the rules. All else is left to a parser that knows the rules.
"""

from __future__ import annotations

import re

#: Method, path, query, headers (names in lower case), target, if the connection stays; the body's begin and length.
Head = tuple[str, str, str, dict[str, str], str, bool, int, int]

#: Headers that a plain head may have.
MAX_FIELDS = 64

_TARGET = rb"[!$&'()*+,\-./:;=@_~0-9A-Za-z]"
_FIELD = rb"[-_0-9A-Za-z]+: *[!-~](?:[ -~]*[!-~])?\r\n"
_LINES = re.compile(
    rb"(POST|GET|HEAD|PUT|DELETE|OPTIONS) (?=/)((" + _TARGET + rb"+)(?:\?((?:" + _TARGET + rb"|[?%])*))?) HTTP/1\.1\r\n"
    rb"((?:" + _FIELD + rb"){1,%d})\r\n" % MAX_FIELDS
)  # fmt: skip
_LENGTH = re.compile("[0-9]{1,15}")
_FRAMING = {"expect", "upgrade", "proxy-connection", "transfer-encoding"}


class HeadReader:
    """`max_size` is of a head with its empty line, `max_count` of its headers, `max_length` of the body it tells of."""

    def __init__(self, max_size: int, max_count: int, max_length: int) -> None:
        self._max_size = max_size
        self._max_count = max_count
        self._max_length = max_length

    def read(self, data: bytes, at: int) -> Head | None:
        """The plain head that begins at `at`; None where there is none, or one that is not whole or above a limit."""
        match = _LINES.match(data, at)
        if match is None or match.end() - at > self._max_size:
            return None
        method, target, path, query, fields = match.groups(b"")
        headers: dict[str, str] = {}
        lines = fields.decode("ascii").split("\r\n")[:-1]
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.lstrip(" ")
        if len(headers) < len(lines) or len(lines) > self._max_count:
            return None
        connection = headers.get("connection", "keep-alive").lower()
        length = headers.get("content-length", "0")
        if "host" not in headers or connection not in ("keep-alive", "close") or not _FRAMING.isdisjoint(headers):
            return None
        if not _LENGTH.fullmatch(length) or int(length) > self._max_length:
            return None
        return (
            method.decode("ascii"),
            path.decode("ascii"),
            query.decode("ascii"),
            headers,
            target.decode("ascii"),
            connection == "keep-alive",
            match.end(),
            int(length),
        )
