"""Listeners, start, drain and stop; keys, cross-origin rules and TLS as a client sees them."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fastfront.errors import ConfigError, StartError
from fastfront.flow import HttpRequest, Reply
from fastfront.http.auth import Keys
from fastfront.http.cors import Cors
from fastfront.http.listener import adopt, bind_tcp, bind_unix
from fastfront.http.tls import server_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.http.conftest import Client, Gate, Hanging, Serve, Served

    Connect = Callable[[socket.socket], Client]

GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def connect(served: Served) -> Connect:
    """Makes a client of a socket."""
    return type(served.client())


# --- listeners


def test_nobody_is_answered_before_the_start(bound: Serve) -> None:
    served = bound()
    with pytest.raises(ConnectionRefusedError):
        served.client()
    served.start()
    assert served.ask(GET % b"ok").status == 200


def test_an_inherited_socket_that_is_only_bound(bound: Serve) -> None:
    parent = socket.socket()
    parent.bind(("127.0.0.1", 0))
    served = bound(listeners=[adopt(os.dup(parent.fileno()))])
    with pytest.raises(ConnectionRefusedError):
        served.client()
    served.start()
    assert served.ask(GET % b"ok").status == 200
    parent.close()


def test_an_inherited_socket_that_listens(serve: Serve) -> None:
    parent = socket.socket()
    parent.bind(("127.0.0.1", 0))
    parent.listen()
    early = socket.create_connection(parent.getsockname())
    served = serve(listeners=[adopt(os.dup(parent.fileno()))])
    early.sendall(GET % b"ok")
    assert early.recv(15) == b"HTTP/1.1 200 OK"
    early.close()
    assert served.ask(GET % b"ok").status == 200
    parent.close()


def test_an_inherited_unix_socket_is_not_removed(bound: Serve, tmp_path: Path, connect: Connect) -> None:
    path = str(tmp_path / "s")
    parent = socket.socket(socket.AF_UNIX)
    parent.bind(path)
    served = bound(listeners=[adopt(os.dup(parent.fileno()))]).start()
    ask_unix(connect, path)
    served.run(served.server.stop())
    assert os.path.exists(path)
    parent.close()


def ask_unix(connect: Connect, path: str) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    client = connect(sock)
    client.send(GET % b"echo")
    assert client.answer().json()["client"] == ""
    client.close()


def test_a_unix_socket(bound: Serve, tmp_path: Path, connect: Connect) -> None:
    path = str(tmp_path / "s")
    served = bound(listeners=[bind_unix(path, 0o600)])
    assert os.stat(path).st_mode & 0o777 == 0o600
    served.start()
    ask_unix(connect, path)
    with pytest.raises(StartError, match="another process listens there"):
        bind_unix(path)
    served.run(served.server.stop())
    assert not os.path.exists(path)


def test_a_stale_unix_socket_is_replaced(serve: Serve, tmp_path: Path, connect: Connect) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    serve(listeners=[bind_unix(path)])
    ask_unix(connect, path)


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(StartError, match="not a socket"):
        bind_unix(str(tmp_path / "s"))
    assert (tmp_path / "s").read_text() == "mine"


def test_bind_errors() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartError, match=r"cannot listen on 127\.0\.0\.1"):
            bind_tcp("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(StartError, match=r"cannot listen on no\.such\.host\.invalid:1"):
        bind_tcp("no.such.host.invalid", 1)
    with pytest.raises(StartError, match="cannot listen on /nowhere/s"):
        bind_unix("/nowhere/s")


def test_a_port_that_another_took_before_the_start(bound: Serve) -> None:
    served = bound()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", served.port))
        other.listen()
        with pytest.raises(StartError, match="cannot listen on"):
            served.start()


def test_reuse_port_lets_two_listen() -> None:
    one = bind_tcp("127.0.0.1", 0, reuse_port=True)
    two = bind_tcp("127.0.0.1", one.port() or 0, reuse_port=True)
    one.sock.listen()
    two.sock.listen()
    one.remove()
    two.remove()


def test_what_cannot_be_adopted() -> None:
    with pytest.raises(StartError, match="not a socket"):
        adopt(os.open("/dev/null", os.O_RDONLY))
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams, pytest.raises(StartError, match="stream socket"):
        adopt(datagrams.fileno())
    with pytest.raises(StartError, match="not a socket"):
        adopt(1_000_000)


def test_several_listeners(serve: Serve, tmp_path: Path, connect: Connect) -> None:
    path = str(tmp_path / "s")
    served = serve(listeners=[bind_tcp("127.0.0.1", 0), bind_unix(path)])
    assert served.ask(GET % b"ok").status == 200
    ask_unix(connect, path)


# --- stop


def stop(served: Served, drain: float) -> Future[None]:
    import asyncio

    return asyncio.run_coroutine_threadsafe(served.server.stop(drain), served.loop)


def test_drain_finishes_what_runs(served: Served, gate: Gate) -> None:
    served.add("/gate", gate)
    idle, busy = served.client(), served.client()
    idle.send(GET % b"ok")
    idle.answer()
    busy.send(GET % b"gate?1" + GET % b"gate?2")
    gate.started.wait()
    assert served.server.active == 1
    stopped = stop(served, 20)
    assert idle.ended()
    served.until(lambda: served.server.draining)
    with pytest.raises(ConnectionRefusedError):
        served.client()
    gate.open()
    first, second = busy.answer(), busy.answer()
    assert (first.body, first.headers.get("connection")) == (b"1", None)
    assert (second.body, second.headers.get("connection")) == (b"2", "close")
    assert busy.ended()
    assert stopped.result(20) is None
    assert served.server.active == 0


def test_drain_finishes_streams_that_began_before(served: Served, gate: Gate) -> None:
    async def stream(request: HttpRequest, reply: Reply) -> None:
        outbox = reply.open_stream(200, "text/plain")

        class Later:
            def send(self, *_: object) -> None:
                outbox.append(b"end")

        await gate(request, Later())  # type: ignore[arg-type]
        reply.close_stream()

    served.add("/stream", stream)
    client = served.client()
    client.send(GET % b"stream")
    client.until(b"\r\n\r\n")
    stopped = stop(served, 20)
    served.until(lambda: served.server.draining)
    gate.open()
    assert client.chunked() == b"end"
    assert client.ended()
    stopped.result(20)


def test_drain_takes_in_what_is_on_its_way(served: Served) -> None:
    client = served.client()
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na")
    served.until(lambda: any(connection.busy for connection in served.server.connections))
    stopped = stop(served, 20)
    served.until(lambda: served.server.draining)
    client.send(b"bc")
    answer = client.answer()
    assert (answer.json()["body"], answer.headers["connection"]) == (b"abc".hex(), "close")
    assert client.ended()
    stopped.result(20)


def test_drain_has_an_end(served: Served, hanging: Hanging) -> None:
    served.add("/hang", hanging)
    client = served.client()
    client.send(GET % b"hang")
    assert hanging.started.acquire(timeout=20)
    stop(served, 0.1).result(20)
    assert hanging.cancelled.acquire(timeout=20)
    assert client.ended()
    assert not served.server.connections


def test_stop_without_drain(served: Served, hanging: Hanging) -> None:
    served.add("/hang", hanging)
    client = served.client()
    client.send(GET % b"hang")
    assert hanging.started.acquire(timeout=20)
    stop(served, 0).result(20)
    assert hanging.cancelled.acquire(timeout=20)
    assert served.server.active == 0
    assert client.ended()


def test_an_outbox_that_fails_keeps_no_head_from_going_out(served: Served) -> None:
    flushed: list[str] = []

    class Stub:
        def __init__(self, name: str) -> None:
            self.name = name

        def flush(self) -> None:
            flushed.append(self.name)
            if self.name == "bad":
                raise ValueError(self.name)

    def begin(*names: str) -> None:
        for name in names:
            stub: Any = Stub(name)
            served.server.flush_later(stub)

    served.loop.call_soon_threadsafe(begin, "bad", "good")
    served.until(lambda: flushed == ["bad", "good"])
    served.loop.call_soon_threadsafe(begin, "bad", "better")
    served.until(lambda: flushed[2:] == ["bad", "better"])


# --- keys


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        ("/v1/x", None, 401),
        ("/v1/x", "Bearer wrong", 401),
        ("/v1/x", "Bearer one", 404),
        ("/v1/x", "bearer two", 404),
        ("/v1/x", "Bearer  one", 401),
        ("/v1/x", "Basic one", 401),
        ("/v1/x", "one", 401),
        ("/v1/x", "Bearer sch\u00c3\u00b6n", 404),  # UTF-8 on the wire
        ("/%76%31/x", None, 401),
        ("/v2/x", None, 401),
        ("/inference/x", None, 401),
        ("/ok", None, 200),
    ],
)
def test_keys(serve: Serve, path: str, header: str | None, status: int) -> None:
    served = serve(keys=Keys(["one", "two", "schön"]))
    given = f"Authorization: {header}\r\n" if header is not None else ""
    assert served.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n{given}\r\n".encode("latin-1")).status == status


def test_options_needs_no_key(serve: Serve) -> None:
    served = serve(keys=Keys(["one"]))
    served.add("/v1/ok", served.router.find("GET", "/ok"))
    assert served.ask(b"OPTIONS /v1/ok HTTP/1.1\r\nHost: x\r\n\r\n").status == 200


# --- cross-origin rules


def preflight(served: Served, **headers: str) -> Any:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return served.ask(f"OPTIONS /v1/x HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())


def test_preflight(serve: Serve) -> None:
    served = serve(cors=Cors(), keys=Keys(["one"]))
    answer = preflight(
        served,
        Origin="http://a",
        Access_Control_Request_Method="POST",
        Access_Control_Request_Headers="authorization,x-y",
    )
    assert (answer.status, answer.body) == (200, b"OK")
    assert {name: value for name, value in answer.headers.items() if name.startswith("access-")} == {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY",
        "access-control-allow-headers": "authorization,x-y",
        "access-control-max-age": "600",
    }
    assert answer.headers["vary"].startswith("Origin, Access-Control-Request-Method")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_preflight_of_strangers(serve: Serve) -> None:
    served = serve(cors=Cors(["http://a"], ["GET"], ["X-Ok"], credentials=True))
    good = preflight(
        served, Origin="http://a", Access_Control_Request_Method="GET", Access_Control_Request_Headers="x-ok, accept"
    )
    assert good.status == 200
    assert good.headers["access-control-allow-origin"] == "http://a"
    assert good.headers["access-control-allow-credentials"] == "true"
    assert "X-Ok" in good.headers["access-control-allow-headers"]
    bad = preflight(
        served,
        Origin="http://b",
        Access_Control_Request_Method="PUT",
        Access_Control_Request_Headers="x-no",
        Access_Control_Request_Private_Network="true",
    )
    assert (bad.status, bad.body) == (400, b"Disallowed CORS origin, method, headers, private-network")
    assert "access-control-allow-origin" not in bad.headers


@pytest.mark.parametrize(
    ("cors", "origin", "want"),
    [
        (Cors(), "http://a", {"access-control-allow-origin": "*", "vary": "Origin"}),
        (Cors(), None, {"vary": "Origin"}),
        (
            Cors(credentials=True),
            "http://a",
            {
                "access-control-allow-origin": "http://a",
                "access-control-allow-credentials": "true",
                "vary": "Origin",
            },
        ),
        (Cors(["http://a"]), "http://a", {"access-control-allow-origin": "http://a", "vary": "Origin"}),
        (Cors(["http://a"]), "http://b", {"vary": "Origin"}),
        (None, "http://a", {}),
    ],
)
@pytest.mark.parametrize("path", ["ok", "none"])
def test_other_answers(serve: Serve, cors: Cors | None, origin: str | None, want: dict[str, str], path: str) -> None:
    served = serve(cors=cors)
    line = f"Origin: {origin}\r\n" if origin else ""
    answer = served.ask(f"GET /{path} HTTP/1.1\r\nHost: x\r\n{line}\r\n".encode())
    assert {n: v for n, v in answer.headers.items() if n.startswith("access-") or n == "vary"} == want


# --- TLS


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """cert.pem and key.pem for localhost, both.pem with the two."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return folder


def client_context(pems: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pems / "cert.pem"))


@pytest.mark.parametrize("combined", [True, False])
def test_tls(serve: Serve, pems: Path, combined: bool) -> None:
    names = (str(pems / "both.pem"), None) if combined else (str(pems / "cert.pem"), str(pems / "key.pem"))
    served = serve(tls=server_context(*names))

    async def stream(request: HttpRequest, reply: Reply) -> None:
        outbox = reply.open_stream(200, "text/plain")
        for _ in range(100):
            outbox.append(b"x" * 10_000)
            served.flusher.flush()
        reply.close_stream()

    served.add("/stream", stream)
    client = served.tls_client(client_context(pems))
    client.send(GET % b"ok" + GET % b"stream" + b"GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert client.answer().body == b"ok"
    assert client.answer().body == b"x" * 1_000_000
    assert client.answer().body == b"ok"
    assert client.ended()


def test_tls_leaving_cancels(serve: Serve, pems: Path, hanging: Hanging) -> None:
    served = serve(tls=server_context(str(pems / "both.pem")))
    served.add("/hang", hanging)
    client = served.tls_client(client_context(pems))
    client.send(GET % b"hang")
    assert hanging.started.acquire(timeout=20)
    client.close()
    assert hanging.cancelled.acquire(timeout=20)


def test_tls_who_does_not_read_is_cut_off(serve: Serve, pems: Path) -> None:
    import asyncio
    import threading

    served = serve(tls=server_context(str(pems / "both.pem")), outbox_limit=100_000)
    cancelled = threading.Event()

    async def stream(request: HttpRequest, reply: Reply) -> None:
        outbox = reply.open_stream(200, "text/plain")
        try:
            while True:
                outbox.append(b"x" * 10_000)
                served.flusher.flush()
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    served.add("/stream", stream)
    client = served.tls_client(client_context(pems))
    client.send(GET % b"stream")
    assert cancelled.wait(20)


def test_tls_client_certificates(serve: Serve, pems: Path) -> None:
    context = server_context(str(pems / "both.pem"), None, str(pems / "cert.pem"), ssl.CERT_REQUIRED, "ECDHE+AESGCM")
    served = serve(tls=context)
    known = client_context(pems)
    known.load_cert_chain(pems / "both.pem")
    client = served.tls_client(known)
    client.send(GET % b"ok")
    assert client.answer().body == b"ok"
    got = b""
    with suppress(ssl.SSLError, ConnectionError):
        stranger = served.tls_client(client_context(pems))
        stranger.send(GET % b"ok")
        got = stranger.rest()
    assert got == b""


def test_tls_settings_that_are_wrong(pems: Path) -> None:
    good = str(pems / "both.pem")
    for arguments, name in [
        (("/none.pem",), "ssl_certfile"),
        ((good, "/none.pem"), "ssl_keyfile"),
        ((good, None, "/none.pem"), "ssl_ca_certs"),
        ((good, None, good, 3), "ssl_cert_reqs"),
        ((good, None, None, 2), "ssl_ca_certs"),
        ((good, None, None, 0, "NOSUCHCIPHER"), "ssl_ciphers"),
    ]:
        with pytest.raises(ConfigError, match=name):
            server_context(*arguments)  # type: ignore[arg-type]


def test_plain_http_to_a_tls_port(serve: Serve, pems: Path) -> None:
    served = serve(tls=server_context(str(pems / "both.pem")))
    client = served.client()
    client.send(GET % b"ok")
    client.ended()
    good = served.tls_client(client_context(pems))
    good.send(GET % b"ok")
    assert good.answer().body == b"ok"


# --- what is told of answers


def test_every_answer_is_told_of_once(serve: Serve) -> None:
    """With its route's pattern, streams and refusals too; not what is no request, nor an answer that nobody gets."""
    told: list[tuple[str, str, int]] = []

    async def stream(request: HttpRequest, reply: Reply) -> None:
        reply.open_stream(200, "text/plain").append(b"x")

    async def broken(request: HttpRequest, reply: Reply) -> None:
        raise RuntimeError("broken")

    served = serve(observe=lambda *answer: told.append(answer), keys=Keys(["k"]))
    served.add("/items/{id}", stream)
    served.add("/broken", broken)
    for line in (
        b"GET /ok", b"HEAD /ok", b"GET /items/7", b"GET /items/8", b"GET /broken", b"GET /nothing", b"DELETE /ok",
        b"OPTIONS /ok", b"GET /v1/x",
    ):  # fmt: skip
        client = served.client()
        client.send(line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.rest().startswith(b"HTTP/1.1 ")
    client = served.client()
    client.send(b"no request\r\n\r\n")
    assert client.rest().startswith(b"HTTP/1.1 400 ")
    assert told == [
        ("GET", "/ok", 200), ("HEAD", "/ok", 200), ("GET", "/items/{id}", 200), ("GET", "/items/{id}", 200),
        ("GET", "/broken", 500), ("GET", "none", 404), ("DELETE", "/ok", 405), ("OPTIONS", "/ok", 200),
        ("GET", "none", 401),
    ]  # fmt: skip


# --- rest


def test_idle_is_told_when_nothing_is_under_way(bound: Serve, gate: Gate) -> None:
    """Now and then, also beside connections that only wait; never beside a request."""
    told: list[bool] = []
    served: Served = bound(
        keep_alive_timeout=0.04, idle=lambda: told.append(any(one.busy for one in served.server.connections))
    )
    served.add("/gate", gate)
    served.start()
    busy, waiting = served.client(), served.client()
    busy.send(GET % b"gate?x")
    assert gate.started.wait(20)
    waiting.send(GET % b"ok")
    assert waiting.answer().status == 200
    assert waiting.ended()  # by a look at all deadlines, while the other was busy
    seen = len(told)
    gate.open()
    assert busy.answer().body == b"x"
    served.until(lambda: len(told) > seen)
    assert not any(told)


def test_idle_is_not_told_while_a_client_does_not_read(bound: Serve) -> None:
    stuck: list[bool] = []

    def idle() -> None:
        stuck.append(any(one.stuck for one in served.server.connections))

    served: Served = bound(keep_alive_timeout=0.04, idle=idle)
    served.add("/big", lambda request, reply: reply.send(200, b"x" * (1 << 23)))
    served.start()
    slow = served.client(receive_buffer=4096)
    slow.send(GET % b"big")
    served.until(lambda: any(one.stuck for one in served.server.connections))
    waiting = served.client()
    waiting.send(GET % b"ok")
    assert waiting.answer().status == 200
    assert waiting.ended()  # by a look at all deadlines
    assert not any(stuck)
    slow.close()
    seen = len(stuck)
    served.until(lambda: len(stuck) > seen)
    assert not any(stuck)


def test_idle_is_told_when_the_last_connection_has_gone(bound: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastfront.http.server.TICK_S", (3600.0, 3600.0))
    told: list[int] = []
    served: Served = bound(idle=lambda: told.append(len(served.server.connections)))
    served.start()
    clients = [served.client(), served.client()]
    for client in clients:
        client.send(GET % b"ok")
        assert client.answer().status == 200
    assert told == [0]  # as it began
    for client in clients:
        client.close()
    served.until(lambda: told == [0, 0])
