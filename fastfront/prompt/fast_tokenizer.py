"""fastokens beside `tokenizers`: used when a self-check at load finds nothing that the two answer differently.

`tokenizers` stays the reference: it answers where fastokens raises, and it takes over where fastokens fails the check,
is not installed, cannot read the file, or panics later. What fastokens keeps between calls are caches of words, one set
for each thread and bounded (about 60 MB after 40 MB of unseen words).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import tokenizers

from fastfront import env
from fastfront.prompt.merges import join_merges
from fastfront.prompt.self_check import difference

log = logging.getLogger(__name__)

_T = TypeVar("_T")


#: The ids in the bytes that fastokens gives; on a big-endian machine they would not pass the check.
_ids: Callable[[bytes], array[int]] = partial(array, "I")


class NoAnswerError(Exception):
    """fastokens cannot tell: the reference must answer."""


class FastTokenizer:
    """fastokens' tokenizer behind one rule: where it does not answer the reference must."""

    def __init__(self, backend: Any) -> None:
        self._backend: Any = backend

    def encode(self, text: str, add_special_tokens: bool) -> array[int] | None:
        """Token ids (`I`), or None for the reference to answer. Other threads run meanwhile."""
        backend = self._backend
        if backend is None:
            return None
        try:
            # Its other ways to encode keep a Python integer for each id that there is, some 5 MB.
            return _ids(backend.encode_batch_flat([text], add_special_tokens)[0])
        except Exception:  # a lone surrogate, or a limit of its regex engine
            return None
        except BaseException as error:
            self._panicked(error)
            return None

    def encode_truncated(self, text: str, length: int) -> list[int]:
        """The last ids of a text, at most `length` of them with the special ones around; or NoAnswerError."""

        def work(backend: Any) -> list[int]:
            # What of "a" is special stands around any text.
            cases = ("a", False), ("a", True), (text, False)
            own, whole, ids = (_ids(backend.encode_batch_flat([part], add)[0]).tolist() for part, add in cases)
            # Where it is not in there the error of `next` says so, as any does.
            begin = next(at for at in range(len(whole) + 1) if whole[at : at + len(own)] == own)
            before, after = whole[:begin], whole[begin + len(own) :]
            first = len(ids) - max(0, length - len(before) - len(after))
            return [*before, *ids[max(0, first) :], *after][:length]

        return self._ask(work)

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """The text of ids; or NoAnswerError."""
        return self._ask(lambda backend: str(backend.decode_batch([ids], skip_special_tokens)[0]))

    def tokens(self, ids: list[int]) -> list[str]:
        """Raw token strings, "" where there is none; or NoAnswerError."""
        return self._ask(lambda backend: [backend.id_to_token(i) or "" for i in ids])

    def join(self, tokens: list[str]) -> str:
        """The text of raw token strings; or NoAnswerError."""
        return self._ask(lambda backend: str(backend.decode_tokens(tokens)))

    def token_to_id(self, token: str) -> int | None:
        """The id of a raw token string; or NoAnswerError."""
        return self._ask(lambda backend: _id_of(backend, token))

    def _ask(self, work: Callable[[Any], _T]) -> _T:
        if self._backend is None:
            raise NoAnswerError
        try:
            return work(self._backend)
        except Exception as error:
            raise NoAnswerError from error
        except BaseException as error:
            self._panicked(error)
            raise NoAnswerError from error

    def _panicked(self, error: BaseException) -> None:
        """Never asks it again; raises what is no panic."""
        if type(error).__name__ != "PanicException":
            raise error
        self._backend = None
        log.error("fastokens panicked (%s); `tokenizers` encodes from now on", error)


def _id_of(backend: Any, token: str) -> int | None:
    number: int | None = backend.token_to_id(token)
    return number


class Loading:
    """fastokens' tokenizer of a source, which a thread loads while others work."""

    def __init__(self, source: Path | str) -> None:
        self._backend: Any = None
        self._error: BaseException | None = None
        self._read = threading.Event()
        # No daemon: a process that ends meanwhile must not tear native code apart.
        self._thread = threading.Thread(target=self._load, args=(source,), name="fastokens")
        self._thread.start()
        # `tokenizers`, which is next, keeps the interpreter to itself while it reads; fastokens does not.
        self._read.wait()

    def _load(self, source: Path | str) -> None:
        try:
            try:
                text = read_text(source)
            finally:
                self._read.set()
            self._backend = load_fastokens(text)
        except BaseException as error:  # panics included: the reference is there
            self._error = error

    def checked(self, reference: tokenizers.Tokenizer) -> FastTokenizer | str:
        """Waits for it; a tokenizer that gave the reference's answers in the check, or the reason for none."""
        self._thread.join()
        if self._error is not None:
            return _told(self._error)
        fast = FastTokenizer(self._backend)
        try:
            return difference(fast, reference) or fast
        except NoAnswerError as error:
            return _told(error.__cause__ or error)


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def read_text(source: Path | str) -> str:
    """A tokenizer.json, or the text of one, as fastokens reads it best; OSError or ValueError."""
    return join_merges(source.encode() if isinstance(source, str) else source.read_bytes()).decode()


def load_fastokens(text: str) -> Any:
    """fastokens' tokenizer of the text of a tokenizer.json; raises whatever it raises."""
    env.single_threaded_fastokens()
    import fastokens

    backend = fastokens.Tokenizer.from_json_str(text)
    backend.no_truncation()
    backend.no_padding()
    return backend


def light_bytes(encode: Callable[[str], Any], seconds: float, most: int) -> int:
    """How many bytes of text with words never seen before `encode` takes in `seconds`, at most `most`."""
    rng = random.Random(2)
    best = float("inf")
    for _ in range(12):  # the best of many: other programs may be using the processor
        words = ("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(580))
        text = " ".join(words)
        began = time.perf_counter()
        encode(text)
        best = min(best, (time.perf_counter() - began) / len(text))
    return min(most, int(seconds / max(best, 1e-12)))
