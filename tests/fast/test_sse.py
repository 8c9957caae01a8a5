"""JSON escaping, and outboxes on real sockets."""

from __future__ import annotations

import json
import random
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import msgpack


class Owner:
    """Keeps what an outbox tells it."""

    def __init__(self) -> None:
        self.blocked: list[bytes] = []
        self.overflows = 0
        self.errors: list[OSError] = []

    def outbox_blocked(self, data: bytes) -> None:
        self.blocked.append(data)

    def outbox_overflow(self) -> None:
        self.overflows += 1

    def outbox_error(self, error: OSError) -> None:
        self.errors.append(error)


def unchunk(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        assert data[int(size, 16) :][:2] == b"\r\n"
        body, data = body + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return body


def test_escape_is_json(fast: SimpleNamespace) -> None:
    rng = random.Random(1)
    texts = ["", '"\\/\b\f\n\r\t\x00\x1f\x7f', "é漢🫠\u2028\ufffd"]
    for _ in range(200):
        texts.append("".join(chr(rng.choice([rng.randrange(128), rng.randrange(0xD800)])) for _ in range(20)))
    for text in texts:
        assert fast.escape(text) == json.dumps(text, ensure_ascii=False)[1:-1].encode()


@pytest.fixture
def pair() -> Any:
    left, right = socket.socketpair()
    left.setblocking(False)
    yield left, right
    left.close()
    right.close()


def test_a_turn_is_one_chunk_and_one_write(fast: SimpleNamespace, pair: Any) -> None:
    left, right = pair
    flusher, owner = fast.Flusher(), Owner()
    outbox = fast.Outbox(flusher, owner, left.fileno(), 1 << 20, True)
    outbox.raw(b"HEAD")
    outbox.append(b"one ")
    outbox.append(b"two")
    assert outbox.pending() == 11
    flusher.flush()
    assert right.recv(1000) == b"HEAD7\r\none two\r\n"
    outbox.append(b"x" * 300)
    outbox.raw(b"0\r\n\r\n")
    flusher.flush()
    assert right.recv(1000) == b"12c\r\n" + b"x" * 300 + b"\r\n0\r\n\r\n"
    flusher.flush()
    assert outbox.pending() == 0
    assert owner.blocked == []


def test_additions_are_counted(fast: SimpleNamespace) -> None:
    """By hand and by a stream; so one can see that nothing came."""
    flusher, router = fast.Flusher(), fast.Router()
    outbox = fast.Outbox(flusher, Owner(), -1, 1 << 20, True)
    outbox.raw(b"head")
    assert outbox.appended == 0
    outbox.append(b"a")
    stream = fast.Stream(None, fast.Vocab([b"x"]))
    stream.to_outbox(outbox, b"", b"<", [b">"], 1)
    request_id = router.open(stream, "r")
    for _ in range(3):
        router.feed(msgpack.encode([0, [[request_id, [0], None, None, None, None, None]], None, 1.0]), 1.0)
    assert outbox.appended == 4
    flusher.flush()
    assert outbox.appended == 4


def test_without_chunks_and_without_a_socket(fast: SimpleNamespace) -> None:
    flusher, owner = fast.Flusher(), Owner()
    outbox = fast.Outbox(flusher, owner, -1, 1 << 20, False)
    outbox.append(b"plain")
    outbox.set_direct(True)
    assert not outbox.direct
    flusher.flush()
    assert owner.blocked == [b"plain"]


def test_what_the_socket_does_not_take_goes_to_the_owner_in_order(fast: SimpleNamespace, pair: Any) -> None:
    left, right = pair
    flusher, owner = fast.Flusher(), Owner()
    outbox = fast.Outbox(flusher, owner, left.fileno(), 1 << 30, True)
    sent = b""
    for n in range(200):
        part = bytes([n]) * 20_000
        sent += part
        outbox.append(part)
        flusher.flush()
    assert owner.blocked
    assert not outbox.direct  # until the owner says otherwise the socket is left alone
    got = bytearray()
    right.setblocking(False)
    while True:
        try:
            got += right.recv(1 << 20)
        except BlockingIOError:
            break
    assert unchunk(bytes(got) + b"".join(owner.blocked)) == sent
    outbox.set_direct(True)
    outbox.append(b"again")
    flusher.flush()
    assert right.recv(100) == b"5\r\nagain\r\n"


def test_a_reader_that_does_not_read_is_told_of_once_and_only_in_a_flush(fast: SimpleNamespace) -> None:
    flusher, owner = fast.Flusher(), Owner()
    outbox = fast.Outbox(flusher, owner, -1, 10, True)
    outbox.backlog = 8
    outbox.append(b"12")
    assert not outbox.closed
    outbox.append(b"3")
    assert outbox.closed
    assert owner.overflows == 0
    outbox.append(b"dropped")
    flusher.flush()
    flusher.flush()
    assert (owner.overflows, owner.blocked) == (1, [])


def test_a_broken_socket_is_told(fast: SimpleNamespace, pair: Any) -> None:
    left, right = pair
    right.close()
    flusher, owner = fast.Flusher(), Owner()
    outbox = fast.Outbox(flusher, owner, left.fileno(), 1 << 20, True)
    outbox.append(b"x")
    flusher.flush()
    assert [type(error) for error in owner.errors] == [BrokenPipeError]
    outbox.append(b"y")
    flusher.flush()
    assert len(owner.errors) == 1


def test_one_owners_exception_does_not_stop_the_others(fast: SimpleNamespace, pair: Any) -> None:
    left, right = pair

    class Bad(Owner):
        def outbox_blocked(self, data: bytes) -> None:
            raise RuntimeError("mine")

    flusher = fast.Flusher()
    bad = fast.Outbox(flusher, Bad(), -1, 100, True)
    good = fast.Outbox(flusher, Owner(), left.fileno(), 100, False)
    bad.append(b"x")
    good.append(b"y")
    flusher.flush()
    assert right.recv(10) == b"y"


def test_a_head_waits_for_its_own_body(fast: SimpleNamespace) -> None:
    flusher, owner = fast.Flusher(), Owner()
    first, second = (fast.Outbox(flusher, owner, -1, 1 << 20, True) for _ in range(2))
    first.raw(b"FIRST ")
    second.raw(b"SECOND ")
    second.append(b"x")
    flusher.flush()  # of others it may be the turn
    assert owner.blocked == [b"SECOND 1\r\nx\r\n"]
    first.flush()  # nobody has said anything: the head goes alone
    assert owner.blocked[1:] == [b"FIRST "]
    first.append(b"y")
    flusher.flush()
    assert owner.blocked[2:] == [b"1\r\ny\r\n"]
