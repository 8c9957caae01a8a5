"""The tokenizer: text to ids and back, by tokenizer.json alone (its BOS rule, its `special` flags)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tokenizers

from fastfront.errors import RequestError, StartError
from fastfront.prompt.fast_tokenizer import FastTokenizer, Loading, NoAnswerError, light_bytes
from fastfront.prompt.files import ModelFiles
from fastfront.prompt.reference import Reference, join, open_reference, truncated

log = logging.getLogger(__name__)

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

#: Bytes of text that are encoded in the event loop at most, and the time that unseen text may take there.
LIGHT = 16384
LIGHT_SECONDS = 0.0015
#: Ids that fastokens decodes at most: it keeps all other threads waiting (some 5 ms for so many).
MOST_FAST = 65536
#: A vocabulary is gone through id by id up to so many times its size, and taken as a whole where that is not enough.
_SPARSE = 4
#: Where the integer of both libraries ends.
MAX_ID = 2**32 - 1


class Piece(NamedTuple):
    """One vocabulary entry as tokenizer.json writes it (`Ġthe`, `▁the`, `<0x0A>`, `<|im_end|>`), or its raw bytes."""

    token: str | bytes
    added: bool
    special: bool


class Tokenizer:
    """A loaded tokenizer. Its methods may be called from several threads."""

    def __init__(
        self,
        reference: Reference,
        special_tokens: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
        loading: Loading | None = None,
    ) -> None:
        backend = reference.get()
        self._reference = reference
        self._loading = loading
        self._fast: FastTokenizer | None = None
        #: What tokenizer_config.json says.
        self.config = dict(config or {})
        #: Named special tokens (bos_token, eos_token, ...) as chat templates see them.
        self.special_tokens = dict(special_tokens or {})
        #: `vocab_size` is the number of entries; the model may have more rows.
        self.vocab_size, self.max_token_id, self.max_chars_per_token = _extent(backend)
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        specials = [added[i].content for i in self.special_ids]
        #: Whether `join` puts anything between two special tokens.
        self.spaces_special_tokens = any(self.join(["x", s, s]) != self.join(["x", s]) + s for s in specials)
        self.eos_token_id = self._named_id("eos_token")
        self.bos_token_id = self._named_id("bos_token")
        #: Bytes of any text that are encoded in the time that the event loop has for it.
        self.light = light_bytes(self.prompt_ids, LIGHT_SECONDS, LIGHT)

    def speed_up(self) -> None:
        """Takes fastokens if it has been loaded and agrees, and logs what encodes."""
        loading, self._loading = self._loading, None
        if loading is None:
            return
        result = loading.checked(self.reference)
        if isinstance(result, str):
            log.info("tokenizer: `tokenizers` encodes (fastokens: %s)", result)
            return
        self._fast = result
        self.light = light_bytes(self.prompt_ids, LIGHT_SECONDS, LIGHT)
        log.info("tokenizer: fastokens encodes (same ids as `tokenizers` in the check)")

    def let_go(self) -> None:
        """Frees the reference's memory where fastokens answers in its place. Call it when `pieces` has been."""
        if self._fast is not None:
            self._reference.let_go()

    @property
    def reference(self) -> tokenizers.Tokenizer:
        """The library's own tokenizer, whose answer is the right one; where it was let go it is loaded again."""
        return self._reference.get()

    def _named_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.token_to_id(token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; raises RequestError for a lone surrogate."""
        return list(self.prompt_ids(text, add_special_tokens))

    def prompt_ids(self, text: str, add_special_tokens: bool = True, *, alone: bool = False) -> Sequence[int]:
        """As `encode`, but not a list where another sequence (`array`) costs less.

        `alone`, for a text worth a worker thread: the reference too lets other threads run meanwhile.
        """
        if self._fast is not None:
            ids = self._fast.encode(text, add_special_tokens)
            if ids is not None:
                return ids
        check_unicode(text)
        if alone:
            return self.reference.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        return self.reference.encode(text, add_special_tokens=add_special_tokens).ids

    def encode_truncated(self, text: str, length: int) -> list[int]:
        """The last tokens of `text`, at most `length` of them counting special ones, which are kept."""
        check_unicode(text)
        if self._fast is not None:
            try:
                return self._fast.encode_truncated(text, length)
            except NoAnswerError:
                pass
        return truncated(self.reference, text, length)

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; unknown ids give nothing. Raises RequestError for ids below 0 or above 2**32 - 1."""
        if ids and not 0 <= min(ids) <= max(ids) <= MAX_ID:
            raise RequestError(f"a token id is from 0 to {MAX_ID}", param="tokens", limit=MAX_ID)
        if self._fast is not None and len(ids) <= MOST_FAST:
            try:
                return self._fast.decode(ids, skip_special_tokens)
            except NoAnswerError:
                pass
        # Unlike its decode, and unlike fastokens, it lets other threads run.
        return self.reference.decode_batch([ids], skip_special_tokens=skip_special_tokens)[0]

    def id_to_token(self, token_id: int) -> str | None:
        """The entry's raw string, None where the tokenizer has no such id."""
        return self.tokens([token_id])[0] or None

    def token_to_id(self, token: str) -> int | None:
        """The id of a raw token string."""
        if self._fast is not None:
            try:
                return self._fast.token_to_id(token)
            except NoAnswerError:
                pass
        return self.reference.token_to_id(token)

    def tokens(self, ids: list[int]) -> list[str]:
        """Raw token strings of `ids`, "" where there is none."""
        if self._fast is not None:
            try:
                return self._fast.tokens(ids)
            except NoAnswerError:
                pass
        look = self.reference.id_to_token
        return [look(i) or "" for i in ids]

    def offsets(self, text: str, add_special_tokens: bool = True) -> list[tuple[int, int]]:
        """Of each id of `encode`, where its characters begin and end in `text`."""
        check_unicode(text)
        # Unlike encode, it lets other threads run.
        return self.reference.encode_batch([text], add_special_tokens=add_special_tokens)[0].offsets

    def join(self, tokens: list[str]) -> str:
        """The text of raw token strings, as the tokenizer's decoder joins them."""
        if self._fast is not None:
            try:
                return self._fast.join(tokens)
            except NoAnswerError:
                pass
        return join(self.reference, tokens)

    def pieces(self) -> Iterator[Piece | None]:
        """Every id's entry, by id, None for holes: what a detokenizer's vocabulary is built from.

        One at a time: memory that all would take at once does not go back, for what else is made meanwhile lies in it.
        """
        backend = self.reference
        added = backend.get_added_tokens_decoder()
        for i in range(self.max_token_id + 1):
            if i in added:
                yield Piece(added[i].content, True, added[i].special)
            else:
                token = backend.id_to_token(i)
                yield None if token is None else Piece(token, False, False)

    def decoder(self) -> dict[str, Any] | None:
        """The `decoder` of tokenizer.json, None when it has none."""
        decoder = self.reference.decoder
        if decoder is None:
            return None
        parsed: dict[str, Any] = json.loads(decoder.__getstate__())
        return parsed


def _extent(backend: tokenizers.Tokenizer) -> tuple[int, int, int]:
    """How many entries the vocabulary has, the largest id, and the characters of the longest entry; StartError."""
    model, added = backend.model, backend.get_added_tokens_decoder()
    names = [token.content for token in added.values()]
    left = backend.get_vocab_size(with_added_tokens=False)
    size = left + sum(model.token_to_id(name) is None for name in names)
    if not size:
        raise StartError("the tokenizer has an empty vocabulary")
    last, longest = -1, max(map(len, names), default=0)
    for i, token in enumerate(map(model.id_to_token, range(_SPARSE * left))):
        if token is not None:
            last, left = i, left - 1
            if len(token) > longest:
                longest = len(token)
            if not left:
                break
    else:  # tokens that share an id, or ids far apart
        rest = backend.get_vocab(with_added_tokens=False)
        last, longest = max(rest.values(), default=-1), max(map(len, (*names, *rest)))
    return size, max((last, *added)), longest


def load_tokenizer(files: ModelFiles, *, fast: bool = True) -> Tokenizer:
    """Loads the tokenizer; raises StartError when the library cannot read it. `fast`: by fastokens if it agrees."""
    tokenizer = open_tokenizer(files, fast=fast)
    tokenizer.speed_up()
    return tokenizer


def open_tokenizer(files: ModelFiles, *, fast: bool = True) -> Tokenizer:
    """As load_tokenizer, but fastokens, which takes longer, is taken by `speed_up` alone."""
    loading = Loading(files.tokenizer) if fast else None
    reference = open_reference(files.tokenizer, files.name)
    named = special_tokens(files.tokenizer_config, files.special_tokens_map)
    return Tokenizer(reference, named, files.tokenizer_config, loading)


def special_tokens(tokenizer_config: dict[str, Any], special_tokens_map: dict[str, Any]) -> dict[str, str]:
    """Named special tokens. special_tokens_map.json counts only without `added_tokens_decoder`, as in transformers."""
    source = dict(tokenizer_config)
    if "added_tokens_decoder" not in source:
        source.update(special_tokens_map)
    extra = source.get("extra_special_tokens")
    own = {key: value for key, value in source.items() if key.endswith("_token") and key not in _NAMED}
    if isinstance(extra, dict):
        own.update(extra)
    out: dict[str, str] = {}
    for name in (*_NAMED, *own):
        value = own[name] if name in own else source.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            out[name] = value
    return out


def check_unicode(text: str) -> None:
    """RequestError for a text that no tokenizer takes: one with a lone surrogate, or none at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise not_unicode(text) from None
    except AttributeError:
        raise RequestError("The prompt must be a string.", param="prompt") from None


def not_unicode(text: str) -> RequestError:
    """The error for a text with a lone surrogate."""
    position, character = next((at, sign) for at, sign in enumerate(text) if "\ud800" <= sign <= "\udfff")
    return RequestError(
        f"The text holds a lone surrogate (U+{ord(character):04X}) at position {position}: not Unicode text.",
        param="prompt",
    )
