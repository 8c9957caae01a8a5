"""Tokens of reasoning are counted between markers, whatever the pieces; markers themselves are none."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fastfront.parse.counting import Counting
from fastfront.parse.registry import choose

#: Markers of one token each, but those that are sequences of several.
TOKENS = {"<think>": 1, "</think>": 2, "<|channel|>": 10, "analysis": 11, "final": 12, "<|message|>": 13, "<|end|>": 14}
SEQUENCES = {"<|channel|>analysis<|message|>": [10, 11, 13], "<|open|>think<|sep|>": [20, 21, 22],
             "<|close|>think<|sep|>": [23, 21, 22], "<|open|>response<|sep|>": [20, 24, 22]}  # fmt: skip


def encode(text: str) -> list[int]:
    return SEQUENCES.get(text) or [TOKENS.get(text, 99)]


def count(parser: str, ids: list[int], in_reasoning: bool | None) -> int:
    """Of all ids at once, one by one, and cut in two: always the same."""
    make = Counting(choose(None, parser), encode).counter(in_reasoning)
    counts = set()
    for cuts in ([0, len(ids)], list(range(len(ids) + 1)), [0, len(ids) // 2, len(ids)]):
        counter = make()
        for begin, end in pairwise(cuts):
            counter.feed(ids[begin:end])
        counts.add(counter.count)
    (counted,) = counts
    return counted


@pytest.mark.parametrize(
    ("parser", "ids", "in_reasoning", "counted"),
    [
        # begins inside, as the model does or as the prompt says
        ("qwen3", [5, 6, 2, 7], None, 2),
        ("qwen3", [1, 5, 6, 2, 7], None, 2),
        ("qwen3", [5, 6, 2, 7], False, 0),
        ("qwen3", [5, 1, 6, 2, 7], False, 1),
        ("deepseek_v3", [5, 6, 2, 7], None, 0),
        ("deepseek_v3", [5, 6, 2, 7], True, 2),
        # cut off
        ("deepseek_r1", [5, 6, 7], None, 3),
        ("deepseek_r1", [], None, 0),
        # twice
        ("qwen3", [5, 2, 6, 1, 7, 8, 2, 9], True, 3),
        # channels
        ("openai_gptoss", [10, 11, 13, 5, 6, 14, 10, 12, 13, 7, 8], None, 2),
        ("openai_gptoss", [10, 12, 13, 7, 8], None, 0),
        # markers of several tokens, also a beginning of one that is none
        ("kimi_k3", [5, 6, 23, 21, 22, 7], None, 2),
        ("kimi_k3", [5, 23, 6, 20, 24, 22, 7], None, 3),
        # nobody can tell
        ("muse_glimmer", [1, 5, 2], None, 0),
    ],
)
def test_count(parser: str, ids: list[int], in_reasoning: bool | None, counted: int) -> None:
    assert count(parser, ids, in_reasoning) == counted
