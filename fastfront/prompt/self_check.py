"""What fastokens is asked before it answers in place of `tokenizers`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import tokenizers

from fastfront.prompt.reference import join, truncated

if TYPE_CHECKING:
    from fastfront.prompt.fast_tokenizer import FastTokenizer

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


def difference(fast: FastTokenizer, reference: tokenizers.Tokenizer) -> str | None:
    """The first question of the check that `fast` does not answer as the reference does, None if there is none."""
    for count, text in enumerate(check_texts(reference)):
        for special in (True, False):
            want = reference.encode(text, add_special_tokens=special).ids
            for _ in range(2):  # the second answer comes from the caches of the first
                got = fast.encode(text, special)
                if got is None or got.tolist() != want:
                    return f"differs in check text {count}, {text[:40]!a}"
        if count % 8 == 0 and any(fast.encode_truncated(text, n) != truncated(reference, text, n) for n in (1, 2, 9)):
            return f"differs in check text {count}, truncated"
    for ids in check_ids(reference):
        tokens = [reference.id_to_token(i) or "" for i in ids]
        if fast.tokens(ids) != tokens or [fast.token_to_id(t) for t in tokens] != [*map(reference.token_to_id, tokens)]:
            return f"differs in the names of {ids[:8]}"
        if fast.join(tokens) != join(reference, tokens):
            return f"differs in the text of {tokens[:8]!a}"
        for skip in (True, False):
            if fast.decode(ids, skip) != reference.decode(ids, skip_special_tokens=skip):
                return f"differs in the text of {ids[:8]}"
    return None


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


def check_ids(reference: tokenizers.Tokenizer) -> Iterator[list[int]]:
    """Ids whose texts tokenizers tend to tell differently: any, added ones, bytes of characters, and none at all."""
    rng = random.Random(3)
    size = reference.get_vocab_size(with_added_tokens=True)
    added = sorted(reference.get_added_tokens_decoder())
    some = [*added[:200], *rng.choices(range(size), k=200), size + 7]
    byte_ids = [i for i in (reference.token_to_id(f"<0x{byte:02X}>") for byte in range(256)) if i is not None]
    yield []
    for at in range(0, len(some), 20):
        yield some[at : at + 20]
    for _ in range(60):
        pool = byte_ids if byte_ids and rng.random() < 0.5 else some
        yield rng.choices(pool, k=rng.randint(1, 8)) + rng.choices(some, k=3) + rng.choices(pool, k=3)
    for text in _TEXTS:
        yield reference.encode(text).ids
