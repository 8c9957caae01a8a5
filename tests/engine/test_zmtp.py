"""The ZMTP machine on bytes: every split, every kind of nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront.engine.zmtp import GREETING, Codec, ZmtpError, command, encode_message

READY = command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x02\x01\x00")
PUSH = command(b"READY", b"\x0bsocket-type\x00\x00\x00\x04PUSH")
HELLO = GREETING + READY


def feed(codec: Codec, data: bytes) -> list[list[bytes]]:
    return codec.read(codec.join(data))


def joined(*messages: list[bytes]) -> bytes:
    return b"".join(piece for message in messages for piece in encode_message(message))


def opened(kind: str = "ROUTER", max_message: int = 1 << 20) -> Codec:
    codec = Codec(kind, max_message)
    assert feed(codec, GREETING + (READY if kind == "ROUTER" else PUSH)) == []
    codec.replies.clear()
    return codec


MESSAGES = [[b"a"], [b"", b"b" * 255, b"c" * 256], [b"d" * 70000], [b""], [b"x", b""]]


def test_every_split_in_two() -> None:
    data = HELLO + joined([b"a"], [b"", b"b" * 255, b"c" * 300], [b"e"])
    data += command(b"PING", b"\x00\x10ctx") + joined([b"f"])
    for cut in range(len(data) + 1):
        codec = Codec("ROUTER")
        got = feed(codec, data[:cut]) + feed(codec, data[cut:])
        assert got == [[b"a"], [b"", b"b" * 255, b"c" * 300], [b"e"], [b"f"]]
        assert codec.identity == b"\x01\x00"
        assert codec.replies[1:] == [command(b"PONG", b"ctx")]


def test_byte_by_byte() -> None:
    codec = Codec("ROUTER")
    data = HELLO + joined([b"a", b"b" * 300], [b"c"])
    got = [message for at in range(len(data)) for message in feed(codec, data[at : at + 1])]
    assert got == [[b"a", b"b" * 300], [b"c"]]


@given(st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=4), max_size=6), st.data())
def test_any_splits(messages: list[list[bytes]], data: st.DataObject) -> None:
    stream = joined(*messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    codec = opened()
    got = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += feed(codec, stream[start:end])
    assert got == messages


def test_one_read_gives_all_messages() -> None:
    assert feed(opened(), joined(*MESSAGES)) == MESSAGES


def test_large_frames_are_not_copied_when_sent() -> None:
    big = b"z" * (1 << 20)
    pieces = encode_message([b"\x00", big, b"tail"])
    assert [len(piece) for piece in pieces] == [3 + 9, 1 << 20, 2 + 4]
    assert pieces[1] is big


def test_greeting_and_ready_go_out() -> None:
    codec = Codec("PULL")
    feed(codec, GREETING)
    assert codec.replies == [command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x04PULL")]


def test_version_3_0_is_spoken_too() -> None:
    codec = Codec("ROUTER")
    older = GREETING[:11] + b"\x00" + GREETING[12:]
    assert feed(codec, older + READY + joined([b"m"])) == [[b"m"]]
    assert codec.minor == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\xff" + bytes(9),
        GREETING[:10] + b"\x01",  # ZMTP 2.0
        GREETING[:12] + b"CURVE".ljust(20, b"\0") + bytes(32),
        GREETING + joined([b"too early"]),
        GREETING + command(b"PING", b"\0\0"),
        GREETING + command(b"ERROR", b"\x04nope"),
        GREETING + b"\x04\x00",
        GREETING + b"\x04\x02\x05a",
        GREETING + command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x09DEALER"),
        GREETING + PUSH,
        GREETING + command(b"READY", b""),
        HELLO + READY,
        HELLO + b"\x08\x00",
        HELLO + b"\x05\x01a",
        HELLO + command(b"PING", b"\0"),
        HELLO + command(b"PING", b"\0\0" + bytes(17)),
        HELLO + b"\x06" + (1 << 20).to_bytes(8, "big"),
    ],
)
def test_nonsense_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(ZmtpError):
        feed(Codec("ROUTER"), data)
    codec = Codec("ROUTER")
    with pytest.raises(ZmtpError):
        _ = [feed(codec, data[at : at + 1]) for at in range(len(data))]


def test_wrong_socket_type_is_told() -> None:
    codec = Codec("PULL")
    with pytest.raises(ZmtpError, match="DEALER"):
        feed(codec, HELLO)
    assert codec.replies[-1] == command(b"ERROR", b"\x13Invalid socket type")


@pytest.mark.parametrize("frames", [[b"x" * 101], [b"x" * 20, b"y" * 20], [b""] * 3])
def test_size_is_limited_before_the_bytes_are_there(frames: list[bytes]) -> None:
    codec = opened(max_message=100)
    with pytest.raises(ZmtpError, match="100 are allowed"):
        feed(codec, joined(frames)[: -1 if frames[-1] else None])
    assert feed(opened(max_message=100), joined([b"x" * 100], [b"y", b"z"])) == [[b"x" * 100], [b"y", b"z"]]


def test_huge_length_is_refused() -> None:
    with pytest.raises(ZmtpError):
        feed(opened(), b"\x02" + b"\xff" * 8)


def test_other_commands_are_skipped() -> None:
    codec = opened()
    data = command(b"SUBSCRIBE", b"topic") + command(b"PONG", b"x") + command(b"NEW", b"") + joined([b"m"])
    assert feed(codec, data) == [[b"m"]]
    assert codec.replies == []


def test_a_command_may_come_between_the_frames_of_a_message() -> None:
    codec = opened()
    assert feed(codec, b"\x01\x01a" + command(b"PING", b"\0\0") + b"\x00\x01b") == [[b"a", b"b"]]
    assert codec.replies == [command(b"PONG", b"")]


def test_messages_can_be_taken_before_the_codec_reads() -> None:
    codec = Codec("PULL")
    assert not codec.between_messages
    feed(codec, GREETING + PUSH)
    assert codec.between_messages
    taken, rest = joined([b"taken"]), joined([b"first", b"second"])
    assert codec.read(codec.join(taken + rest[:3]), len(taken)) == []
    assert feed(codec, rest[3:6]) == []
    assert codec.between_messages  # the first frame is not there whole
    assert codec.join(rest[6:7]) == rest[:7]
    assert codec.read(rest[:7]) == []
    assert not codec.between_messages
    assert feed(codec, rest[7:]) == [[b"first", b"second"]]
    assert codec.between_messages
