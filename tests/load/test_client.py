"""The client against a scripted server: what it measures, what is an error, and which connections it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter

import pytest

from fastfront.errors import ConfigError, FastfrontError
from fastfront.load import client as client_module
from fastfront.load.client import Client
from fastfront.load.options import Target
from fastfront.load.record import Record
from tests.load.scripted import CLOSE, DONE, END, HEAD, RESET, Piece, chunk, event, scripted, sized, stream, usage

GOOD: list[Piece] = [*stream(event("a"), event("b"), usage(3, 2), DONE)]
BAD: list[Piece] = [sized("400 Bad", b"x")]
WHOLE = b"".join(stream(event("a"), event("b"), usage(3, 2), DONE))


async def ask(*scripts: Sequence[Piece], count: int = 1) -> tuple[list[Record], int]:
    """The records of `count` requests one after the other, and how many connections they took."""
    async with scripted(*scripts) as server:
        client = Client(Target(base_url=server.url))
        records = [Record() for _ in range(count)]
        for record in records:
            await client.stream(b"{}", record)
        client.close()
        return records, server.connections


def one(*script: Piece) -> Record:
    return asyncio.run(ask(script))[0][0]


def test_a_good_answer() -> None:
    before = perf_counter()
    record = one(*GOOD)
    assert (record.error, record.prompt_tokens, record.output_tokens, len(record.times)) == ("", 3, 2, 2)
    assert before < record.start < record.times[0] <= record.times[1] < perf_counter()


@pytest.mark.parametrize("cut", range(1, len(WHOLE), 7))
def test_cut_anywhere(cut: int) -> None:
    record = one(WHOLE[:cut], WHOLE[cut:])
    assert (record.error, record.output_tokens, len(record.times)) == ("", 2, 2)


def test_a_byte_at_a_time() -> None:
    record = one(*(WHOLE[i : i + 1] for i in range(len(WHOLE))))
    assert (record.error, record.output_tokens, len(record.times)) == ("", 2, 2)


def test_a_slow_server_is_seen_in_the_times() -> None:
    async def run() -> Record:
        gate = asyncio.Event()
        first = HEAD + chunk(event("a"))
        async with scripted([first, gate, chunk(event("b")), END]) as server:
            client = Client(Target(base_url=server.url))
            record = Record()
            task = asyncio.create_task(client.stream(b"{}", record))
            while not record.times:  # noqa: ASYNC110  (the record tells nobody)
                await asyncio.sleep(0)
            between = perf_counter()
            gate.set()
            await task
            client.close()
            assert record.times[0] < between < record.times[1]
            return record

    assert asyncio.run(run()).error == ""


@pytest.mark.parametrize(
    "script, says",
    [
        ([sized("400 Bad Request", b'{"error":"max_tokens"}')], 'HTTP 400 Bad Request: {"error":"max_tokens"}'),
        ([sized("503 Busy", b"", "connection: close"), CLOSE], "HTTP 503 Busy: "),
        ([HEAD + chunk(event("a")), CLOSE], "the connection ended within an answer"),
        ([HEAD + chunk(event("a")), RESET], "connection lost: "),
        ([CLOSE], "no answer"),
        ([b"SSH-2.0\r\n\r\n"], "not an HTTP answer: 'SSH-2.0'"),
        (stream(event("a"), b'data: {"error":{"message":"engine died"}}\n\n', DONE), "engine died"),
        (stream(usage(1, 0)), "the answer had no event with a choice"),
        ([sized("200 OK", b'{"choices":[{"text":"whole"}]}')], "the answer had no event with a choice"),
    ],
)
def test_failures_say_why(script: list[Piece], says: str) -> None:
    error = one(*script).error
    assert error.startswith(says) if says.endswith(": ") else error == says


def test_no_server() -> None:
    async def run() -> Record:
        async with scripted() as server:
            port = server.port
        record = Record()
        await Client(Target(base_url=f"http://127.0.0.1:{port}")).stream(b"{}", record)
        return record

    assert asyncio.run(run()).error.startswith("cannot connect: ")


def test_connections_are_kept_after_good_and_bad_answers() -> None:
    records, connections = asyncio.run(ask(GOOD, BAD, GOOD, count=3))
    assert [bool(record.error) for record in records] == [False, True, False]
    assert connections == 1


def test_connections_are_not_kept_where_the_server_says_so() -> None:
    closing = [HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), *GOOD[1:], CLOSE]
    records, connections = asyncio.run(ask(closing, GOOD, count=2))
    assert [record.error for record in records] == ["", ""]
    assert connections == 2


@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_kept_connection_that_is_gone_is_replaced(end: str) -> None:
    """The second request goes out on a connection that ends without a byte: it is sent again on a new one."""
    records, connections = asyncio.run(ask(GOOD, [end], GOOD, count=2))
    assert [record.error for record in records] == ["", ""]
    assert connections == 2


def test_a_new_connection_that_ends_is_an_error() -> None:
    records, connections = asyncio.run(ask([CLOSE], GOOD))
    assert records[0].error == "no answer"
    assert connections == 1


@pytest.mark.parametrize("kept", [False, True])
def test_an_answer_that_takes_too_long(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    """It is given up with its connection, and not asked for again."""

    async def run() -> tuple[Record, int, int]:
        async with scripted(*[GOOD] * kept, [asyncio.Event()], again=GOOD) as server:
            client = Client(Target(base_url=server.url))
            if kept:
                await client.stream(b"{}", Record())
            monkeypatch.setattr(client_module, "TIMEOUT", 0.01)
            record = Record()
            await client.stream(b"{}", record)
            monkeypatch.undo()
            asked = len(server.bodies)
            after = Record()
            await client.stream(b"{}", after)
            assert after.error == ""
            client.close()
            return record, asked - kept, server.connections

    record, asked, connections = asyncio.run(run())
    assert record.error == "no end of the answer within 0 s"
    assert (asked, connections) == (1, 2)


def test_the_request_on_the_wire() -> None:
    async def run() -> str:
        async with scripted(GOOD) as server:
            target = Target(base_url=server.url + "/base/", headers=(("X-A", "1"), ("Host", "h")), endpoint="/v1/c")
            client = Client(target)
            await client.stream(b'{"a": 1}', Record(), "id-7")
            client.close()
            assert server.bodies == [{"a": 1}]
            return server.heads[0]

    assert asyncio.run(run()) == (
        "POST /base/v1/c HTTP/1.1\r\nhost: h\r\naccept: */*\r\ncontent-type: application/json\r\nx-a: 1\r\n"
        "x-request-id: id-7\r\ncontent-length: 8\r\n\r\n"
    )


@pytest.mark.parametrize(
    "script, says",
    [
        ([sized("404 Not Found", b"")], "GET /x: HTTP 404 Not Found"),
        ([sized("200 OK", b"{")], "GET /x: the answer is no JSON"),
        ([CLOSE], "GET /x: no answer"),
    ],
)
def test_small_questions(script: list[Piece], says: str) -> None:
    async def run(script: Sequence[Piece]) -> object:
        async with scripted(script) as server:
            client = Client(Target(base_url=server.url))
            try:
                return await client.ask("GET", "/x")
            finally:
                client.close()

    with pytest.raises(FastfrontError, match=says):
        asyncio.run(run(script))
    assert asyncio.run(run([sized("200 OK", b'{"a": 1}')])) == {"a": 1}
    assert asyncio.run(run([sized("200 OK", b"")])) is None


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:80", "http://", "http://h:x"])
def test_wrong_urls(url: str) -> None:
    with pytest.raises(ConfigError, match="--base-url"):
        Client(Target(base_url=url))
