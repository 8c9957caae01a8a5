"""The request parser on its own: every split of the bytes gives the same, and malformed ones are refused.

What it reads by itself is compared with what httptools makes of it.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from fastfront.errors import HeadersTooLargeError, MalformedRequestError, PayloadTooLargeError, RequestError
from fastfront.http.parser import RequestParser
from fastfront.http.settings import Settings
from fastfront.http.strict import Incoming, Stage, StrictParser, split_target

CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
H2C = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"

GOOD = {
    "get": b"GET /a%20b?c=%20d HTTP/1.1\r\nHost: x\r\nA:  b \r\na: c\r\n\r\n",
    "length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nab\r\n\r\ncd\r\n\r",
    "chunked": CHUNKED + b'4\r\n\r\n\r\n\r\n2;x="y"\r\nab\r\n0\r\nT: 1\r\nContent-Type: z\r\n\r\n',
    "empty chunked": CHUNKED + b"0\r\n\r\n",
    "blank lines before": b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "upgrade with length": b"POST / HTTP/1.1\r\nHost: x\r\n" + H2C + b"Content-Length: 4\r\n\r\n\r\n\r\n",
    "upgrade chunked": CHUNKED.replace(b"Host", H2C + b"Host") + b"1\r\nx\r\n0\r\nT: 1\r\n\r\n",
    "upgrade": b"GET / HTTP/1.1\r\nHost: x\r\n" + H2C + b"\r\n",
}
#: What each malformed request is answered with; every one ends the connection.
BAD = {
    "not http": b"\x16\x03\x01\x02\x00",
    "lower-case method": b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
    "http 0.9": b"GET /\r\n\r\n",
    "http 0.9 by name": b"GET / HTTP/0.9\r\nHost: x\r\n\r\n",
    "http 1.2": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    "http 2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http 2": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "another protocol": b"GET / ICE/1.1\r\nHost: x\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "NUL in the target": b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "raw UTF-8 in the target": "GET /é HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    "no path": b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
    "star for GET": b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
    "another scheme": b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
    "bare LF lines": b"GET / HTTP/1.1\nHost: x\n\n",
    "bare LF in the head": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare CR in a value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n",
    "two CR": b"GET / HTTP/1.1\r\nHost: x\r\r\n\r\n",
    "CR without LF at the end": b"GET / HTTP/1.1\r\nHost: x\r\n\rGET",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "NUL in a name": b"GET / HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n",
    "control character in a value": b"GET / HTTP/1.1\r\nHost: x\r\nA: \x0b\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "folded with a tab": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n",
    "space before the first header": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "space before the colon": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 1\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n",
    "no name": b"GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
    "both lengths": CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n") + b"0\r\n\r\n",
    "both lengths the other way": CHUNKED.replace(b"Transfer", b"Content-Length: 5\r\nTransfer") + b"0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "the same length twice": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
    **{
        f"length {value!r}": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + value + b"\r\n\r\n"
        for value in (b"", b"+1", b"-1", b"0x1", b"1,1", b"1_0", b"1 1", b"9" * 30)
    },
    **{
        f"coding {value!r}": CHUNKED.replace(b"chunked", value) + b"0\r\n\r\n"
        for value in (
            *(b"", b"identity", b"gzip", b"gzip, chunked", b"chunked, identity", b"chunked, chunked", b"xchunked"),
            *(b"chunked\r\nTransfer-Encoding: chunked", b"\x0bchunked", b"chunked;q=1"),
        )
    },
    "chunked in 1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    **{
        f"chunk {value!r}": CHUNKED + value
        for value in (
            b"0x3\r\nabc\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b" 3\r\nabc\r\n",
            b"3 \r\nabc\r\n",
            b"g\r\n",
            b"\r\n",
            b";x\r\n",
            *(b"f" * 17 + b"\r\n", b"3\nabc\n", b"3\r\nabcd\r\n", b"3\r\nab\r\n0\r\n\r\n", b"1;a\nb\r\nx\r\n"),
            *(b'1;a="\0"\r\n', b"0\r\nA\0: b\r\n\r\n", b"0\r\nA: b\r\n c\r\n\r\n", b"0\r\nA\r\n\r\n"),
            *(b"0\r\nContent-Length: 5\r\n\r\n", b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        )
    },
    "expectation": b"POST / HTTP/1.1\r\nHost: x\r\nExpect: x\r\nContent-Length: 1\r\n\r\n",
}


def parse(pieces: list[bytes], settings: Settings | None = None) -> list[Incoming | type[RequestError]]:
    """All requests, and last the error's class."""
    parser = RequestParser(settings or Settings())
    found: list[Incoming | type[RequestError]] = []
    for piece in pieces:
        parser.feed(piece)
        try:
            while (incoming := parser.next()) is not None:
                found.append(incoming)
        except RequestError as error:
            return [*found, type(error)]
    assert not parser.pending()
    return found


def cuts(data: bytes) -> list[list[bytes]]:
    """In two at every place, and in single bytes."""
    return [[data[:at], data[at:]] for at in range(len(data))] + [[data[i : i + 1] for i in range(len(data))]]


@pytest.mark.parametrize("name", GOOD)
def test_every_split_gives_the_same(name: str) -> None:
    data = GOOD[name] + GOOD["get"]
    whole = parse([data])
    assert len(whole) == 2
    for pieces in cuts(data):
        assert parse(pieces) == whole, pieces


@given(st.lists(st.sampled_from(sorted(GOOD)), max_size=5), st.data())
def test_pipelines_in_any_pieces(names: list[str], draw: st.DataObject) -> None:
    data = b"".join(GOOD[name] for name in names)
    alone = [parse([GOOD[name]])[0] for name in names]
    ends = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    pieces = [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]
    assert parse(pieces) == alone


@pytest.mark.parametrize("name", BAD)
def test_malformed_is_refused(name: str) -> None:
    for before in (b"", GOOD["length"]):
        data = before + BAD[name]
        want = [*parse([before]), MalformedRequestError]
        assert parse([data]) == want
        for pieces in cuts(data):
            assert parse(pieces) == want, pieces


def test_what_a_request_is() -> None:
    (first,) = parse([GOOD["get"]])
    assert first == Incoming(
        method="GET",
        target="/a%20b?c=%20d",
        path="/a b",
        query="c=%20d",
        headers={"host": "x", "a": "b, c"},
        body=b"",
        client="",
        keep_alive=True,
        http10=False,
    )
    (chunked,) = parse([GOOD["chunked"]])
    assert isinstance(chunked, Incoming)
    assert chunked.body == b"\r\n\r\nab"
    assert chunked.headers == {"host": "x", "transfer-encoding": "chunked"}


@pytest.mark.parametrize(
    ("head", "keep"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: a, close\r\n", False),
        (b"GET / HTTP/1.0\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n", True),
    ],
)
def test_keep_alive(head: bytes, keep: bool) -> None:
    (incoming,) = parse([head + b"\r\n"])
    assert isinstance(incoming, Incoming)
    assert incoming.keep_alive is keep


def test_limits() -> None:
    settings = Settings(max_head_size=len(GOOD["get"]), max_body_size=11, max_header_count=3)
    assert len(parse([GOOD["get"] + GOOD["length"]], settings)) == 2
    for pieces in cuts(GOOD["get"].replace(b"A:", b"AA:")):
        assert parse(pieces, settings) == [HeadersTooLargeError]
    assert parse([b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5], settings) == [HeadersTooLargeError]
    for pieces in cuts(GOOD["length"].replace(b"11", b"12")):
        assert parse(pieces, settings) == [PayloadTooLargeError]
    for pieces in cuts(CHUNKED + b"b\r\n" + b"x" * 11 + b"\r\n1\r\nx\r\n"):
        assert parse(pieces, Settings(max_body_size=11)) == [PayloadTooLargeError]


SMALL = Settings(max_body_size=11)


def parser(fast: SimpleNamespace) -> RequestParser:
    """With the head reader of one of the twins."""
    return RequestParser(SMALL, fast.HeadReader(SMALL.max_head_size, SMALL.max_header_count, SMALL.max_body_size))


def told(parser: StrictParser, pieces: Iterable[bytes]) -> list[Any]:
    """All that one can learn from a parser after each piece, up to a request that closes the connection."""
    found: list[Any] = []
    for piece in pieces:
        parser.feed(piece)
        try:
            while (incoming := parser.next()) is not None:
                found.append(incoming)
                if not incoming.keep_alive:
                    return found
        except RequestError as error:
            return [*found, type(error)]
        found.append((parser.stage, parser.begun, parser.awaits_continue, parser.pending()))
    return found


PLAIN = (
    b"POST /v1/a_b?c=%20&d HTTP/1.1\r\nHost: x:1\r\nAccept: */*, a b\r\nConnection: keep-alive\r\n"
    b"Content-Length: 3\r\nX-Id:a\r\n\r\nabc"
)


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_what_is_not_plain_is_read_the_same(fast: SimpleNamespace, name: str) -> None:
    data = GOOD.get(name) or BAD[name]
    for pieces in ([PLAIN, data], [PLAIN + data], [PLAIN + data + PLAIN], *cuts(PLAIN + data)):
        assert told(parser(fast), pieces) == told(StrictParser(SMALL), pieces), pieces


@pytest.mark.parametrize("inserted", [False, True])
def test_every_byte_at_every_place_is_read_the_same(fast: SimpleNamespace, inserted: bool) -> None:
    for at in range(PLAIN.index(b"\r\n\r\n") + 4):
        for byte in range(256):
            data = PLAIN[:at] + bytes([byte]) + PLAIN[at + (not inserted) :]
            assert told(parser(fast), [data]) == told(StrictParser(SMALL), [data]), data


def mostly(usual: str, *others: str) -> st.SearchStrategy[str]:
    return st.sampled_from((*[usual] * 5 * len(others), *others))


NAMES = (
    *("Accept", "a_b", "X-1", "content-length", "Content-Length", "connection", "Connection", "host", "hosts", "A.b"),
    *("expect", "Upgrade", "Transfer-Encoding", "proxy-connection", "Keep-Alive", "TE", "Trailer", "A b", "é", ""),
)
VALUES = (
    *("x", "a b", "a, b", "*/*", "1", "3", "03", "12", "+1", "0", "9" * 16, "close", "Keep-Alive", "close, x"),
    *("upgrade", "h2c", "chunked", "100-continue", "", " ", "\t", "x ", "x\t", "é", "\x7f", "a\rb", '"', "a:b"),
)
FIELD = st.tuples(
    st.sampled_from(NAMES), mostly(": ", ":", ":  ", " :", ":\t", ""), st.sampled_from(VALUES),
    mostly("\r\n", "\n", "\r", "\r\n "),
).map("".join)  # fmt: skip
HEAD = st.tuples(
    mostly("POST", "GET", "HEAD", "OPTIONS", "PATCH", "PRI", "post", "CONNECT", "\r\nGET", ""),
    mostly(" ", "  ", "\t"),
    st.text("/a?%&=~.-_:@!$'()*+,;#[]|\"\\^` é", max_size=8).map("/".__add__) | mostly("/", "*", "http://x/", "a"),
    mostly(" HTTP/1.1\r\n", " HTTP/1.0\r\n", " HTTP/1.1\n", " HTTP/1.1 \r\n", " http/1.1\r\n", "\r\n"),
    mostly("Host: x\r\n", "", "host:  y z\r\n", "Host:\r\n"),
    st.lists(FIELD, max_size=4).map("".join),
    mostly("\r\n", "\n", "\r\r\n"),
    st.text("ab\r\n", max_size=4),
).map("".join)  # fmt: skip


@hypothesis.settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(heads=st.lists(HEAD, min_size=1, max_size=3), ends=st.lists(st.integers(0, 200), max_size=3))
def test_all_heads_are_read_the_same(fast: SimpleNamespace, heads: list[str], ends: list[int]) -> None:
    data = "".join(heads).encode("latin-1")
    cut = sorted({min(end, len(data)) for end in ends})
    pieces = [data[a:b] for a, b in zip([0, *cut], [*cut, len(data)], strict=True) if a < b]
    assert told(parser(fast), pieces) == told(StrictParser(SMALL), pieces)


def test_a_body_in_pieces_behind_a_plain_head(fast: SimpleNamespace) -> None:
    one = PLAIN.replace(b"3\r\n", b"11\r\n") + b"d\r\n\r\nefg"
    for pieces in (*cuts(one + PLAIN), [one[:-9], one[-9:-4], one[-4:] + PLAIN[:-1], PLAIN[-1:]]):
        seen = told(parser(fast), pieces)
        assert [item.body for item in seen if isinstance(item, Incoming)] == [b"abcd\r\n\r\nefg", b"abc"]
        assert seen == told(StrictParser(SMALL), pieces), pieces


def test_stages() -> None:
    parser = RequestParser(Settings())
    seen = []
    for piece in (b"\r\n", b"P", b"OST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r", b"\n", b"a", b"b"):
        parser.feed(piece)
        whole = parser.next() is not None
        seen.append((parser.stage, parser.begun, whole))
    assert seen == [
        (Stage.NOTHING, 0, False),
        (Stage.HEAD, 1, False),
        (Stage.HEAD, 1, False),
        (Stage.BODY, 1, False),
        (Stage.BODY, 1, False),
        (Stage.NOTHING, 1, True),
    ]


@pytest.mark.parametrize(
    ("target", "want"),
    [
        (b"/", ("/", "")),
        (b"/a?b?c", ("/a", "b?c")),
        (b"/a#f?x", ("/a", "")),
        (b"/%2e%2E/%c3%a9%zz", ("/../é%zz", "")),
        (b"/%ff", ("/\ufffd", "")),
        (b"//x/y", ("//x/y", "")),
        (b"http://h", ("/", "")),
        (b"HTTPS://u@h:1/p?q", ("/p", "q")),
        (b"http://h?q", None),
        (b"*", None),
        (b"h:1", None),
    ],
)
def test_targets(target: bytes, want: tuple[str, str] | None) -> None:
    assert split_target("GET", target) == want


def test_special_targets() -> None:
    assert split_target("OPTIONS", b"*") == ("*", "")
    assert split_target("CONNECT", b"/x") is None


def test_a_body_in_tiny_pieces_takes_no_more_than_its_bytes() -> None:
    parser = RequestParser(Settings())
    size = 400_000
    parser.feed(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nab" % size)
    assert parser.next() is None
    tracemalloc.start()
    try:
        for _ in range(size // 2 - 2):
            parser.feed(b"".join((b"a", b"b")))  # an object of its own, as reads are
            assert parser.next() is None
        assert tracemalloc.get_traced_memory()[0] < 3 * size
    finally:
        tracemalloc.stop()
    parser.feed(b"ab")
    incoming = parser.next()
    assert incoming is not None
    assert incoming.body == b"ab" * (size // 2)
    assert parser.stage is Stage.NOTHING
