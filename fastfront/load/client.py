"""Asks the server: streamed answers into records, and the few small questions around a run."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from fastfront.errors import ConfigError, FastfrontError
from fastfront.load.connection import Connection, Exchange
from fastfront.load.events import Events
from fastfront.load.options import Target
from fastfront.load.record import Record

#: Seconds that one answer may take (as vLLM's client).
TIMEOUT = 6 * 3600.0


class Client:
    """Connections to one server; each is used again when its answer is over. Lives in one event loop."""

    def __init__(self, target: Target) -> None:
        url = urlsplit(target.base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigError(f"--base-url must be http://HOST[:PORT] or https://..., not {target.base_url!r}")
        self._host = url.hostname
        try:
            self._port = url.port or (443 if url.scheme == "https" else 80)
        except ValueError as error:
            raise ConfigError(f"--base-url {target.base_url!r}: {error}") from None
        self._prefix = url.path.rstrip("/")
        self._tls = _tls(target.verify) if url.scheme == "https" else None
        headers = {"host": url.netloc.rpartition("@")[2], "accept": "*/*", "content-type": "application/json"}
        headers |= {name.lower(): value for name, value in target.headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._endpoint = target.endpoint
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()

    async def stream(self, body: bytes, record: Record, request_id: str = "") -> None:
        """Asks for a streamed answer and fills the record; never raises for what the server does."""
        events = Events(record)
        record.start = perf_counter()
        exchange = await self._exchange("POST", self._endpoint, body, events.feed, request_id)
        if isinstance(exchange, str):
            record.error = exchange
            return
        answer, why = exchange.answer, exchange.done.result()
        if answer.status not in (0, 200):
            said = exchange.body[:2000].decode("utf-8", "replace")
            record.error = f"HTTP {answer.status} {answer.reason}: {said}"
        elif why:
            record.error = record.error or why
        else:
            events.finish()

    async def ask(self, method: str, path: str, body: bytes = b"") -> Any:
        """The decoded JSON of a small answer (None for an empty one); raises FastfrontError."""
        exchange = await self._exchange(method, path, body)
        if isinstance(exchange, str):
            raise FastfrontError(f"{method} {path}: {exchange}")
        answer = exchange.answer
        if why := exchange.done.result():
            raise FastfrontError(f"{method} {path}: {why}")
        if answer.status != 200:
            raise FastfrontError(f"{method} {path}: HTTP {answer.status} {answer.reason}")
        try:
            return json.loads(exchange.body) if exchange.body.strip() else None
        except ValueError:
            raise FastfrontError(f"{method} {path}: the answer is no JSON") from None

    def close(self) -> None:
        """Ends every connection."""
        for connection in self._all:
            connection.close()
        self._all.clear()
        self._idle.clear()

    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes,
        take: Callable[[bytes, float], None] | None = None,
        request_id: str = "",
    ) -> Exchange | str:
        """The finished exchange, or why there was none."""
        told = f"x-request-id: {request_id}\r\n" if request_id else ""
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._headers}{told}content-length: {len(body)}\r\n\r\n"
        request = head.encode("latin-1", "replace") + body
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection = await self._connection(loop)
            except OSError as error:
                return f"cannot connect: {error}"
            again = connection.used
            exchange = Exchange(loop.create_future(), take)
            connection.begin(request, exchange)
            late = f"no end of the answer within {TIMEOUT:.0f} s"
            alarm = loop.call_later(TIMEOUT, exchange.end, late)
            try:
                why = await exchange.done
            finally:
                alarm.cancel()
                if connection.busy:
                    connection.close()
            if connection.open:
                self._idle.append(connection)
            else:
                self._all.discard(connection)
            # A connection that the server has given up meanwhile: the request never arrived.
            if not why or not again or exchange.started or why is late:
                return exchange

    async def _connection(self, loop: asyncio.AbstractEventLoop) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
            self._all.discard(connection)
        _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._tls)
        self._all.add(connection)
        return connection


def _tls(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
