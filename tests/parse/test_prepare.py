"""Whether a prompt left reasoning open, and which parsers want special tokens."""

from __future__ import annotations

import pytest

from fastfront.parse.prepare import Preparation

IDS = {"<think>": 1, "</think>": 2, "<|im_start|>": 3, "<|im_end|>": 4}


@pytest.mark.parametrize(
    ("parser", "prompt", "thinking", "ended"),
    [
        ("qwen3", [3, 9, 4, 3, 9], True, False),
        ("qwen3", [3, 9, 1, 2], True, True),
        ("qwen3", [3, 9, 1, 9, 2, 9], True, True),
        ("qwen3", [3, 9, 2, 9, 1], True, False),
        # what an earlier turn closed does not count
        ("qwen3", [1, 2, 4, 3, 9], True, False),
        ("qwen3", [3, 9], False, True),
        ("qwen3", [], True, False),
        ("deepseek_r1", [9, 1], True, False),
        ("deepseek_r1", [2, 9], True, True),
        ("deepseek_r1", [9], False, False),
        ("granite", [9, 2], True, None),
    ],
)
def test_reasoning_ended(parser: str, prompt: list[int], thinking: bool, ended: bool | None) -> None:
    assert Preparation(None, parser, IDS.get).reasoning_ended(prompt, thinking) is ended


def test_a_vocabulary_without_the_marks() -> None:
    assert Preparation(None, "qwen3", lambda text: None).reasoning_ended([1, 2], True) is None


@pytest.mark.parametrize(
    ("tool", "reasoning", "calls", "keeps"),
    [("hermes", None, True, True), ("hermes", None, False, False), (None, "qwen3", False, True)],
)
def test_keeps_special_tokens(tool: str | None, reasoning: str | None, calls: bool, keeps: bool) -> None:
    assert Preparation(tool, reasoning, IDS.get).keeps_special_tokens(calls) is keeps
