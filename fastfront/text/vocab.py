"""Builds the detokenizer's vocabulary from what tokenizer.json says of its tokens and its decoder.

Only decoders whose text can be told token by token are served: byte-level, and the sentencepiece family (replaced or
metaspace word marks, byte fallback, stripped leading spaces).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from fastfront.errors import StartError
from fastfront.fast import Vocab

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def build_vocab(
    tokens: Iterable[str | bytes | None], special: Collection[int], decoder: dict[str, Any] | None
) -> Vocab:
    """The Vocab of `tokens` (by id, None where undefined); StartError for a decoder that is not served.

    Tokens are strings that the decoder turns into text, or raw bytes that need none.
    """
    steps = _flatten(decoder)
    if not steps:
        return Vocab(map(_raw, tokens), special)
    names = (None if isinstance(token, bytes) else token for token in tokens)
    if [step["type"] for step in steps] == ["ByteLevel"]:
        alphabet = _byte_alphabet()
        return Vocab((None if name is None else _from_alphabet(name, alphabet) for name in names), special)
    return _sentencepiece_vocab(names, special, steps)


def _raw(token: str | bytes | None) -> bytes | None:
    if isinstance(token, str):
        raise StartError("the tokenizer names no decoder, so its tokens cannot be joined to text")
    return token


def _sentencepiece_vocab(tokens: Iterable[str | None], special: Collection[int], steps: list[dict[str, Any]]) -> Vocab:
    replaced: list[tuple[str, str]] = []
    fallback = False
    strip_left = 0
    for step in steps:
        match step:
            case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)}:
                replaced.append((pattern, content))
            case {"type": "ByteFallback"}:
                fallback = True
            case {"type": "Fuse"}:
                pass  # the text is one piece anyway
            case {"type": "Strip", "content": " ", "start": int(start), "stop": 0}:
                strip_left = start
            case {"type": "Metaspace", "replacement": str(mark), **rest}:
                replaced.append((mark, " "))
                first = rest.get("prepend_scheme", "always") != "never" and rest.get("add_prefix_space", True)
                strip_left = -1 if first else 0
            case _:
                raise StartError(
                    f"the tokenizer's decoder has a step that cannot be streamed: {step}; "
                    "byte-level and sentencepiece decoders can"
                )
    pieces: list[bytes | None] = []
    byte_ids = set()
    for token_id, token in enumerate(tokens):
        if token is None:
            pieces.append(None)
            continue
        for pattern, content in replaced:
            token = token.replace(pattern, content)
        if fallback and (byte := _BYTE_TOKEN.fullmatch(token)):
            byte_ids.add(token_id)
            pieces.append(bytes([int(byte[1], 16)]))
        else:
            pieces.append(token.encode())
    return Vocab(pieces, special, byte_ids, strip_left, byte_level=False)


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _flatten(inner)]
    return [decoder]


def _byte_alphabet() -> dict[int, int]:
    """Each byte's printable stand-in, as GPT-2 chose them: Latin-1's printable ones, then U+0100 and up.

    A table for str.translate: stand-ins become the bytes' numbers, what else is in Latin-1 leaves it.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {**dict.fromkeys(others, 0xFFFF), **{0x100 + n: byte for n, byte in enumerate(others)}}


def _from_alphabet(token: str, alphabet: dict[int, int]) -> bytes:
    """A token's bytes; one with any character outside the alphabet (an added token) stands for itself."""
    try:
        return token.translate(alphabet).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()
