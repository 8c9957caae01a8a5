"""The frames a mock engine writes and reads (wire c, d), packed by hand where every token passes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

ADD, ABORT, START_DP_WAVE, UTILITY = b"\x00", b"\x01", b"\x02", b"\x03"
DEAD: Final = b"ENGINE_CORE_DEAD"
READY: Final = b"READY"
#: Not msgpack: 0xc1 is no type.
MALFORMED: Final = b"\x94\x00\x91\xc1\xc0"
NIL: Final = b"\xc0"
FINISH: Final = {"stop": 0, "length": 1, "abort": 2, "error": 3, "repetition": 4}
RAW_ARRAY: Final = 3

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

    def outputs(self, index: bytes, body: bytes, stats: bytes, timestamp: float, finished: list[str] | None) -> bytes:
        """The message of one step (wire d.7); `index` and the array of outputs, `body`, are packed already."""
        head = index + body + stats + pack(timestamp)
        if self.full:
            return b"\x99" + head + NIL + pack(finished) + NIL * 2 + b"\xa7default"
        return b"\x94" + head if finished is None else b"\x96" + head + NIL + pack(finished)


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

    def __init__(self, inline_below: int) -> None:
        self.inline_below = inline_below
        self.frames: list[bytes] = []

    def pack(self, dtype: str, shape: list[int], code: str, values: Sequence[float]) -> list[Any]:
        """`[dtype, shape, data]`; `code` is the struct letter of one little-endian value."""
        data = struct.pack(f"<{len(values)}{code}", *values)
        if len(data) < self.inline_below:
            return [dtype, shape, msgspec.msgpack.Ext(RAW_ARRAY, data)]
        self.frames.append(data)
        return [dtype, shape, len(self.frames)]

    def logprobs(
        self,
        ids: list[int],
        top: int,
        vocab: int,
        names: tuple[str, str] = ("<i4", "<f4"),
        rivals: list[int] | None = None,
    ) -> list[Any]:
        """Made-up log-probabilities of `ids`: the id itself, then id+1, id+2, ... at -0.5, -1.5, -2.5, ...

        `top` -1 asks for the whole vocabulary: the id, then every id from 0. Generated tokens travel under numpy's
        type names, prompt tokens under torch's ("int32", "float32"). Where `rivals` are given, those follow the id.
        """
        width = (vocab if top < 0 else top) + 1
        if rivals is not None:
            width = len(rivals) + 1
            rows = [t for own in ids for t in (own, *rivals)]
        else:
            rows = [t if k == 0 else (k - 1 if top < 0 else t + k) for t in ids for k in range(width)]
        return [
            self.pack(names[0], [len(ids), width], "i", rows),
            self.pack(names[1], [len(ids), width], "f", [-0.5 - k for _ in ids for k in range(width)]),
            self.pack(names[0], [len(ids)], "i", [1] * len(ids)),
            None,
        ]
