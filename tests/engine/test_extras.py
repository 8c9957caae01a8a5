"""What engines send beside tokens, as a real one did and as none should."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest

from fastfront.engine.extras import read_extras, read_rows
from fastfront.errors import WireError
from tests.golden.frames import FOLDER, load


def output(name: str) -> tuple[Any, list[bytes]]:
    """The extras of a golden message's only output, and its frames."""
    (path,) = FOLDER.glob(f"{name}_*.json")
    golden = load(path)
    raw = msgspec.msgpack.encode(msgspec.msgpack.decode(golden.frames[0])[1][0])
    return read_extras(raw), golden.frames


def test_inline() -> None:
    extras, frames = output("43")
    rows = read_rows(extras.logprobs, frames)
    assert (rows.width, rows.ids, rows.ranks) == (3, [7042, 7042, 260], [1])
    assert rows.logprobs == [-0.2399434745311737, -0.2399434745311737, -2.802443504333496]
    assert extras.prompt_logprobs is None
    assert extras.prefill.num_cached_tokens == extras.prefill.num_cache_creation_tokens == 0
    assert extras.kv_transfer_params is None


def test_prompt_inline() -> None:
    extras, frames = output("44")
    rows = read_rows(extras.prompt_logprobs, frames)
    assert (rows.width, len(rows.ids), rows.ranks) == (2, 8, [3109, 1, 2, 1])
    assert read_rows(extras.logprobs, frames).ids == [7042, 7042]


def test_prompt_in_frames_of_its_own() -> None:
    extras, frames = output("45")
    rows = read_rows(extras.prompt_logprobs, frames)
    assert (rows.width, len(rows.ids), len(rows.logprobs), len(rows.ranks)) == (4, 480, 480, 120)
    assert (rows.ids[:4], rows.ranks[:4]) == ([2365, 29, 28, 198], [13658, 55, 1, 63])
    assert rows.logprobs[0] == -14.519076347351074
    assert read_rows(extras.logprobs, frames).ids == [198, 198, 378]
    with pytest.raises(WireError):
        read_rows(extras.prompt_logprobs, ())


def test_hand_over() -> None:
    row: list[Any] = ["r", [], None, None, None, 0, None, None, {"a": 1}, {"b": [2]}]
    extras = read_extras(msgspec.msgpack.encode(row))
    assert (extras.kv_transfer_params, extras.ec_transfer_params, extras.prefill) == ({"a": 1}, {"b": [2]}, None)


def array(dtype: str, shape: list[int], code: str, *values: float) -> list[Any]:
    return [dtype, shape, msgspec.msgpack.Ext(3, struct.pack(f"<{len(values)}{code}", *values))]


IDS, FLOATS, RANKS = array("<i4", [1, 2], "i", 5, 6), array("<f4", [1, 2], "f", -1, -2), array("<i8", [1], "q", 1)


@pytest.mark.parametrize(
    "value",
    [
        [],
        [IDS, FLOATS],
        [IDS, FLOATS, FLOATS],
        [FLOATS, FLOATS, RANKS],
        [IDS, array("<f4", [2, 1], "f", -1, -2), RANKS],
        [array("<i4", [2], "i", 5, 6), array("<f4", [2], "f", 1, 2), RANKS],
        [array("<i4", [1, 0], "i"), array("<f4", [1, 0], "f"), RANKS],
        [IDS, FLOATS, array("<i8", [2], "q", 1, 2)],
        [IDS, FLOATS, ["<i8", [1], 7]],
    ],
)
def test_malformed(value: list[Any]) -> None:
    assert read_rows([IDS, FLOATS, RANKS], ()).ids == [5, 6]
    with pytest.raises(WireError):
        read_rows(value, ())
