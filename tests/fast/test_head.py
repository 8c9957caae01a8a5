"""Heads of plain requests: what they are read as, and which are left to others. See also tests/http/test_parser.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

HEAD = (
    b"POST /v1/x?a=%2f?b HTTP/1.1\r\nHost: h:1\r\nUSER-Agent:  a b\r\nX_1:~\r\nConnection: Close\r\n"
    b"content-length: 012\r\n\r\n"
)
HEADERS = {"host": "h:1", "user-agent": "a b", "x_1": "~", "connection": "Close", "content-length": "012"}
LEAST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def test_what_a_head_is_read_as(fast: SimpleNamespace) -> None:
    heads = fast.HeadReader(1000, 10, 12)
    size = len(HEAD)
    want = ("POST", "/v1/x", "a=%2f?b", HEADERS, "/v1/x?a=%2f?b", False, size, 12)
    assert heads.read(HEAD, 0) == want
    assert heads.read(LEAST + HEAD + b"\r\nbody", len(LEAST)) == (*want[:6], len(LEAST) + size, 12)
    assert heads.read(LEAST + HEAD, 0) == ("GET", "/", "", {"host": "x"}, "/", True, len(LEAST), 0)
    for method in ("POST", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert heads.read(LEAST.replace(b"GET", method.encode()), 0)[0] == method


def test_a_head_is_its_readers_own(fast: SimpleNamespace) -> None:
    heads = fast.HeadReader(1000, 10, 12)
    heads.read(HEAD, 0)[3]["host"] = "changed"
    assert heads.read(HEAD, 0)[3] == HEADERS


def test_a_head_that_is_not_whole(fast: SimpleNamespace) -> None:
    heads = fast.HeadReader(1000, 10, 12)
    for end in range(len(HEAD)):
        assert heads.read(HEAD[:end], 0) is None
        assert heads.read(HEAD, end) is None or end == 0
    assert heads.read(HEAD, len(HEAD)) is None


def test_limits(fast: SimpleNamespace) -> None:
    limits = (len(HEAD), len(HEADERS), 12)
    assert fast.HeadReader(*limits).read(HEAD, 0) is not None
    assert fast.HeadReader(*limits).read(LEAST + HEAD, len(LEAST)) is not None
    for at in range(3):
        lower = [limit - (n == at) for n, limit in enumerate(limits)]
        assert fast.HeadReader(*lower).read(HEAD, 0) is None
    many = LEAST[:-2] + b"".join(b"a%d: b\r\n" % n for n in range(64))
    assert len(fast.HeadReader(10000, 100, 0).read(many[:-8] + b"\r\n", 0)[3]) == 64
    assert fast.HeadReader(10000, 100, 0).read(many + b"\r\n", 0) is None


@pytest.mark.parametrize(
    "line",
    [
        *("Host: y", "HOST: y", "A: b\r\na: c", "A:", "A: ", "A: b ", "A: b\t", "A: \tb", "A : b", " A: b", "A", ": b"),
        *("A: é", "A: \x7f", "A: b\r", "A: b\n", "A: b\0", "A: b\r\n c", "A.b: c", "é: b", "A: b\r\n\n"),
        *("Expect: 100-continue", "upgrade: h2c", "Transfer-Encoding: chunked", "Proxy-Connection: close"),
        *("Connection: upgrade", "Connection: close, x", "Content-Length: 13", "Content-Length: 9999999999999999"),
        *("Content-Length: 0000000000000001", "Content-Length: +1", "Content-Length: 1 1", "Content-Length: 0x1"),
    ],
)
def test_headers_that_are_not_plain(fast: SimpleNamespace, line: str) -> None:
    data = LEAST[:-2] + line.encode("latin-1") + b"\r\n\r\n"
    assert fast.HeadReader(1000, 10, 12).read(data, 0) is None


@pytest.mark.parametrize(
    "start",
    [
        *("get / HTTP/1.1", "PATCH / HTTP/1.1", "GET  / HTTP/1.1", "GET /  HTTP/1.1", "GET / HTTP/1.0", "GET /"),
        *(" GET / HTTP/1.1", "GET/ HTTP/1.1"),
        *("GET x HTTP/1.1", "GET * HTTP/1.1", "GET http://x/ HTTP/1.1", "GET ?a HTTP/1.1", "GET /a%20 HTTP/1.1"),
        *("GET /a#b HTTP/1.1", "GET /a?b#c HTTP/1.1", "GET /é HTTP/1.1", "GET /a?é HTTP/1.1", "\r\nGET / HTTP/1.1"),
        *("GET / HTTP/1.1\r\n", "GET / HTTP/1.1 ", "GET / HTTP/1.1\r", "GET / http/1.1"),
    ],
)
def test_request_lines_that_are_not_plain(fast: SimpleNamespace, start: str) -> None:
    data = start.encode("latin-1") + b"\r\nhost: x\r\n\r\n"
    assert fast.HeadReader(1000, 10, 12).read(data, 0) is None
