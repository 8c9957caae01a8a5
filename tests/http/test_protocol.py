"""Connections: keep-alive, pipelining, bodies, times, clients that leave. On uvloop and on asyncio's own loop."""

from __future__ import annotations

import gc
import re
import socket
import struct
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from fastfront.errors import MalformedRequestError
from fastfront.flow import HttpRequest, Reply, Running

if TYPE_CHECKING:
    from tests.http.conftest import Gate, Hanging, Serve, Served

GET = b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"


def get(target: str, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"GET {target} HTTP/{version}", "Host: x", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(body: bytes, *headers: str, target: str = "/echo") -> bytes:
    lines = [f"POST {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


# --- answers


def test_a_whole_answer_has_these_headers(served: Served) -> None:
    answer = served.ask(GET)
    assert answer.status == 200
    assert answer.body == b"ok"
    assert answer.headers.pop("date").endswith(" GMT")
    assert answer.headers == {"server": "fastfront", "content-length": "2", "content-type": "text/plain"}


def test_the_request_reaches_the_handler(served: Served) -> None:
    seen = served.ask(
        b"POST /%65cho?q=%20a&b HTTP/1.1\r\nHOST: h\r\nX-Two: 1\r\nx-two:  2 \r\nContent-Length: 3\r\n\r\nabc"
    ).json()
    assert re.fullmatch(r"127\.0\.0\.1:\d+", seen.pop("client"))
    assert seen == {
        "method": "POST",
        "path": "/echo",
        "query": "q=%20a&b",
        "headers": {"host": "h", "x-two": "1, 2", "content-length": "3"},
        "body": b"abc".hex(),
    }


def test_keep_alive_serves_one_after_the_other(served: Served) -> None:
    client = served.client()
    for size in (0, 3, 100_000):
        client.send(post(b"x" * size))
        assert client.answer().json()["body"] == "78" * size
    client.send(get("/ok", "Connection: close"))
    answer = client.answer()
    assert answer.headers["connection"] == "close"
    assert client.ended()


def test_an_absolute_target_is_a_path(served: Served) -> None:
    assert served.ask(get("http://elsewhere:80/ok?x")).status == 200


def test_a_handler_may_answer_at_once(served: Served) -> None:
    """Without a task; what it raises, or leaves out, is answered as a task's."""

    def at_once(request: HttpRequest, reply: Reply) -> None:
        if request.query == "wrong":
            raise MalformedRequestError("no")
        if request.query != "nothing":
            reply.send(200, b"now")

    served.add("/now", at_once)
    client = served.client()
    client.send(get("/now") * 40 + GET)
    assert [client.answer().body for _ in range(41)] == [b"now"] * 40 + [b"ok"]
    assert served.ask(get("/now?wrong")).status == 400
    assert served.ask(get("/now?nothing")).status == 500
    served.until(lambda: served.server.active == 0)


class Lasting:
    """A handler that goes on without a task, until the test lets it end."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.cancelled = threading.Semaphore(0)
        self.replies: list[Reply] = []

    def __call__(self, request: HttpRequest, reply: Reply) -> Running:
        self.replies.append(reply)
        self.started.release()
        return self

    def cancel(self) -> None:
        self.cancelled.release()


def test_an_answer_may_go_on_without_a_task(served: Served) -> None:
    lasting = Lasting()
    served.add("/last", lasting)
    client = served.client()
    client.send(get("/last") * 3 + GET)
    for error, status, body in ((None, 200, b"late"), (MalformedRequestError("no"), 400, None), (None, 500, None)):
        assert lasting.started.acquire(timeout=20)
        reply = lasting.replies.pop()
        assert served.server.active == 1

        def end(reply: Reply = reply, error: Exception | None = error, body: bytes | None = body) -> None:
            if body is not None:
                reply.send(200, body)
            reply.end(error)
            reply.end()  # once more does nothing

        served.loop.call_soon_threadsafe(end)
        answer = client.answer()
        assert answer.status == status
        assert body is None or answer.body == body
    assert client.answer().body == b"ok"
    assert not lasting.cancelled.acquire(blocking=False)


def test_what_goes_on_may_be_over_at_once(served: Served) -> None:
    lasting = Lasting()

    def over(request: HttpRequest, reply: Reply) -> Running:
        reply.open_stream(200, "text/plain").append(b"over")
        reply.close_stream()
        reply.end()
        return lasting

    served.add("/over", over)
    client = served.client()
    client.send(get("/over") * 40 + GET)
    assert [client.answer().body for _ in range(41)] == [b"over"] * 40 + [b"ok"]
    assert not lasting.cancelled.acquire(blocking=False)


def test_what_goes_on_ends_with_its_client(served: Served) -> None:
    lasting = Lasting()

    def goes(request: HttpRequest, reply: Reply) -> Running:
        (connection,) = served.server.connections
        connection.drop()
        return lasting(request, reply)

    served.add("/last", lasting)
    served.add("/goes", goes)
    for path in ("/last", "/goes"):
        client = served.client()
        client.send(get(path) * 2)
        assert lasting.started.acquire(timeout=20)
        client.close()
        assert lasting.cancelled.acquire(timeout=20)
        served.until(lambda: not served.server.connections)
    assert not lasting.started.acquire(blocking=False)
    assert not lasting.cancelled.acquire(blocking=False)


def test_nothing_of_a_client_that_left_waits_for_the_collector(served: Served, hanging: Hanging) -> None:
    left: list[weakref.ref[Any]] = []

    class Holding(Lasting):
        """Knows its reply, as answers do; its stream has begun."""

        def __init__(self, reply: Reply) -> None:
            super().__init__()
            self.reply = reply
            self.outbox = reply.open_stream(200, "text/plain")

    def hold(request: HttpRequest, reply: Reply) -> Running:
        left.append(weakref.ref(reply))
        return Holding(reply)

    served.add("/hold", hold)
    gc.disable()
    try:
        for _ in range(3):
            client = served.client()
            client.send(get("/hold"))
            served.until(lambda: bool(left))
            client.close()
            served.until(lambda: not served.server.connections)
            served.until(lambda: left[0]() is None)
            left.clear()
    finally:
        gc.enable()


def test_unknown_path_and_method(served: Served) -> None:
    client = served.client()
    client.send(get("/none") + b"DELETE /echo HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
    assert client.answer().status == 404
    refused = client.answer()
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST, PUT")
    assert client.answer().body == b"ok"


def test_head_has_the_length_and_no_body(served: Served) -> None:
    client = served.client()
    client.send(b"HEAD /ok HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
    answer = client.answer(bodiless=True)
    assert (answer.status, answer.headers["content-length"]) == (200, "2")
    assert client.answer().body == b"ok"
    client.send(b"HEAD /none HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
    assert client.answer(bodiless=True).status == 404
    assert client.answer().body == b"ok"


def test_head_of_a_stream_has_no_body(served: Served) -> None:
    async def stream(request: HttpRequest, reply: Reply) -> None:
        reply.open_stream(200, "text/event-stream").append(b"data: x\n\n" * 1000)
        reply.close_stream()

    served.add("/stream", stream)
    client = served.client()
    client.send(b"HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
    assert client.answer(bodiless=True).headers["content-type"] == "text/event-stream"
    assert client.answer().body == b"ok"


def test_options_tells_the_methods(served: Served) -> None:
    client = served.client()
    client.send(b"OPTIONS /ok HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = client.answer()
    assert (answer.status, answer.headers["allow"], answer.body) == (200, "GET, HEAD, OPTIONS", b"")
    client.send(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.answer().status == 200
    client.send(b"OPTIONS /none HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.answer().status == 404


def test_http_1_0(served: Served) -> None:
    client = served.client()
    client.send(b"GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert client.answer().headers["connection"] == "keep-alive"
    client.send(b"GET /ok HTTP/1.0\r\n\r\n")
    answer = client.answer()
    assert (answer.body, answer.headers["connection"]) == (b"ok", "close")
    assert client.ended()


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
def test_an_upgrade_is_ignored(served: Served, upgrade: str) -> None:
    headers = (f"Upgrade: {upgrade}", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    client = served.client()
    client.send(get("/ok", *headers) + GET)
    assert client.answer().body == b"ok"
    assert client.answer().body == b"ok"
    client.send(post(b"GET /x HTTP/1.1", *headers) + GET)
    assert client.answer().json()["body"] == b"GET /x HTTP/1.1".hex()
    assert client.answer().body == b"ok"
    chunked = b"\r\n".join(
        [b"POST /echo HTTP/1.1", b"Host: x", *(h.encode() for h in headers), b"Transfer-Encoding: chunked", b"", b""]
    )
    client.send(chunked + b"3\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n" + GET)
    assert client.answer().json()["body"] == b"abc".hex()
    assert client.answer().body == b"ok"


def test_an_answer_over_ipv6(serve: Serve) -> None:
    from fastfront.http.listener import bind_tcp

    listener = bind_tcp("::1", 0)
    served = serve(listeners=[listener])
    sock = socket.create_connection(("::1", served.port))
    sock.sendall(get("/echo", "Connection: close"))
    data = b""
    while more := sock.recv(65536):
        data += more
    assert b'"client": "[::1]:' in data


# --- bodies


def test_chunked_body_with_extension_and_trailer(served: Served) -> None:
    client = served.client()
    client.send(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;a=b\r\nabc\r\n00a\r\n0123\r\n\r\n89\r\n0\r\nX-Evil: 1\r\nContent-Type: y\r\n\r\n" + get("/echo")
    )
    seen = client.answer().json()
    assert bytes.fromhex(seen["body"]) == b"abc0123\r\n\r\n89"
    assert "x-evil" not in seen["headers"]
    assert client.answer().json()["headers"] == {"host": "x"}


def test_expect_100_continue(served: Served) -> None:
    client = served.client()
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    client.send(head)
    assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"abc")
    assert client.answer().json()["body"] == b"abc".hex()
    client.send(head + b"abc")
    answer = client.answer()
    assert answer.status == 200, "with the body already there, nobody needs to be asked"
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert client.answer().status == 100
    client.send(b"1\r\nx\r\n0\r\n\r\n")
    assert client.answer().json()["body"] == "78"


def test_100_continue_comes_after_the_answer_before_it(served: Served, gate: Gate) -> None:
    served.add("/gate", gate)
    client = served.client()
    client.send(get("/gate?1"))
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    gate.started.wait()
    gate.open()
    assert client.answer().body == b"1"
    assert client.answer().status == 100
    client.send(b"abc")
    assert client.answer().status == 200


def test_another_expectation_is_refused(served: Served) -> None:
    assert served.ask(post(b"", "Expect: miracles")).status == 400


def test_a_body_above_the_limit_is_refused_from_its_length(serve: Serve) -> None:
    served = serve(max_body_size=1000)
    client = served.client()
    client.send(post(b"x" * 1000))
    assert client.answer().status == 200
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
    answer = client.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert client.ended()


def test_a_chunked_body_above_the_limit_is_refused(serve: Serve) -> None:
    served = serve(max_body_size=1000)
    client = served.client()
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + b"x" * 1000 + b"\r\n")
    client.send(b"1\r\nx\r\n")
    assert client.answer().status == 413
    assert client.ended()


def test_who_still_sends_gets_the_refusal(serve: Serve) -> None:
    served = serve(max_body_size=1000)
    client = served.client()
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + b"x" * 8_000_000)
    assert client.answer().status == 413
    assert client.ended()


def test_a_large_body_arrives_whole(served: Served) -> None:
    body = bytes(range(256)) * 40_000
    assert served.ask(post(body)).json()["body"] == body.hex()


# --- limits of the head


def test_head_size(serve: Serve) -> None:
    served = serve(max_head_size=500)
    room = 500 - len(get("/echo", "A: "))
    assert served.ask(get("/echo", "A: " + "a" * room)).status == 200
    client = served.client()
    client.send(get("/echo", "A: " + "a" * (room + 1)))
    assert client.answer().status == 431
    assert client.ended()
    assert served.ask(get("/" + "a" * 500)).status == 431
    assert served.ask(b"GET / HTTP/1.1\r\nA:" + b" " * 500).status == 431, "not even finished"


def test_header_count(served: Served) -> None:
    assert served.ask(get("/ok", *[f"A{i}: b" for i in range(255)])).status == 200
    assert served.ask(get("/ok", *[f"A{i}: b" for i in range(256)])).status == 431


def test_trailers_and_extensions_count(serve: Serve) -> None:
    served = serve(max_head_size=1000)
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert served.ask(head + b"1;" + b"e" * 2000).status == 431
    assert served.ask(head + b"0\r\nA: " + b"e" * 2000).status == 431
    assert served.ask(head + b"0\r\n" + b"A: b\r\n" * 257).status == 431
    assert served.ask(head + b"1;e\r\nx\r\n" * 1000 + b"0\r\n\r\n").status == 200


# --- pipelining


def test_answers_come_in_order(served: Served, gate: Gate) -> None:
    served.add("/gate", gate)
    client = served.client()
    client.send(get("/gate?first") + GET + get("/none") + post(b"x"))
    gate.started.wait()
    gate.open()
    assert client.answer().body == b"first"
    assert client.answer().body == b"ok"
    assert client.answer().status == 404
    assert client.answer().json()["body"] == "78"


def test_only_so_many_wait(serve: Serve, gate: Gate) -> None:
    served = serve(max_pipelined=4)
    served.add("/gate", gate)
    client = served.client()
    client.send(get("/gate?0") + b"".join(get(f"/gate?{i}") for i in range(1, 1000)))
    gate.started.wait()
    (connection,) = served.server.connections
    served.until(lambda: connection.stuck)
    assert len(connection._queue) == 4
    gate.open()
    assert [client.answer().body for _ in range(1000)] == [b"%d" % i for i in range(1000)]


def test_only_so_many_bytes_wait(serve: Serve, gate: Gate) -> None:
    served = serve(max_body_size=1000)
    served.add("/gate", gate)
    client = served.client()
    client.send(get("/gate?0") + post(b"x" * 900) * 5)
    gate.started.wait()
    (connection,) = served.server.connections
    served.until(lambda: connection.stuck)
    assert len(connection._queue) == 2
    gate.open()
    assert client.answer().body == b"0"
    assert [client.answer().status for _ in range(5)] == [200] * 5


def test_many_at_once_answered_at_once(served: Served) -> None:
    client = served.client()
    client.send(get("/none") * 1000 + GET)
    assert [client.answer().status for _ in range(1001)] == [404] * 1000 + [200]


def test_malformed_after_good_ones(served: Served, gate: Gate) -> None:
    served.add("/gate", gate)
    client = served.client()
    client.send(get("/gate?1") + b"NONSENSE\r\n\r\n" + GET)
    gate.started.wait()
    gate.open()
    assert client.answer().body == b"1"
    assert client.answer().status == 400
    assert client.ended()


def test_nothing_is_served_after_close(served: Served) -> None:
    client = served.client()
    client.send(get("/ok", "Connection: close") + GET)
    assert client.answer().body == b"ok"
    assert client.ended()


# --- times


def test_idle_connections_close(serve: Serve) -> None:
    served = serve(keep_alive_timeout=0.1)
    client = served.client()
    client.send(GET)
    assert "connection" not in client.answer().headers
    assert client.ended()


def test_no_keep_alive_at_all(serve: Serve) -> None:
    served = serve(keep_alive_timeout=0)
    client = served.client()
    client.send(GET + GET)
    assert "connection" not in client.answer().headers
    assert client.answer().headers["connection"] == "close"
    assert client.ended()


def test_a_silent_connection_closes(serve: Serve) -> None:
    served = serve(header_timeout=0.1)
    assert served.client().ended()


@pytest.mark.parametrize(
    "part", [b"G", b"GET / HTTP/1.1\r\nHo", b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab"]
)
def test_a_slow_request_gets_408(serve: Serve, part: bytes) -> None:
    served = serve(header_timeout=0.1, body_timeout=0.1)
    client = served.client()
    client.send(part)
    answer = client.answer()
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert client.ended()


def test_dripping_does_not_help(serve: Serve) -> None:
    served = serve(header_timeout=0.2)
    client = served.client()
    client.sock.settimeout(0.02)
    client.send(b"GET / HTTP/1.1\r\n")
    try:
        for _ in range(1000):
            client.send(b"A: b\r\n")
            try:
                if not client.read() or b"\r\n\r\n" in client.data:
                    break
            except TimeoutError:
                pass
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert client.data.startswith(b"HTTP/1.1 408 ")


def test_a_handler_may_take_longer_than_the_times(serve: Serve, gate: Gate) -> None:
    served = serve(header_timeout=0.05, body_timeout=0.05, keep_alive_timeout=0.05)
    served.add("/gate", gate)
    client, other = served.client(), served.client()
    client.send(get("/gate?x"))
    gate.started.wait()
    assert other.ended()
    gate.open()
    assert client.answer().body == b"x"


# --- clients that leave


def reset(client: Any) -> None:
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_close(client: Any) -> None:
    client.sock.shutdown(socket.SHUT_WR)


LEAVE = [lambda client: client.close(), reset, half_close]


@pytest.mark.parametrize("leave", LEAVE, ids=["close", "reset", "half-close"])
def test_leaving_cancels_the_handler(served: Served, hanging: Hanging, leave: Any) -> None:
    served.add("/hang", hanging)
    client = served.client()
    client.send(get("/hang"))
    assert hanging.started.acquire(timeout=20)
    leave(client)
    assert hanging.cancelled.acquire(timeout=20)
    served.until(lambda: served.server.active == 0 and not served.server.connections)


@pytest.mark.parametrize("leave", LEAVE, ids=["close", "reset", "half-close"])
def test_leaving_forgets_what_was_queued(served: Served, hanging: Hanging, leave: Any) -> None:
    served.add("/hang", hanging)
    client = served.client()
    client.send(get("/hang?1") + get("/hang?2"))
    assert hanging.started.acquire(timeout=20)
    leave(client)
    assert hanging.cancelled.acquire(timeout=20)
    served.until(lambda: not served.server.connections)
    assert hanging.seen == ["1"]


def test_leaving_is_noticed_while_reading_is_paused(serve: Serve, hanging: Hanging) -> None:
    served = serve(max_pipelined=2)
    served.add("/hang", hanging)
    client = served.client()
    client.send(get("/hang") * 100)
    assert hanging.started.acquire(timeout=20)
    (connection,) = served.server.connections
    served.until(lambda: connection.stuck)
    client.close()
    assert hanging.cancelled.acquire(timeout=20)
    served.until(lambda: not served.server.connections)


def test_leaving_with_the_request_starts_nothing_that_stays(served: Served, hanging: Hanging) -> None:
    served.add("/hang", hanging)
    client = served.client()
    client.send(get("/hang"))
    half_close(client)
    assert client.ended()
    served.until(lambda: served.server.active == 0 and not served.server.connections)


def test_leaving_in_the_middle_of_a_request(served: Served) -> None:
    client = served.client()
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
    client.close()
    served.until(lambda: not served.server.connections)
    assert served.ask(GET).status == 200
