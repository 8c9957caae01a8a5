"""From rows of candidates to positions with texts and bytes."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastfront.flow import LogprobRows, Position, Token
from fastfront.text import logprobs
from fastfront.text.logprobs import Positions, TokenTable
from tests.fast.vocabs import MODELS, rows, vocab

PIECES = [b"a", b" \xf0\x9f", b"\xab", b"\xa0", b"\xa0abc", None, b"\xef\xbf\xbd", b"\xc3", b"\xa9", b"<end>"]


@pytest.fixture
def table(fast: SimpleNamespace) -> TokenTable:
    return TokenTable(fast.Vocab(PIECES, special=[9]))


def texts(positions: list[Position]) -> list[str]:
    return [position.tokens[0].text for position in positions]


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        ([0, 1, 2, 3, 0], ["a", "", "", " 🫠", "a"]),
        ([1, 2, 3, 1, 2, 3], ["", "", " 🫠"] * 2),
        ([1, 2, 4], ["", "", " 🫠abc"]),
        ([1, 0, 3], ["", "a", ""]),  # what nothing completes is not shown
        ([4], ["\ufffdabc"]),
        ([6, 0], ["\ufffd", "a"]),  # a true U+FFFD
        ([5, 10, -1, 1 << 40], [""] * 4),
        ([9, 0], ["<end>", "a"]),  # special tokens are shown
        ([7, 8], ["", "é"]),
        ([7, 9, 8], ["", "<end>", ""]),
    ],
)
def test_texts(table: TokenTable, ids: list[int], shown: list[str]) -> None:
    positions = Positions(table, 0).add(ids, None)
    assert texts(positions) == shown
    own = [bytes(position.tokens[0].bytes) for position in positions]
    assert own == [PIECES[token_id] or b"" if 0 <= token_id < len(PIECES) else b"" for token_id in ids]


def test_a_character_that_the_prompt_began(table: TokenTable) -> None:
    assert texts(Positions(table, 0, [0, 1, 2]).add([3], None)) == [" 🫠"]
    assert texts(Positions(table, 0, [7, 0]).add([8], None)) == [""]


def test_rivals_complete_the_same_character(table: TokenTable) -> None:
    made = Positions(table, 2)
    made.add([7], None)
    (position,) = made.add([0], LogprobRows(3, [0, 8, 7], [-2.0, -0.5, -1.0], [3]))
    assert [token.text for token in position.tokens] == ["a", "é", ""]
    assert position.ranks == [3, 1, 2]


def test_rows(table: TokenTable) -> None:
    rows = LogprobRows(3, [7, 0, 7, 0, 2, 9], [-0.5, -0.1, -0.5, -1, -2, -3], [2, 9])
    first, second = Positions(table, 2).add([7, 0], rows)
    assert first == Position([7, 0], [Token("", (0xC3,)), Token("a", (97,))], [-0.5, -0.1], [2, 1])
    assert (second.ids, second.logprobs, second.ranks) == ([0, 2, 9], [-1, -2, -3], [9, 1, 2])


@pytest.mark.parametrize(("top", "left"), [(0, 1), (1, 2), (2, 3), (9, 3), (-1, 3)])
def test_rows_are_cut(table: TokenTable, top: int, left: int) -> None:
    rows = LogprobRows(3, [7, 0, 9, 0, 2, 9], [-0.5, -0.1, -0.5, -1, -2, -3], [2, 9])
    made = Positions(table, top).add([7, 0], rows)
    assert [len(position.ids) for position in made] == [left, left]


def test_more_and_fewer_rows_than_ids(table: TokenTable) -> None:
    rows = LogprobRows(1, [0, 9], [-1.0, -2.0], [1, 1])
    assert [position.logprobs for position in Positions(table, 0).add([0], rows)] == [[-1.0]]
    assert [position.logprobs for position in Positions(table, 0).add([7, 0, 9], rows)] == [(), [-1.0], [-2.0]]


def test_the_table_is_bounded(fast: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "KEPT", 10)
    table = TokenTable(fast.Vocab([bytes([n]) for n in range(256)]))
    for token_id in range(256):
        assert table[token_id].bytes == (token_id,)
        assert len(table) <= 10
    assert texts(Positions(table, 0).add([0xC3, 0xA9], None)) == ["", "é"]


@pytest.mark.parametrize("model", MODELS)
def test_texts_join_to_the_answer(
    fast: SimpleNamespace, shared: Path, peers: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = vocab(fast, peers, model, monkeypatch)
    table, seen = TokenTable(words), 0
    for case in rows(shared, "detok_cases.jsonl"):
        if case["model"] != model or "\ufffd" in case["text"] or case.get("skip_special_tokens", True):
            continue
        joined = "".join(texts(Positions(table, 0).add(case["ids"], None)))
        assert joined.strip(" ") == case["text"].strip(" "), case  # a text's leading space may be dropped
        seen += 1
    assert seen


def test_groups_make_no_difference(table: TokenTable) -> None:
    rng = random.Random(3)
    for _ in range(200):
        ids = [rng.randrange(len(PIECES)) for _ in range(rng.randrange(1, 12))]
        rivals = [[token_id, *rng.choices(range(len(PIECES)), k=2)] for token_id in ids]
        made: list[Any] = []
        for size in (1, 3, len(ids)):
            positions = Positions(table, 2, [1])
            got: list[Position] = []
            for at in range(0, len(ids), size):
                part = rivals[at : at + size]
                flat = [token_id for row in part for token_id in row]
                some = LogprobRows(3, flat, [-1.0] * len(flat), [1] * len(part))
                got += positions.add(ids[at : at + size], some)
            made.append(got)
        assert made[0] == made[1] == made[2]
