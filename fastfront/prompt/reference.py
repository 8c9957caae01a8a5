"""The tokenizer of the library `tokenizers`, whose answer is the right one.

It takes much memory, and where fastokens answers nothing asks it any more. So it is let go then, and loaded again from
its file, which stays open so that it is the same file, for the few things that it alone can do.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import BinaryIO

import tokenizers

from fastfront.errors import StartError


class Reference:
    """One tokenizer, in memory or not. Its methods may be called from several threads."""

    def __init__(self, loaded: tokenizers.Tokenizer, file: BinaryIO | None = None) -> None:
        self._loaded: tokenizers.Tokenizer | None = _bare(loaded)
        self._file = file
        self._lock = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        """Whether `get` is quick."""
        return self._loaded is not None

    def get(self) -> tokenizers.Tokenizer:
        """The tokenizer. To load it again takes some 0.2 s, in which no other thread of Python runs."""
        loaded = self._loaded
        if loaded is not None:
            return loaded
        with self._lock:
            if self._loaded is None:
                assert self._file is not None
                self._loaded = _bare(_read(self._file))
            return self._loaded

    def let_go(self) -> None:
        """Frees its memory if there is a file to read it from again."""
        if self._file is not None:
            self._loaded = None


def open_reference(source: Path | str, name: str) -> Reference:
    """The tokenizer of a tokenizer.json, or of the text of one; StartError where the library cannot read it."""
    try:
        if isinstance(source, str):
            return Reference(tokenizers.Tokenizer.from_str(source))
        file = source.open("rb", buffering=0)
        return Reference(_read(file), file)
    except Exception as error:  # the library raises bare Exception
        where = f"the tokenizer of {name}" if isinstance(source, str) else source
        raise StartError(f"cannot load {where}: {error}") from error


def _read(file: BinaryIO) -> tokenizers.Tokenizer:
    file.seek(0)
    return tokenizers.Tokenizer.from_buffer(file.read())


def _bare(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Without what its file says of cutting and filling up: prompts have neither."""
    backend.no_truncation()
    backend.no_padding()
    return backend


def truncated(reference: tokenizers.Tokenizer, text: str, length: int) -> list[int]:
    """The last ids of a text, at most `length` of them with the special ones around."""
    encoding = reference.encode(text, add_special_tokens=False)
    encoding.truncate(max(0, length - reference.num_special_tokens_to_add(False)), direction="left")
    return reference.post_process(encoding, None, True).ids[:length]


def join(reference: tokenizers.Tokenizer, tokens: list[str]) -> str:
    """The text of raw token strings, as the tokenizer's decoder joins them."""
    decoder = reference.decoder
    return " ".join(tokens) if decoder is None else decoder.decode(tokens)
