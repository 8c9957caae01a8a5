"""A tokenizer whose ids seldom survive being made text: `ab` is one token, however it came about."""

from __future__ import annotations

from fastfront.load.sample import Tokenizer

_PIECES = ["<s>", *"abcdef", "ab", "cd", "abcd", "ef", " abc", " def", "fa"]


def tokenizer(*, words: bool = True, special: int = 1) -> Tokenizer:
    """Greedy, the longest piece first; ids 1 to 13, `special` tokens before a text; `words`: with those of a space."""
    pieces = [piece for piece in _PIECES if words or " " not in piece]
    by_length = sorted(range(1, len(pieces)), key=lambda i: -len(pieces[i]))

    def encode(text: str, with_special: bool) -> list[int]:
        ids, at = [0] * (special if with_special else 0), 0
        while at < len(text):
            token = next(i for i in by_length if text.startswith(pieces[i], at))
            ids.append(token)
            at += len(pieces[token])
        return ids

    return Tokenizer(encode, lambda ids: "".join(pieces[i] for i in ids if i), range(1, len(pieces)))
