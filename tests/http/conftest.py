"""A server in a thread of its own, and a client that sees raw bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import uvloop

from fastfront import errors
from fastfront.fast import Flusher
from fastfront.flow import Handler, HttpRequest, Reply
from fastfront.http.listener import Listener, bind_tcp
from fastfront.http.router import Router
from fastfront.http.server import Server
from fastfront.http.settings import Settings

WAIT_S = 20.0
STATUS: list[tuple[type[Exception], int]] = [
    (errors.UnauthorizedError, 401),
    (errors.RouteNotFoundError, 404),
    (errors.MethodNotAllowedError, 405),
    (errors.RequestTimeoutError, 408),
    (errors.PayloadTooLargeError, 413),
    (errors.HeadersTooLargeError, 431),
    (errors.RequestError, 400),
]
T = TypeVar("T")


def render_error(error: Exception) -> tuple[int, bytes, str, list[tuple[str, str]]]:
    """A stand-in for the API's."""
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    allow = [("allow", ", ".join(error.allowed))] if isinstance(error, errors.MethodNotAllowedError) else []
    return status, json.dumps({"error": str(error)}).encode(), "application/json", allow


@dataclass
class Answer:
    """One answer as it was on the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    head: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Client:
    """A blocking connection to the server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(WAIT_S)
        self.data = b""

    def send(self, data: bytes) -> None:
        """Sends raw bytes."""
        self.sock.sendall(data)

    def close(self) -> None:
        """Leaves."""
        self.sock.close()

    def read(self) -> bool:
        """Reads some bytes; False at the end."""
        more = self.sock.recv(65536)
        self.data += more
        return more != b""

    def until(self, mark: bytes) -> bytes:
        """Reads up to and with `mark`."""
        while mark not in self.data:
            assert self.read(), f"the connection ended after {self.data!r}"
        found, _, self.data = self.data.partition(mark)
        return found + mark

    def exactly(self, size: int) -> bytes:
        """Reads `size` bytes."""
        while len(self.data) < size:
            assert self.read(), f"the connection ended after {self.data!r}"
        found, self.data = self.data[:size], self.data[size:]
        return found

    def rest(self) -> bytes:
        """Reads to the end of the connection."""
        while self.read():
            pass
        found, self.data = self.data, b""
        return found

    def answer(self, bodiless: bool = False) -> Answer:
        """Reads one answer; `bodiless` for those to HEAD."""
        head = self.until(b"\r\n\r\n")
        lines = head[:-4].decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if bodiless or status in (100, 204, 304):
            body = b""
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            body = self.chunked()
        else:
            body = self.rest()
        return Answer(status, headers, body, head)

    def chunked(self) -> bytes:
        """Reads a chunked body."""
        body = b""
        while size := int(self.until(b"\r\n"), 16):
            body += self.exactly(size)
            assert self.exactly(2) == b"\r\n"
        assert self.exactly(2) == b"\r\n"
        return body

    def ended(self) -> bool:
        """Waits for the end of the connection; whether nothing came before it."""
        try:
            return self.rest() == b""
        except ConnectionResetError:
            return True


@dataclass
class Hanging:
    """A handler that only ends by cancellation, and what it went through."""

    started: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    cancelled: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    seen: list[str] = field(default_factory=list)

    async def __call__(self, request: HttpRequest, reply: Reply) -> None:
        self.seen.append(request.query)
        self.started.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.release()
            raise


class Gate:
    """A handler that answers its query once it is opened from outside."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self._open = threading.Event()

    async def __call__(self, request: HttpRequest, reply: Reply) -> None:
        self.started.set()
        await asyncio.get_running_loop().run_in_executor(None, self._open.wait, WAIT_S)
        reply.send(200, request.query.encode())

    def open(self) -> None:
        """Lets it answer."""
        self._open.set()


async def echo(request: HttpRequest, reply: Reply) -> None:
    """Answers with the request."""
    seen = {name: getattr(request, name) for name in HttpRequest.__struct_fields__} | {"body": request.body.hex()}
    reply.send(200, json.dumps(seen).encode())


async def ok(request: HttpRequest, reply: Reply) -> None:
    """Answers `ok`."""
    reply.send(200, b"ok", "text/plain")


class Served:
    """A started server; `router` may get further routes at any time."""

    def __init__(self, kind: str, listeners: list[Listener] | None = None, **options: Any) -> None:
        self.loop = uvloop.new_event_loop() if kind == "uvloop" else asyncio.new_event_loop()
        self.router = Router()
        for method in ("GET", "POST", "PUT"):
            self.router.add(method, "/echo", echo)
        self.router.add("GET", "/ok", ok)
        self.flusher = Flusher()
        settings = Settings(**{k: options.pop(k) for k in list(options) if k in Settings.__dataclass_fields__})
        self.server = Server(self.router, self.flusher, options.pop("render_error", render_error), settings, **options)
        self.listeners = listeners if listeners is not None else [bind_tcp("127.0.0.1", 0)]
        self.port = self.listeners[0].port() or 0
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def start(self) -> Served:
        """Listens."""
        self.run(self.server.start(self.listeners))
        return self

    def add(self, path: str, handler: Handler, *methods: str) -> None:
        """Adds a route, for GET unless told otherwise."""
        for method in methods or ("GET",):
            self.router.add(method, path, handler)

    def client(self, receive_buffer: int = 0) -> Client:
        """A new connection."""
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect(("127.0.0.1", self.port))
        return Client(sock)

    def tls_client(self, context: ssl.SSLContext) -> Client:
        """A new connection over TLS."""
        sock = socket.create_connection(("127.0.0.1", self.port))
        return Client(context.wrap_socket(sock, server_hostname="localhost"))

    def ask(self, data: bytes) -> Answer:
        """One request on a connection of its own."""
        client = self.client()
        client.send(data)
        answer = client.answer()
        client.close()
        return answer

    def until(self, true: Callable[[], bool]) -> None:
        """Lets the server's loop turn until `true()`."""

        async def turn() -> None:
            while not true():  # noqa: ASYNC110  # what is waited for sets no event
                await asyncio.sleep(0.001)

        self.run(asyncio.wait_for(turn(), WAIT_S))

    def stop(self) -> None:
        """Stops at once."""
        if not self.server.closed:
            self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()


Serve = Callable[..., Served]


@pytest.fixture(params=["uvloop", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    """The event loop."""
    return str(request.param)


@pytest.fixture
def bound(kind: str) -> Iterator[Serve]:
    """Makes a server that does not listen yet; keyword arguments are settings, or the server's own."""
    made: list[Served] = []

    def begin(**options: Any) -> Served:
        made.append(Served(kind, **options))
        return made[-1]

    yield begin
    for served in made:
        served.stop()


@pytest.fixture
def serve(bound: Serve) -> Serve:
    """Makes a server that listens."""

    def begin(**options: Any) -> Served:
        return bound(**options).start()

    return begin


@pytest.fixture
def served(serve: Serve) -> Served:
    """A server with the usual settings."""
    return serve()


@pytest.fixture
def hanging() -> Hanging:
    """A handler that only ends by cancellation."""
    return Hanging()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A handler that answers its query once it is opened."""
    gate = Gate()
    yield gate
    gate.open()
