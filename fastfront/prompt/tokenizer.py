"""The tokenizer: text to ids and back, by tokenizer.json alone (its BOS rule, its `special` flags)."""

from __future__ import annotations

import json
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import tokenizers

from fastfront.errors import RequestError, StartError
from fastfront.prompt.encode import FastEncoder, checked, light_bytes, load_fastokens
from fastfront.prompt.files import ModelFiles

log = logging.getLogger(__name__)

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

#: Bytes of text that are encoded in the event loop at most, and the time that unseen text may take there.
LIGHT = 16384
LIGHT_SECONDS = 0.0015


class Piece(NamedTuple):
    """One vocabulary entry as tokenizer.json writes it (`Ġthe`, `▁the`, `<0x0A>`, `<|im_end|>`), or its raw bytes."""

    token: str | bytes
    added: bool
    special: bool


class Tokenizer:
    """A loaded tokenizer. Its methods may be called from several threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_tokens: dict[str, str] | None = None,
        fast: FastEncoder | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._fast = fast
        #: What tokenizer_config.json says.
        self.config = dict(config or {})
        #: Named special tokens (bos_token, eos_token, ...) as chat templates see them.
        self.special_tokens = dict(special_tokens or {})
        self._added = dict(backend.get_added_tokens_decoder())
        vocabulary = backend.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise StartError("the tokenizer has an empty vocabulary")
        #: Number of entries; the model may have more rows.
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.max_token_id = max(vocabulary.values())
        self.max_chars_per_token = max(map(len, vocabulary))
        self.special_ids = frozenset(i for i, token in self._added.items() if token.special)
        specials = [self._added[i].content for i in self.special_ids]
        #: Whether `join` puts anything between two special tokens.
        self.spaces_special_tokens = any(self.join(["x", s, s]) != self.join(["x", s]) + s for s in specials)
        self.eos_token_id = self._named_id("eos_token")
        self.bos_token_id = self._named_id("bos_token")
        #: Bytes of any text that are encoded in the time that the event loop has for it.
        self.light = light_bytes(self.encode, LIGHT_SECONDS, LIGHT)

    @property
    def reference(self) -> tokenizers.Tokenizer:
        """The library's own tokenizer, whose answer is the right one."""
        return self._backend

    def _named_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.token_to_id(token)

    def encode(self, text: str, add_special_tokens: bool = True, *, alone: bool = False) -> list[int]:
        """Token ids of `text`; raises RequestError for a lone surrogate.

        `alone` lets other threads run meanwhile, for a text worth a worker thread.
        """
        if self._fast is not None:
            ids = self._fast.encode(text, add_special_tokens, alone)
            if ids is not None:
                return ids
        try:
            if alone:
                return self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
            return self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError:
            raise not_unicode(text) from None

    def encode_truncated(self, text: str, length: int) -> list[int]:
        """The last tokens of `text`, at most `length` of them counting special ones, which are kept."""
        try:
            encoding = self._backend.encode(text, add_special_tokens=False)
        except TypeError:
            raise not_unicode(text) from None
        encoding.truncate(max(0, length - self._backend.num_special_tokens_to_add(False)), direction="left")
        return self._backend.post_process(encoding, None, True).ids[:length]

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; unknown ids give nothing. Raises RequestError for ids below 0 or above 2**32 - 1."""
        try:
            return self._backend.decode_batch([ids], skip_special_tokens=skip_special_tokens)[0]
        except OverflowError as error:
            raise RequestError(str(error)) from None

    def id_to_token(self, token_id: int) -> str | None:
        """The entry's raw string, None where the tokenizer has no such id."""
        return self._backend.id_to_token(token_id)

    def token_to_id(self, token: str) -> int | None:
        """The id of a raw token string."""
        return self._backend.token_to_id(token)

    def tokens(self, ids: list[int]) -> list[str]:
        """Raw token strings of `ids`, "" where there is none."""
        look = self._backend.id_to_token
        return [look(i) or "" for i in ids]

    def offsets(self, text: str, add_special_tokens: bool = True) -> list[tuple[int, int]]:
        """Of each id of `encode`, where its characters begin and end in `text`."""
        try:  # unlike encode, it lets other threads run
            return self._backend.encode_batch([text], add_special_tokens=add_special_tokens)[0].offsets
        except TypeError:
            raise not_unicode(text) from None

    def join(self, tokens: list[str]) -> str:
        """The text of raw token strings, as the tokenizer's decoder joins them."""
        decoder = self._backend.decoder
        return " ".join(tokens) if decoder is None else decoder.decode(tokens)

    def pieces(self) -> list[Piece | None]:
        """Every id's entry, by id, None for holes: what a detokenizer's vocabulary is built from."""
        out: list[Piece | None] = [None] * (self.max_token_id + 1)
        for token, i in self._backend.get_vocab(with_added_tokens=False).items():
            out[i] = Piece(token, False, False)
        for i, added in self._added.items():
            out[i] = Piece(added.content, True, added.special)
        return out

    def decoder(self) -> dict[str, Any] | None:
        """The `decoder` of tokenizer.json, None when it has none."""
        decoder = self._backend.decoder
        if decoder is None:
            return None
        parsed: dict[str, Any] = json.loads(decoder.__getstate__())
        return parsed


def load_tokenizer(files: ModelFiles, *, fast: bool = True) -> Tokenizer:
    """Loads tokenizer.json; raises StartError when the library cannot read it. `fast`: by fastokens if it agrees."""
    path = files.tokenizer_path
    with ThreadPoolExecutor(1, thread_name_prefix="fastokens") as pool:
        loading = pool.submit(load_fastokens, path) if fast else None
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise StartError(f"cannot load {path}: {error}") from error
        backend.no_truncation()
        backend.no_padding()
        encoder = None if loading is None else _fast_encoder(loading, backend)
    named = special_tokens(files.tokenizer_config, files.special_tokens_map)
    return Tokenizer(backend, named, encoder, files.tokenizer_config)


def _fast_encoder(loading: Future[Any], reference: tokenizers.Tokenizer) -> FastEncoder | None:
    try:
        result = checked(loading.result(), reference)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it raises, panics included, the reference is there
        result = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    if isinstance(result, str):
        log.info("tokenizer: `tokenizers` encodes (fastokens: %s)", result)
        return None
    log.info("tokenizer: fastokens encodes (same ids as `tokenizers` in the check)")
    return result


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


def not_unicode(text: str) -> RequestError:
    """The error for a text that no tokenizer takes."""
    for position, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            return RequestError(
                f"The text holds a lone surrogate (U+{ord(character):04X}) at position {position}: not Unicode text.",
                param="prompt",
            )
    return RequestError("The prompt must be a string.", param="prompt")
