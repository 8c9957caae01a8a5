"""Mistral's own tokenizers (tekken.json, tokenizer.model.v*), read by the package mistral-common.

`MistralTokenizer` has the methods of `Tokenizer`. It decodes by the bytes of its pieces, as the streams do.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from fastfront.errors import RequestError, StartError
from fastfront.prompt.fast_tokenizer import light_bytes
from fastfront.prompt.tokenizer import LIGHT, LIGHT_SECONDS, Piece, Tokenizer, not_unicode

_HINT = "pip install 'fastfront[mistral]'"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
#: Control tokens that parsers look for: they stay in the text.
_KEPT = frozenset(("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"))
_SENTENCEPIECE = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}


class MistralTokenizer:
    """A loaded tokenizer. Its methods may be called from several threads."""

    def __init__(self, mistral: Any) -> None:
        #: mistral_common's MistralTokenizer, which also knows the chat format.
        self.mistral = mistral
        inner = mistral.instruct_tokenizer.tokenizer
        self._inner = inner
        self.special_tokens: dict[str, str] = {}
        self.config: dict[str, Any] = {}
        self.spaces_special_tokens = False
        self.vocab_size: int = inner.n_words
        self.max_token_id = self.vocab_size - 1
        self._names = [inner.id_to_piece(i) for i in range(self.vocab_size)]
        self._numbers = {name: i for i, name in reversed(list(enumerate(self._names)))}
        self.max_chars_per_token = max(map(len, self._names))
        control = {i for i in range(self.vocab_size) if inner.is_special(i)}
        self.special_ids = frozenset(i for i in control if self._names[i] not in _KEPT)
        self.bos_token_id: int | None = inner.bos_id
        self.eos_token_id: int | None = inner.eos_id
        self._control = control
        self._is_tekken = hasattr(inner, "id_to_byte_piece")
        self._bytes = [self._piece_bytes(i) for i in range(self.vocab_size)]
        self.light = light_bytes(self.encode, LIGHT_SECONDS, LIGHT)

    def _piece_bytes(self, token_id: int) -> bytes:
        name: str = self._names[token_id]
        if token_id in self._control:
            return name.encode()
        if self._is_tekken:
            from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy

            piece: bytes = self._inner.id_to_byte_piece(token_id, SpecialTokenPolicy.KEEP)
            return piece
        byte = _BYTE.fullmatch(name)
        return bytes([int(byte[1], 16)]) if byte else name.replace("▁", " ").encode()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`, in which no control token is one; raises RequestError for a lone surrogate."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise not_unicode(text) from None
        ids: list[int] = self._inner.encode(text, bos=add_special_tokens, eos=False)
        return ids

    def prompt_ids(self, text: str, add_special_tokens: bool = True, *, alone: bool = False) -> Sequence[int]:
        """As `encode`; `alone` changes nothing."""
        return self.encode(text, add_special_tokens)

    def encode_truncated(self, text: str, length: int) -> list[int]:
        """The last tokens of `text`, at most `length` of them counting BOS, which is kept."""
        ids = self.encode(text)
        return ids if len(ids) <= length else [*ids[:1], *ids[len(ids) - length + 1 :]][:length]

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; unknown ids give nothing. Raises RequestError for ids below 0."""
        if ids and min(ids) < 0:
            raise RequestError(f"Token id {min(ids)} is out of vocabulary", param="tokens")
        known = [i for i in ids if i < self.vocab_size and not (skip_special_tokens and i in self.special_ids)]
        text = b"".join(self._bytes[i] for i in known).decode("utf-8", "replace")
        starts = bool(known) and not self._is_tekken and self._names[known[0]].startswith("▁")
        return text[1:] if starts else text

    def id_to_token(self, token_id: int) -> str | None:
        """The entry's name, None where there is no such id."""
        return self._names[token_id] if 0 <= token_id < self.vocab_size else None

    def token_to_id(self, token: str) -> int | None:
        """The id of an entry's name."""
        return self._numbers.get(token)

    def tokens(self, ids: list[int]) -> list[str]:
        """Names of `ids`, "" where there is none."""
        return [self.id_to_token(i) or "" for i in ids]

    def offsets(self, text: str, add_special_tokens: bool = True) -> list[tuple[int, int]]:
        """Of each id of `encode`, where its characters begin and end in `text`."""
        ids = self.encode(text, add_special_tokens)
        ends = list(accumulate(len(self._bytes[i]) if i not in self._control else 0 for i in ids))
        # A sentencepiece text begins with a space that is not there.
        ahead = max(0, (ends[-1] if ends else 0) - len(text.encode()))
        characters = list(accumulate((len(c.encode()) for c in text), initial=0))
        at = [min(bisect_left(characters, max(0, end - ahead)), len(text)) for end in (0, *ends)]
        return list(pairwise(at))

    def join(self, tokens: list[str]) -> str:
        """The text of entries' names."""
        return self.decode([self._numbers[token] for token in tokens if token in self._numbers], False)

    def pieces(self) -> Iterator[Piece | None]:
        """Every id's entry: raw bytes in tekken, else as sentencepiece writes it."""
        for i, piece in enumerate(self._bytes if self._is_tekken else self._names):
            yield Piece(piece, i in self._control, i in self.special_ids)

    def decoder(self) -> dict[str, Any] | None:
        """How entries become text, in the words of tokenizer.json; None for raw bytes."""
        return None if self._is_tekken else _SENTENCEPIECE


#: What a model may be served with.
AnyTokenizer = Tokenizer | MistralTokenizer


def load_mistral(path: Path) -> MistralTokenizer:
    """Loads a tokenizer file; raises StartError, also where mistral-common is not installed."""
    try:
        from mistral_common.protocol.instruct.validator import ValidationMode
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer as Backend
    except ImportError as error:
        raise StartError(f"--tokenizer-mode mistral needs the package mistral-common: {_HINT} ({error})") from error
    try:
        return MistralTokenizer(Backend.from_file(str(path), mode=ValidationMode.test))
    except Exception as error:  # the library raises errors of many kinds
        raise StartError(f"cannot load {path}: {error}") from error
