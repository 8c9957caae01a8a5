"""Token ids as msgpack and as JSON."""

from __future__ import annotations

import json
import random
from array import array
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

encode = msgspec.msgpack.encode

EDGES = [0, 1, 9, 10, 127, 128, 255, 256, 65535, 65536, 2**31, 2**32 - 2]
SIZES = pytest.mark.parametrize("size", [0, 1, 15, 16, 300, 65535, 65536])


def some(size: int) -> list[int]:
    rng = random.Random(size)
    return [rng.choice([*EDGES, rng.randrange(1 << rng.randrange(1, 32))]) for _ in range(size)]


@SIZES
def test_ids_are_packed_as_by_the_reference(fast: SimpleNamespace, size: int) -> None:
    ids = some(size)
    for given in (ids, tuple(ids), array("I", ids), array("q", ids)):
        assert fast.pack_ids(given, 2**32 - 1) == encode(ids)
    assert fast.pack_ids(dict.fromkeys(ids), 2**32 - 1) == encode(list(dict.fromkeys(ids)))


@SIZES
def test_ids_are_json_as_by_the_reference(fast: SimpleNamespace, size: int) -> None:
    ids = some(size)
    for given in (ids, tuple(ids), array("I", ids), array("q", ids), array("I", ids)[: size // 2]):
        assert fast.json_ids(given) == json.dumps(list(given), separators=(",", ":")).encode()


WRONG = (10, -1, True, 2**31, 2**32 + 1, 2**64 + 1, 2**70, -(2**70), "2", 1.0, None)


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_wrong_ids_are_not_packed(fast: SimpleNamespace, wrong: Any) -> None:
    for ids in ([wrong], [3, wrong], [wrong, 9], [0] * 1000 + [wrong]):
        assert fast.pack_ids(ids, 10) is None


@pytest.mark.parametrize("wrong", [10, 11, 2**31, 2**32 - 1])
def test_wrong_ids_of_a_tokenizer_are_not_packed(fast: SimpleNamespace, wrong: int) -> None:
    for ids in ([wrong], [3, wrong], [wrong, 9], [0] * 1000 + [wrong]):
        assert fast.pack_ids(array("I", ids), 10) is None
    assert fast.pack_ids(array("q", [3, -1]), 10) is None
