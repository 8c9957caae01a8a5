"""HTTP answers, however they are cut."""

from __future__ import annotations

import pytest

from fastfront.load.answer import MAX_HEAD, MAX_LINE, Answer, AnswerError
from tests.load.scripted import END, HEAD, chunk, sized

CHUNKED = HEAD + chunk(b"ab\r\ncd") + b"3;ext=1\r\nxyz\r\n" + chunk(b"q" * 300) + b"0\r\nx-trailer: 1\r\n\r\n"
BODY = b"ab\r\ncdxyz" + b"q" * 300


def read(*pieces: bytes) -> tuple[Answer, bytes]:
    answer = Answer()
    body = b"".join(answer.feed(piece) for piece in pieces)
    return answer, body


@pytest.mark.parametrize("cut", range(1, len(CHUNKED)))
def test_a_chunked_answer_cut_anywhere(cut: int) -> None:
    answer, body = read(CHUNKED[:cut], CHUNKED[cut:])
    assert (body, answer.complete, answer.keep_alive, answer.status) == (BODY, True, True, 200)


def test_a_byte_at_a_time() -> None:
    answer, body = read(*(CHUNKED[i : i + 1] for i in range(len(CHUNKED))))
    assert (body, answer.complete) == (BODY, True)


def test_what_is_there_is_given_at_once() -> None:
    answer = Answer()
    assert answer.feed(HEAD + b"5\r\nab") == b"ab"
    assert answer.feed(b"c") == b"c"
    assert answer.feed(b"de\r\n") == b"de"
    assert not answer.complete
    assert answer.feed(END) == b""
    assert answer.complete


def test_a_length() -> None:
    whole = sized("404 Not Found", b"gone")
    for cut in range(1, len(whole)):
        answer, body = read(whole[:cut], whole[cut:])
        assert (answer.status, answer.reason, body, answer.complete) == (404, "Not Found", b"gone", True)


def test_the_end_of_the_connection_is_the_end() -> None:
    answer, body = read(b"HTTP/1.0 200 OK\r\n\r\n", b"ab", b"c")
    assert (body, answer.complete, answer.keep_alive) == (b"abc", False, False)
    answer.end()
    assert answer.complete


@pytest.mark.parametrize(
    "head, keeps",
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
    ],
)
def test_whether_the_connection_goes_on(head: bytes, keeps: bool) -> None:
    answer, body = read(head)
    assert (answer.complete, answer.keep_alive, body) == (True, keeps, b"")


@pytest.mark.parametrize(
    "wire, says",
    [
        (b"SSH-2.0-x\r\n\r\n", "not an HTTP answer: 'SSH-2.0-x'"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "not an HTTP answer"),
        (b"x" * (MAX_HEAD + 1), "a head of more than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "content-length '-1'"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab", "more bytes than content-length says"),
        (HEAD + b"-1\r\n", "chunk size b'-1'"),
        (HEAD + b"\r\n", "chunk size b''"),
        (HEAD + b"1_0\r\n", "chunk size b'1_0'"),
        (HEAD + chunk(b"ab") * 3 + b"2\r\nabc\r\n", "a chunk is longer than its size says"),
        (HEAD + b"2\r\nabc\r\n", "a chunk is longer than its size says"),
        (HEAD + b"1" * (MAX_LINE + 1), "a chunk without an end"),
        (HEAD + END + b"x", "bytes after the end of an answer"),
    ],
)
def test_wrong_bytes(wire: bytes, says: str) -> None:
    with pytest.raises(AnswerError) as caught:
        read(wire)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "wire, says",
    [(b"", "no answer"), (b"HTTP/1.1 2", "no answer"), (HEAD + b"5\r\nab", "the connection ended within an answer")],
)
def test_an_end_too_soon(wire: bytes, says: str) -> None:
    answer = Answer()
    if wire:
        answer.feed(wire)
    with pytest.raises(AnswerError, match=says):
        answer.end()
