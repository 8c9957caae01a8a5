"""Records of the wire: short arrays, long arrays, tensors of every kind, malformed ones. Golden bytes: tests/golden."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fastfront.engine import wire
from fastfront.errors import WireError

Ext = msgspec.msgpack.Ext


def test_short_and_long_arrays_are_read() -> None:
    short = wire.decode(wire.encode(["id", [1], None, {}, None, 1.0, None, None, None]), wire.EngineCoreRequest)
    assert (short.client_index, short.session_id) == (0, None)
    long = wire.encode([3, [["id", [1], *[None] * 11, 0, *[None] * 4, "new"]], None, 1.0, *[None] * 5, "newer"])
    assert wire.decode(long, wire.EngineCoreOutputs).outputs[0].new_token_ids == [1]
    assert wire.decode(wire.encode([]), wire.EngineCoreOutputs).engine_index == 0


def test_arrays_are_written_in_full() -> None:
    assert len(msgspec.msgpack.decode(wire.encode(wire.EngineCoreOutput("id", [])))) == 18
    assert len(msgspec.msgpack.decode(wire.encode(wire.EngineCoreOutputs()))) == 9


def test_unknown_statistics_are_skipped() -> None:
    stats = wire.decode(wire.encode({"num_running_reqs": 2, "perf_stats": [1], "new": {}}), wire.SchedulerStats)
    assert (stats.num_running_reqs, stats.num_waiting_reqs) == (2, 0)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", b"\x81", wire.encode({"max_model_len": -1}), b"\x91" * 5000])
def test_malformed(data: bytes) -> None:
    with pytest.raises(WireError, match="malformed ReadyResponse"):
        wire.decode(data, wire.ReadyResponse)


def test_what_is_too_deep_is_malformed() -> None:
    with pytest.raises(WireError):
        wire.decode(b"\x93\x01\xc0" + b"\x91" * 5000, wire.UtilityOutput)


@pytest.mark.parametrize(
    ("name", "data", "values"),
    [
        ("<i4", b"\x01\0\0\0\xff\xff\xff\xff", [1, -1]),
        ("int64", b"\x02" + bytes(7) + b"\x03" + bytes(7), [2, 3]),
        ("<f4", b"\0\0\x80\x3f\0\0\0\xc0", [1.0, -2.0]),
        ("float16", b"\0\x3c\0\xc0", [1.0, -2.0]),
        ("bfloat16", b"\x80\x3f\0\xc0", [1.0, -2.0]),
        ("|b1", b"\0\x01", [False, True]),
        ("|u1", b"\0\xff", [0, 255]),
        ("=f8", bytes(8) + b"\0\0\0\0\0\0\xf0\x3f", [0.0, 1.0]),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
def test_arrays(name: str, data: bytes, values: list[float], inline: bool) -> None:
    value = [name, [2], Ext(3, data) if inline else 2]
    assert wire.read_array(value, [b"head", b"other", data]).values() == values


def test_scalars_and_empty_arrays() -> None:
    assert wire.read_array(["<i8", [], Ext(3, b"\x07" + bytes(7))]).values() == [7]
    assert wire.read_array(["int32", [0, 5], Ext(3, b"")]).values() == []


@pytest.mark.parametrize(
    "value",
    [
        None, ["<i4", [1]], [">i4", [1], Ext(3, bytes(4))], ["object", [1], Ext(3, bytes(4))],
        [4, [1], Ext(3, bytes(4))], ["<i4", 1, Ext(3, bytes(4))], ["<i4", [-1], Ext(3, bytes(4))],
        ["<i4", [2], Ext(3, bytes(4))], ["<i4", [1], Ext(1, bytes(4))], ["<i4", [1], 0], ["<i4", [1], 2],
        ["<i4", [1], -1], ["<i4", [1], {"shm": 1}], ["<i4", [True], Ext(3, bytes(4))],
    ],
)  # fmt: skip
def test_wrong_arrays(value: Any) -> None:
    with pytest.raises(WireError):
        wire.read_array(value, [b"head", bytes(5)])


def test_arrays_are_written_inline_or_as_frames() -> None:
    frames = [b"head"]
    small = wire.Array("int32", (2,), bytes(8))
    large = wire.Array("float32", (100,), bytes(400))
    values = [wire.write_array(array, frames) for array in (small, large, large)]
    assert [value[2] for value in values[1:]] == [1, 2]
    read = msgspec.msgpack.decode(wire.encode(values))
    assert [wire.read_array(value, frames) for value in read] == [small, large, large]


def test_identities() -> None:
    assert [wire.identity(rank) for rank in (0, 1, 258)] == [b"\0\0", b"\x01\0", b"\x02\x01"]
    assert [wire.engine_index(name) for name in (b"\x02\x01", b"", b"\0\0\0")] == [258, None, None]
