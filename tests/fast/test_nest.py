"""The end of a JSON value that comes in pieces."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import pytest

VALUES = [
    '"a"',
    '""',
    r'"a\"b\\"',
    "{}",
    "[]",
    '{"a": "}", "b": {"c": [1, "{"]}}',
    '[[1], {"a": "]"}, "\\"]"]',
    '["é🫠"]',
]


@pytest.mark.parametrize("value", VALUES)
def test_every_split_ends_at_the_same_place(fast: SimpleNamespace, value: str) -> None:
    text = f'{value}]}}" more'
    for first in range(1, len(text)):
        nest = fast.Nest(text[0])
        end = nest.take(text[:first], 0)
        assert nest.done == (first >= len(value))
        if not nest.done:
            assert end == first
            end += nest.take("xx" + text[first:], 2) - 2
        assert end == len(value)
        assert nest.done
        assert nest.take(text, end) == end  # it takes no more


def test_only_brackets_of_its_own_kind_count(fast: SimpleNamespace) -> None:
    nest = fast.Nest("{")
    assert nest.take("{]]}}", 0) == 4
    assert nest.done


@pytest.mark.parametrize("opening", ["", "1", "}", "{{", "é"])
def test_what_a_nest_cannot_begin_with(fast: SimpleNamespace, opening: str) -> None:
    with pytest.raises(ValueError, match="no JSON string, object or array"):
        fast.Nest(opening)


def test_random_values(fast: SimpleNamespace) -> None:
    rng = random.Random(3)

    def made(depth: int) -> object:
        kind = rng.randrange(4 if depth else 2)
        if kind == 0:
            return "".join(rng.choices('ab"\\{}[]é\n', k=rng.randrange(5)))
        if kind == 1:
            return rng.randrange(100)
        if kind == 2:
            return [made(depth - 1) for _ in range(rng.randrange(4))]
        return {f"{n}}}": made(depth - 1) for n in range(rng.randrange(4))}

    for _ in range(200):
        text = json.dumps({"": made(4)}, ensure_ascii=rng.random() < 0.5)
        nest = fast.Nest("{")
        assert nest.take(text + text, 0) == len(text)
