"""Bytes in, whole requests out; no I/O. Plain heads and the bodies behind them are read here, all else by `strict`."""

from __future__ import annotations

from fastfront.fast import HeadReader
from fastfront.http.settings import Settings
from fastfront.http.strict import Incoming, Stage, StrictParser

_NOTHING, _, _BODY = Stage


def head_reader(settings: Settings) -> HeadReader:
    """What reads plain heads within the limits of `settings`, for any number of connections."""
    return HeadReader(settings.max_head_size, settings.max_header_count, settings.max_body_size)


class RequestParser(StrictParser):
    """One connection's requests. After an error it must not be fed again."""

    def __init__(self, settings: Settings, heads: HeadReader | None = None) -> None:
        super().__init__(settings)
        self._heads = heads or head_reader(settings)
        self._plain: Incoming | None = None  # lacks `_left` bytes of its body, of which `_part` is there
        self._part = bytearray()

    def next(self) -> Incoming | None:
        """The next whole request, None when more bytes are needed; raises a RequestError that ends the connection."""
        if self._plain is not None:
            return self._next_part(self._plain)
        data = self._data
        if self.stage is not _NOTHING or self._tail or not data:
            return super().next()
        head = self._heads.read(data, self._pos)
        if head is None:
            return super().next()
        method, path, query, headers, target, keep_alive, start, length = head
        self.begun += 1
        end = start + length
        body = data[start:end]
        incoming = Incoming(method, path, query, headers, body, self.client, target, keep_alive, False)
        if end < len(data):
            self._pos = end
            return incoming
        self._data, self._pos = b"", 0
        if len(body) == length:
            return incoming
        self._plain, self._part, self._left = incoming, bytearray(body), length - len(body)
        self.stage = _BODY
        return None

    def _next_part(self, incoming: Incoming) -> Incoming | None:
        part = self._data[self._pos : self._pos + self._left]
        self._part += part
        self._left -= len(part)
        self._seen(self._pos + len(part))
        if self._left:
            return None
        incoming.body = bytes(self._part)
        self._plain, self._part = None, bytearray()
        self.stage = _NOTHING
        return incoming
