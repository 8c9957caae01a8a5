"""Answers: streams, errors before and after the beginning, clients that do not read, headers that must not get out."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from fastfront.errors import EngineError, RequestError
from fastfront.flow import HttpRequest, Reply

if TYPE_CHECKING:
    from tests.http.conftest import Serve, Served

GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"
OK = GET % b"ok"


def test_a_stream_is_chunked(served: Served) -> None:
    async def stream(request: HttpRequest, reply: Reply) -> None:
        outbox = reply.open_stream(200, "text/event-stream; charset=utf-8", [("cache-control", "no-cache")])
        for i in range(3):
            outbox.append(b"data: %d\n\n" % i)
            served.flusher.flush()
            await asyncio.sleep(0)
        outbox.append(b"data: [DONE]\n\n")
        reply.close_stream()

    served.add("/stream", stream)
    client = served.client()
    client.send(GET % b"stream" + OK)
    head = client.until(b"\r\n\r\n")
    assert b"\r\ntransfer-encoding: chunked\r\n" in head
    assert b"\r\ncontent-type: text/event-stream; charset=utf-8\r\n" in head
    assert b"\r\ncache-control: no-cache\r\n" in head
    assert b"content-length" not in head
    assert client.chunked() == b"data: 0\n\ndata: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert client.answer().body == b"ok"


def test_the_head_of_a_stream_does_not_wait_for_its_body(served: Served, gate: Any) -> None:
    async def stream(request: HttpRequest, reply: Reply) -> None:
        reply.open_stream(200, "text/event-stream")
        await asyncio.get_running_loop().run_in_executor(None, release.wait, 20)

    release = threading.Event()
    served.add("/stream", stream)
    client = served.client()
    client.send(GET % b"stream")
    assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
    release.set()
    assert client.chunked() == b"", "a handler that returns has ended its stream"


def test_http_1_0_streams_end_with_the_connection(served: Served) -> None:
    async def stream(request: HttpRequest, reply: Reply) -> None:
        reply.open_stream(200, "text/plain").append(b"abc")
        reply.close_stream()

    served.add("/stream", stream)
    client = served.client()
    client.send(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    answer = client.answer()
    assert (answer.body, answer.headers["connection"]) == (b"abc", "close")
    assert "transfer-encoding" not in answer.headers


def test_a_large_stream_to_a_client_that_reads(served: Served) -> None:
    block = bytes(range(256)) * 256

    async def stream(request: HttpRequest, reply: Reply) -> None:
        outbox = reply.open_stream(200, "text/plain")
        for _ in range(500):
            outbox.append(block)
            served.flusher.flush()
            while outbox.pending() > 1_000_000:  # noqa: ASYNC110  # an outbox has no event
                await asyncio.sleep(0.001)
        reply.close_stream()

    served.add("/stream", stream)
    client = served.client(receive_buffer=4096)
    client.send(GET % b"stream" + OK)
    assert client.answer().body == block * 500
    assert client.answer().body == b"ok"


def test_who_does_not_read_is_cut_off(serve: Serve) -> None:
    served = serve(outbox_limit=100_000)
    cancelled = threading.Event()
    most = 0

    async def stream(request: HttpRequest, reply: Reply) -> None:
        nonlocal most
        outbox = reply.open_stream(200, "text/plain")
        try:
            while True:
                outbox.append(b"x" * 10_000)
                served.flusher.flush()
                most = max(most, outbox.pending())
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    served.add("/stream", stream)
    client = served.client(receive_buffer=4096)
    client.send(GET % b"stream")
    assert cancelled.wait(20)
    assert most <= 110_000
    served.until(lambda: not served.server.connections)
    data = client.rest()
    assert not data.endswith(b"0\r\n\r\n")
    assert served.ask(OK).body == b"ok"


def test_who_does_not_read_whole_answers_is_cut_off(serve: Serve) -> None:
    served = serve(write_timeout=0.2)

    async def large(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, b"x" * 20_000_000)

    served.add("/large", large)
    client = served.client(receive_buffer=4096)
    client.send(GET % b"large" + OK)
    client.until(b"\r\n\r\n")
    served.until(lambda: not served.server.connections)


def test_large_whole_answers_are_not_hurried(serve: Serve) -> None:
    served = serve(keep_alive_timeout=0.05)

    async def large(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, b"x" * 20_000_000)

    served.add("/large", large)
    client = served.client(receive_buffer=4096)
    client.send(GET % b"large" + OK)
    assert len(client.answer().body) == 20_000_000
    assert client.answer().body == b"ok"


def test_an_error_before_the_answer_is_rendered(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(request: HttpRequest, reply: Reply) -> None:
        raise RequestError("no such thing", param="n")

    async def crash(request: HttpRequest, reply: Reply) -> None:
        raise KeyError("inside")

    async def silent(request: HttpRequest, reply: Reply) -> None:
        pass

    served.add("/refuse", refuse)
    served.add("/crash", crash)
    served.add("/silent", silent)
    client = served.client()
    client.send(GET % b"refuse" + GET % b"crash" + GET % b"silent" + OK)
    assert (client.answer().json()) == {"error": "no such thing"}
    assert client.answer().status == 500
    assert client.answer().status == 500
    assert client.answer().body == b"ok"
    logged = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == 2, "the client's faults are not logged"


def test_an_error_that_cannot_be_rendered(serve: Serve) -> None:
    def broken(error: Exception) -> Any:
        raise ValueError("oops")

    served = serve(render_error=broken)
    client = served.client()
    client.send(GET % b"none" + OK)
    assert client.answer().status == 500
    assert client.answer().body == b"ok"


def test_an_error_after_the_beginning_cuts_the_answer(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    async def stream(request: HttpRequest, reply: Reply) -> None:
        reply.open_stream(200, "text/plain").append(b"abc")
        raise EngineError("gone")

    served.add("/stream", stream)
    client = served.client()
    client.send(GET % b"stream" + OK)
    assert client.rest().endswith(b"\r\n\r\n3\r\nabc\r\n"), "all that there was, and no last chunk"
    assert "gone" in caplog.text
    client = served.client()
    client.send(b"GET /stream HTTP/1.0\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        client.rest()


def test_an_error_after_the_whole_answer_harms_nobody(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    async def late(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, b"fine")
        await asyncio.sleep(0)
        raise ValueError("too late")

    served.add("/late", late)
    client = served.client()
    client.send(GET % b"late" + OK)
    assert client.answer().body == b"fine"
    assert client.answer().body == b"ok"
    served.until(lambda: "too late" in caplog.text)


def test_one_request_has_one_answer(served: Served) -> None:
    caught: list[str] = []

    async def twice(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, b"1")
        for again in (lambda: reply.send(200), lambda: reply.open_stream(200, "text/plain"), reply.close_stream):
            try:
                again()
            except RuntimeError as error:
                caught.append(str(error))

    served.add("/twice", twice)
    assert served.ask(GET % b"twice").body == b"1"
    served.until(lambda: len(caught) == 3)


@pytest.mark.parametrize(
    "header",
    [
        *[("x", "a\r\nb: c"), ("x", "a\nb"), ("x", "a\rb"), ("x", "a\0b"), ("x\r\ny", "a"), ("x y", "a"), ("x:", "a")],
        *[("", "a"), ("x", "€"), ("content-length", "5"), ("Transfer-Encoding", "chunked"), ("connection", "close")],
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_headers_cannot_be_injected(served: Served, header: tuple[str, str], streamed: bool) -> None:
    async def inject(request: HttpRequest, reply: Reply) -> None:
        if streamed:
            reply.open_stream(200, "text/plain", [header])
        else:
            reply.send(200, b"", headers=(header,))

    served.add("/inject", inject)
    client = served.client()
    client.send(GET % b"inject" + OK)
    answer = client.answer()
    assert (answer.status, "b" in answer.headers) == (500, False)
    assert client.answer().body == b"ok"


def test_content_types_cannot_inject(served: Served) -> None:
    async def inject(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, b"", "text/plain\r\nb: c")

    served.add("/inject", inject)
    assert served.ask(GET % b"inject").status == 500


def test_no_body_where_there_must_be_none(served: Served) -> None:
    async def empty(request: HttpRequest, reply: Reply) -> None:
        reply.send(int(request.query), b"never", None)

    served.add("/empty", empty)
    client = served.client()
    client.send(GET % b"empty?204" + GET % b"empty?304" + GET % b"empty?101" + OK)
    for status in (204, 304):
        answer = client.answer()
        assert (answer.status, "content-length" in answer.headers) == (status, False)
    assert client.answer().status == 500, "not an answer's status"
    assert client.answer().body == b"ok"


def test_request_ids(serve: Serve) -> None:
    served = serve(request_id_headers=True)
    client = served.client()
    client.send(b"GET /ok HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-\xe9\r\n\r\n" + OK + GET % b"none" + b"x y\r\n\r\n")
    assert client.answer().headers["x-request-id"] == "mine-é"
    others = [client.answer() for _ in range(3)]
    assert [answer.status for answer in others] == [200, 404, 400]
    ids = {answer.headers["x-request-id"] for answer in others}
    assert len(ids) == 3
    assert all(len(bytes.fromhex(one)) == 16 for one in ids)


def test_access_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    serve().ask(OK)
    assert not [r for r in caplog.records if r.name == "fastfront.access"]
    served = serve(access_log=True)
    served.ask(b"GET /ok?%0d%0a HTTP/1.1\r\nHost: x\r\n\r\n")
    served.until(lambda: "fastfront.access" in [r.name for r in caplog.records])
    (line,) = [r.getMessage() for r in caplog.records if r.name == "fastfront.access"]
    assert line.endswith(' - "GET /ok?%0d%0a HTTP/1.1" 200')


def test_a_handler_that_is_cancelled_from_inside(served: Served) -> None:
    async def cancelled(request: HttpRequest, reply: Reply) -> None:
        raise asyncio.CancelledError

    served.add("/cancelled", cancelled)
    client = served.client()
    client.send(GET % b"cancelled" + OK)
    assert client.answer().status == 500
    assert client.answer().body == b"ok"
