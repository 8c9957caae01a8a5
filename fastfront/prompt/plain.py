"""Encodes text in which no control token is one: `<|im_end|>` gives the ids of its characters, as any word does."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import tokenizers

from fastfront.errors import RequestError
from fastfront.prompt.tokenizer import not_unicode

_BLANK = " \t\r\n▁"


def control_tokens(backend: tokenizers.Tokenizer) -> dict[int, tokenizers.AddedToken]:
    """The added tokens by id, without those of white space alone: these are ordinary text (gemma has many)."""
    return {i: token for i, token in backend.get_added_tokens_decoder().items() if token.content.strip(_BLANK)}


class PlainEncoder:
    """A tokenizer without its control tokens. It shares the vocabulary, so it is cheap to make."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._control = {i: token.content for i, token in control_tokens(backend).items()}
        plain = tokenizers.Tokenizer(backend.model)
        if backend.normalizer is not None:
            plain.normalizer = backend.normalizer
        if backend.pre_tokenizer is not None:
            plain.pre_tokenizer = backend.pre_tokenizer
        self._real: dict[int, int] = {}
        for i, token in backend.get_added_tokens_decoder().items():
            if i not in self._control:
                plain.add_tokens([token])
                own = plain.token_to_id(token.content)
                if own is not None:
                    self._real[own] = i
        # A token of our own between segments: what is on its two sides is encoded apart, in one call. No client can
        # guess it.
        self._cut = f"\ufdd0{secrets.token_hex(16)}\ufdd0"
        plain.add_special_tokens([tokenizers.AddedToken(self._cut, normalized=False, special=True)])
        self._cut_id = plain.token_to_id(self._cut)
        self._plain = plain

    def encode(self, segments: Iterable[str | int]) -> list[int]:
        """Ids of the segments in their order: a string is encoded as plain text, an int is an id as it is.

        Raises RequestError for a lone surrogate, and where the vocabulary itself makes a control token of a text.
        """
        texts: list[str] = []
        between: list[int | None] = []
        after_text = False
        for segment in segments:
            if isinstance(segment, int):
                texts.append(self._cut)
                between.append(segment)
                after_text = False
                continue
            if after_text:
                texts.append(self._cut)
                between.append(None)
            texts.append(segment)
            after_text = True
        text = "".join(texts)
        try:
            raw = self._plain.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except TypeError:
            raise not_unicode(text) from None
        out: list[int] = []
        cuts = iter(between)
        for i in raw:
            if i == self._cut_id:
                given = next(cuts)
                if given is not None:
                    out.append(given)
                continue
            if i in self._control:
                raise RequestError(f"{self._control[i]!r} in the messages cannot be encoded as plain text.")
            out.append(self._real.get(i, i) if self._real else i)
        return out
