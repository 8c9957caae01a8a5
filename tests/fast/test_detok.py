"""Token ids to text: the reference cases, and what they do not reach."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.fast.vocabs import MODELS, rows, vocab

BYTES = [bytes([n]) for n in range(256)]


def decoded(decoder: Any, steps: list[list[int]]) -> str:
    text: str = "".join([decoder.feed(ids) for ids in steps]) + decoder.finish()
    return text


def byte_vocab(fast: SimpleNamespace, **options: Any) -> Any:
    return fast.Vocab([*BYTES, b" world", None, "é".encode()], **options)


def test_reference_cases(
    fast: SimpleNamespace, shared: Path, peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in rows(shared, "detok_cases.jsonl"):
        words = vocab(fast, peers, case["model"], monkeypatch)
        for steps in ([[n] for n in case["ids"]], [case["ids"]]):
            decoder = fast.Decoder(words, case["skip_special_tokens"])
            assert decoded(decoder, steps) == case["text"], case


@pytest.mark.parametrize("model", MODELS)
def test_random_ids_decode_as_the_tokenizers_library_does(
    fast: SimpleNamespace, peers: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    reference = Tokenizer.from_file(str(peers / "models" / model / "tokenizer.json"))
    words = vocab(fast, peers, model, monkeypatch)
    rng = random.Random(17)
    size = reference.get_vocab_size(True)
    low = [n for n in range(1200) if len(words.piece(n) or b"") <= 2]
    for _ in range(60 if fast.kind == "native" else 20):
        ids = [rng.choice(low) if rng.random() < 0.6 else rng.randrange(size) for _ in range(rng.randrange(1, 30))]
        skip = rng.random() < 0.5
        if not good_before_bad(reference, ids):
            assert decoded(fast.Decoder(words, skip), [[n] for n in ids]) == reference.decode(ids, skip), ids


def good_before_bad(reference: Tokenizer, ids: list[int]) -> bool:
    """Whether a run of byte-fallback tokens goes bad after good characters, which a stream has sent by then."""
    names = [reference.id_to_token(n) or "" for n in ids]
    text = "".join(f"{name[3:5]}" if name.startswith("<0x") else "|" for name in names)
    for run in text.split("|"):
        data = bytes.fromhex(run)
        good = data.decode("utf-8", "ignore")
        if good and good.encode() != data:
            return True
    return False


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([0xF0, 256], "\ufffd world"),  # a cut character before a whole token
        ([0xE2, 0x82, 0xAC], "€"),
        ([0xE2, 0x82], "\ufffd"),
        ([0x80] * 3, "\ufffd" * 3),
        ([0xF0, 0x9F, 0xC3, 0xA9], "\ufffdé"),
        ([0xED, 0xA0, 0x80], "\ufffd" * 3),
        ([64, 257, 65], "@A"),
        ([64, -1, 1 << 40, 10**30, 65], "@A"),
        ([], ""),
    ],
)
def test_byte_level(fast: SimpleNamespace, ids: list[int], text: str) -> None:
    assert decoded(fast.Decoder(byte_vocab(fast)), [[n] for n in ids]) == text


def test_an_invalid_byte_is_told_as_soon_as_it_is_certain(fast: SimpleNamespace) -> None:
    decoder = fast.Decoder(byte_vocab(fast))
    assert [decoder.feed([n]) for n in (0x80, 0xF0, 0x9F, 0xF0, 0x9F, 0x98)] == ["\ufffd", "", "", "\ufffd", "", ""]
    assert decoder.finish() == "\ufffd"


@pytest.mark.parametrize(
    ("prompt", "steps", "deltas"),
    [
        ([64, 0xF0, 0x9F], [0xAB, 0xA0, 256], ["", "🫠", " world", ""]),
        ([64, 0xF0, 0x9F], [256], [" world", ""]),  # the prompt shows its own U+FFFD
        ([64, 0xF0, 0x9F], [0xAB, 64], ["", "@", ""]),
        ([64, 0xF0], [], [""]),
        ([64, 257], [65], ["A", ""]),
        ([0xEF, 0xBF], [0xBD], ["\ufffd", ""]),
    ],
)
def test_a_prompt_that_ends_inside_a_character(
    fast: SimpleNamespace, prompt: list[int], steps: list[int], deltas: list[str]
) -> None:
    decoder = fast.Decoder(byte_vocab(fast), True, prompt)
    assert [*(decoder.feed([n]) for n in steps), decoder.finish()] == deltas


def fallback_vocab(fast: SimpleNamespace) -> Any:
    pieces = [*BYTES, b" Hello", b" ", b"</s>", b""]
    return fast.Vocab(pieces, special=[258], byte_ids=range(256), strip_left=1, byte_level=False)


@pytest.mark.parametrize(
    ("prompt", "ids", "text"),
    [
        ([], [256], "Hello"),
        ([], [257, 256], " Hello"),
        ([], [258, 256], "Hello"),
        ([258], [256], "Hello"),
        ([256], [256], " Hello"),
        ([], [0x20, 256], " Hello"),
        ([], [0xC3, 0xA9, 0xF0, 0x9F], "é\ufffd\ufffd"),
        ([], [0xF0, 0x9F, 0xC3, 0xA9], "\ufffd" * 4),  # one bad byte spoils the rest of its run
        ([], [0xC3, 0xA9, 256, 0xF0], "é Hello\ufffd"),
        ([], [0xC3, 258, 0xA9], "é"),
        ([], [0xC3, 259, 0xA9], "\ufffd\ufffd"),
        ([], [*"é".encode()] * 40, "é" * 40),
        ([256, 0xF0, 0x9F], [0xAB, 0xA0], "🫠"),
        ([256, 0xF0, 0x9F], [0xAB, 256], "\ufffd Hello"),
    ],
)
def test_byte_fallback(fast: SimpleNamespace, prompt: list[int], ids: list[int], text: str) -> None:
    assert decoded(fast.Decoder(fallback_vocab(fast), True, prompt), [[n] for n in ids]) == text


def test_metaspace_drops_the_spaces_of_the_first_token_only(fast: SimpleNamespace) -> None:
    words = fast.Vocab([b"  a", b" b"], strip_left=-1, byte_level=False)
    assert decoded(fast.Decoder(words), [[0], [1]]) == "a b"


def test_memory_and_work_stay_bounded_on_undecodable_bytes(fast: SimpleNamespace) -> None:
    decoder = fast.Decoder(byte_vocab(fast))
    assert all(decoder.feed([0x80]) == "\ufffd" for _ in range(4000))
    decoder = fast.Decoder(fallback_vocab(fast))
    assert sum(len(decoder.feed([0x80])) for _ in range(4000)) == 4000


def test_vocab(fast: SimpleNamespace) -> None:
    words = byte_vocab(fast)
    assert len(words) == 259
    assert words.piece(256) == b" world"
    assert words.piece(257) is None
    assert words.piece(-1) is None
    assert words.piece(259) is None


def test_native_and_pure_agree_on_every_split(shared: Path) -> None:
    from fastfront.fast import load

    try:
        twins = [SimpleNamespace(**load(native)) for native in (False, True)]
    except ImportError:
        pytest.skip("the compiled modules are not built")
    rng = random.Random(5)
    pure, native = twins
    for make in (byte_vocab, fallback_vocab):
        for _ in range(400):
            ids = [rng.choice([*range(0x78, 0x100), 256, 257, 258, 0x20, 64]) for _ in range(rng.randrange(12))]
            prompt = [rng.choice([0xF0, 0x9F, 0xE2, 256, 258]) for _ in range(rng.randrange(3))]
            cut = rng.randrange(len(ids) + 1)
            skip = rng.random() < 0.5
            got = [
                [d.feed(ids[:cut]), d.feed(ids[cut:]), d.finish()]
                for d in (pure.Decoder(make(pure), skip, prompt), native.Decoder(make(native), skip, prompt))
            ]
            assert got[0] == got[1], (ids, prompt, cut)
