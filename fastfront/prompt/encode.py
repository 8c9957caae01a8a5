"""fastokens in front of `tokenizers`: used when a self-check at load finds no text with other ids.

`tokenizers` stays the reference: it decodes, it answers where fastokens raises, and it takes over where fastokens fails
the check, is not installed, cannot read the file, or panics later. What fastokens keeps between calls are caches of
words, one set for each thread and bounded (about 60 MB after 40 MB of unseen words).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tokenizers

from fastfront import env

log = logging.getLogger(__name__)

_TEXTS = (
    "", " ", "  ", "\n", "\t", "\r\n", "\0", "\ufeff", "a", "Hello, world!", " leading", "trailing ",
    "a  b   c    d", "a\n\n\nb", "x \n y\t\tz\r\n\r\n", "    indented\n\tcode(a, b[0]) != {'k': 1.5}; // #!",
    "I'm you're WE'LL it'S don't y'all 'tis o'clock", "3.14159 1,000,000 12345678901234567890 1 22 333 4444 ½ ² ٣ 五",
    "snake_case camelCase HTTPServer __init__ C++ <|not|> </s", "Zürich façade Ångström ﬁ ﬀ İ ß ǆ",
    "e\u0301 a\u030a\u0301 o\u0302\u0323 \u0301 \u0323\u0301x \u1100\u1161\u11a8 각", "e" + "\u0301" * 40,
    "世界,你好!ひらがなカタカナ한국어", "Привет мир العربية עברית हिन्दी ไทย",
    "👩\u200d👩\u200d👧 🫠🇩🇪 🏽 \u200d \ufe0f ✈\ufe0f", "\u00a0\u2003\u2028\u3000\u0085\u200b\u001c",
    "\ue000 \uffff \U0010ffff \ufffd", "▁Ġ ▁▁a Ċ <0x0A><0xFF>", "a" * 300, "ab" * 200, "=" * 120, " " * 130 + "x",
    "\n" * 90, "!?.," * 60, "supercalifragilisticexpialidocious" * 8, "word " * 60,
    "https://example.org/a/b?c=d&e=%20f#g", '{"a": [1, 2.5, null], "é": "\\u00e9\\n"}',
)  # fmt: skip
_MIXED = 400  # seeded mixtures of the texts above and of added tokens
_ADDED = 48  # added tokens that the check tries, each in several surroundings


class FastEncoder:
    """fastokens' encoder behind one rule: None means that the reference must answer."""

    def __init__(self, backend: Any) -> None:
        self._backend: Any = backend

    def encode(self, text: str, add_special_tokens: bool, alone: bool) -> list[int] | None:
        """Token ids, or None for the reference to answer. `alone` lets other threads run meanwhile."""
        backend = self._backend
        if backend is None:
            return None
        try:
            if alone:
                encoding = backend.encode_batch([text], add_special_tokens)[0]
            else:
                encoding = backend.encode(text, add_special_tokens)
        except Exception:  # a lone surrogate, or a limit of its regex engine
            return None
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            self._backend = None
            log.error("fastokens panicked (%s); `tokenizers` encodes from now on", error)
            return None
        ids: list[int] = encoding.ids
        return ids


def load_fastokens(path: Path) -> Any:
    """fastokens' tokenizer of a tokenizer.json; raises whatever it raises."""
    env.single_threaded_fastokens()
    import fastokens

    backend = fastokens.Tokenizer.from_file(str(path))
    backend.no_truncation()
    backend.no_padding()
    return backend


def checked(backend: Any, reference: tokenizers.Tokenizer) -> FastEncoder | str:
    """An encoder that gave the reference's ids for all texts of the check, or the reason why there is none."""
    encoder = FastEncoder(backend)
    for count, text in enumerate(check_texts(reference)):
        for special in (True, False):
            want = reference.encode(text, add_special_tokens=special).ids
            # Twice, as the second answer comes from the caches of the first.
            for alone in (False, True):
                if encoder.encode(text, special, alone) != want:
                    return f"differs in check text {count}, {text[:40]!a}"
    return encoder


def check_texts(reference: tokenizers.Tokenizer) -> Iterator[str]:
    """Texts in which tokenizers tend to differ: white space, scripts, marks, added tokens, words of this vocabulary."""
    yield from _TEXTS
    rng = random.Random(1)
    added = [token.content for _, token in sorted(reference.get_added_tokens_decoder().items())]
    some = added if len(added) <= _ADDED else [*added[:16], *rng.sample(added[16:], _ADDED - 16)]
    for token in some:
        yield f"a{token}b {token} c\n{token}\n{token}{token} {token[:-1]} {token.upper()}"
    pieces = [*(text for text in _TEXTS if len(text) < 80), *some]
    for _ in range(_MIXED):
        yield "".join(rng.choices(pieces, k=rng.randint(2, 9)))
    size = reference.get_vocab_size(with_added_tokens=True)
    for _ in range(100):
        yield reference.decode(rng.choices(range(size), k=25), skip_special_tokens=False)


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
