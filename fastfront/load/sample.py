"""What a data set gives: prompts with the lengths that are asked for, and what it needs of a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fastfront.errors import ConfigError

Messages = list[dict[str, Any]]


class Sample(NamedTuple):
    """One request to come. `due` is seconds after the run's start, for data sets that know it."""

    prompt: str | list[int] | Messages
    prompt_tokens: int
    output_tokens: int
    due: float | None = None


class Conversation(NamedTuple):
    """Questions and how many tokens each answer gets."""

    questions: list[str]
    output_tokens: list[int]


class Tokenizer(NamedTuple):
    """`encode(text, with special tokens)`, `decode(ids)`, and the ids that a prompt may hold: no special ones."""

    encode: Callable[[str, bool], list[int]]
    decode: Callable[[list[int]], str]
    ids: Sequence[int]


def needed(tokenizer: Tokenizer | None, name: str) -> Tokenizer:
    """The tokenizer; ConfigError where there is none and the data set `name` cannot do without."""
    if tokenizer is None:
        raise ConfigError(f"--dataset-name {name} needs a tokenizer, which --skip-tokenizer-init leaves out")
    return tokenizer
