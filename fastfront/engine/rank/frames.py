"""The frames an engine writes and reads (wire c, d), packed by hand where every token passes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from fastfront.engine.wire import RAW_VIEW

READY: Final = b"READY"
NIL: Final = b"\xc0"
FINISH: Final = {"stop": 0, "length": 1, "abort": 2, "error": 3, "repetition": 4}

#: How weights are called that nobody has named.
DEFAULT_VERSION: Final = b"\xa7default"

#: A client's number, and the frames for it.
Message = tuple[int, list[bytes]]

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode


def array_header(n: int) -> bytes:
    """The msgpack header of an array of `n` elements."""
    if n < 16:
        return bytes((0x90 | n,))
    return b"\xdc" + n.to_bytes(2, "big") if n < 65536 else b"\xdd" + n.to_bytes(4, "big")


class Layout(NamedTuple):
    """The bytes around a plain output's id and token; `last` and its tail for a request's last one."""

    middle: bytes
    middle_tail: bytes
    last: bytes
    last_tail: bytes
    full: bool

    def output(self, fields: list[Any]) -> bytes:
        """One output (wire d.8) from its leading fields."""
        if self.full:
            fields += [None] * (18 - len(fields))
            fields[13] = fields[13] or 0
        return pack(fields)

    def outputs(
        self,
        index: bytes,
        body: bytes,
        stats: bytes,
        timestamp: float,
        finished: list[str] | None,
        version: bytes = DEFAULT_VERSION,
    ) -> bytes:
        """The message of one step (wire d.7); bytes are packed already, `body` as the array of outputs."""
        head = index + body + stats + pack(timestamp)
        if self.full:
            return b"\x99" + head + NIL + pack(finished) + NIL * 2 + version
        return b"\x94" + head if finished is None else b"\x96" + head + NIL + pack(finished)


#: Arrays up to their last element that is set, and, as a real engine writes them, in full.
SHORT: Final = Layout(b"\x92", b"", b"\x96", NIL * 3 + b"\x01", False)
FULL: Final = Layout(
    b"\xdc\x00\x12",
    NIL * 11 + b"\x00" + NIL * 4,
    b"\xdc\x00\x12",
    NIL * 3 + b"\x01" + NIL * 7 + b"\x00" + NIL * 4,
    True,
)


class Arrays:
    """Packs one message's arrays: small ones inline, others into `frames` (wire c)."""

    __slots__ = ("frames", "inline_below")

    def __init__(self, inline_below: int = 256) -> None:
        self.inline_below = inline_below
        self.frames: list[bytes] = []

    def pack(self, dtype: str, shape: list[int], data: bytes) -> list[Any]:
        """`[dtype, shape, data]` of little-endian bytes."""
        if len(data) < self.inline_below:
            return [dtype, shape, msgspec.msgpack.Ext(RAW_VIEW, data)]
        self.frames.append(data)
        return [dtype, shape, len(self.frames)]
