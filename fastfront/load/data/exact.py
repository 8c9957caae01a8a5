"""Texts of exactly so many tokens.

The text of arbitrary ids seldom reads back as the same ids. So ids are made text and read again, cut or filled up,
until the length is right; where that does not end, the text is made of words that stay one token each.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fastfront.errors import ConfigError
from fastfront.load.sample import Tokenizer

_TRIES = 10
_WORDS = 64


def exact_text(tokenizer: Tokenizer, ids: Sequence[int], rng: random.Random) -> str:
    """A text of exactly as many tokens as there are `ids`, which begins as theirs does where that can be."""
    length = len(ids)
    now = list(ids)
    for _ in range(_TRIES):
        text = tokenizer.decode(now)
        now = tokenizer.encode(text, False)
        if len(now) == length:
            return text
        now = now[:length] if len(now) > length else now + rng.choices(tokenizer.ids, k=length - len(now))
    text = tokenizer.decode(rng.choices(_words(tokenizer, rng), k=length))
    if len(tokenizer.encode(text, False)) != length:
        raise _impossible(length)
    return text


def added(tokenizer: Tokenizer) -> int:
    """How many special tokens a server puts around a text prompt."""
    return len(tokenizer.encode("a", True)) - len(tokenizer.encode("a", False))


def _words(tokenizer: Tokenizer, rng: random.Random) -> list[int]:
    words: list[int] = []
    for token in rng.sample(tokenizer.ids, min(len(tokenizer.ids), 100 * _WORDS)):
        text = tokenizer.decode([token, token])
        if text.isascii() and text.replace(" ", "").isalpha() and " " in text.strip():
            if tokenizer.encode(text, False) == [token, token]:
                words.append(token)
                if len(words) == _WORDS:
                    break
    if not words:
        raise _impossible(2)
    return words


def _impossible(length: int) -> ConfigError:
    return ConfigError(f"no text of exactly {length} tokens was found for this tokenizer; use --prompt-token-ids")
