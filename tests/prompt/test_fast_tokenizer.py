"""fastokens beside `tokenizers`: the same answers, or `tokenizers` gives them and the log says so."""

from __future__ import annotations

import logging
import random
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfront.errors import RequestError
from fastfront.prompt import fast_tokenizer as module
from fastfront.prompt.fast_tokenizer import FastTokenizer, light_bytes, load_fastokens, read_text
from fastfront.prompt.files import read_model_files
from fastfront.prompt.prompter import Prompter
from fastfront.prompt.reference import Reference, join, truncated
from fastfront.prompt.self_check import difference
from fastfront.prompt.tokenizer import Tokenizer, load_tokenizer

MODELS = ("qwen3", "llama3_1", "gemma3", "deepseek_v3", "gptoss", "llama2", "smollm2")
Load = Callable[..., Prompter]


class Broken:
    """Stands for fastokens: encodes as told."""

    def __init__(self, ids: Any) -> None:
        self.ids = ids

    def encode_batch_flat(self, texts: list[str], add_special_tokens: bool) -> tuple[bytes, bytes]:
        """The ids, or raises them."""
        if isinstance(self.ids, BaseException):
            raise self.ids
        return struct.pack(f"<{len(self.ids)}I", *self.ids), b""


class Other:
    """fastokens, one of whose methods answers something else."""

    def __init__(self, backend: Any, method: str, wrong: Any) -> None:
        self.backend, self.method, self.wrong = backend, method, wrong

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: self.wrong) if name == self.method else getattr(self.backend, name)


class PanicException(BaseException):
    """As a panic of Rust code looks in Python."""


def own(load: Load, model: str) -> Tokenizer:
    tokenizer = load(model).tokenizer
    assert isinstance(tokenizer, Tokenizer)
    return tokenizer


@pytest.fixture(scope="module")
def reference(models: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(models / "smollm2" / "tokenizer.json"))


@pytest.mark.parametrize("model", MODELS)
def test_fastokens_is_taken(load: Load, model: str) -> None:
    tokenizer = own(load, model)
    assert tokenizer._fast is not None
    assert 2048 < tokenizer.light <= 16384


def texts(rng: random.Random, added: list[str]) -> list[str]:
    """Random Unicode of several kinds, with added tokens inside, and long runs."""
    everything = [chr(c) for c in range(0x20000) if not 0xD800 <= c < 0xE000]
    alphabets = [
        "ab ",
        "aB'sT ",
        " \n\t\r",
        "0123456789.,",
        "\u0301\u0316e a",
        "👩👨\u200d🫠\ufe0f ",
        "世界人民你好,。",
        "_<|>/#=-!",
    ]
    out = []
    for _ in range(60):
        alphabet = rng.choice([*alphabets, everything, everything[:0x500]])
        text = "".join(rng.choices(alphabet, k=rng.choice([1, 2, 5, 30, 300])))
        out.append(text if rng.random() < 0.5 or not added else rng.choice(added).join((text, text[::-1], "")))
    return [
        *out,
        "x" * 20_000,
        " " * 20_000,
        "".join(rng.choices(everything, k=5000)),
        "\0" * 100,
        "e" + "\u0301" * 5000,
    ]


@pytest.mark.parametrize("model", MODELS)
def test_same_ids_for_random_text(load: Load, models: Path, model: str) -> None:
    tokenizer = own(load, model)
    slow = load_tokenizer(read_model_files(str(models / model)), fast=False)
    rng = random.Random(model)
    for text in texts(rng, [str(piece.token) for piece in tokenizer.pieces() if piece and piece.added]):
        special, alone = rng.random() < 0.5, rng.random() < 0.3
        assert list(tokenizer.prompt_ids(text, special, alone=alone)) == slow.encode(text, special), ascii(text)[:200]


@given(st.text(max_size=60), st.booleans())
@settings(max_examples=200, deadline=None)
def test_same_ids_for_any_text(load: Load, text: str, special: bool) -> None:
    for model in ("qwen3", "gemma3", "llama2"):
        tokenizer = own(load, model)
        want = tokenizer.reference.encode(text, add_special_tokens=special).ids
        assert tokenizer.encode(text, special) == want


def test_threads_get_the_same_ids(load: Load) -> None:
    tokenizer = own(load, "qwen3")
    rng = random.Random(3)
    some = texts(rng, ["<|im_end|>"])
    want = [tokenizer.reference.encode(text).ids for text in some]
    got: dict[int, list[list[int]]] = {}

    def work(n: int) -> None:
        got[n] = [list(tokenizer.prompt_ids(text, alone=n % 2 == 0)) for text in some]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(got[n] == want for n in range(4))


def test_long_texts_do_not_stop_other_threads(load: Load) -> None:
    tokenizer = own(load, "qwen3")
    rng = random.Random(4)
    text = "".join(rng.choices("abcdefgh ", k=2_000_000))
    started, counts = threading.Event(), [0, 0]

    def work() -> None:
        started.set()
        tokenizer.prompt_ids(text, alone=True)
        counts[1] = counts[0]

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    while thread.is_alive():
        counts[0] += 1
    # With the interpreter's lock held all along, this loop would hardly have turned.
    assert counts[1] > 1000


def test_lone_surrogate_goes_to_the_reference(load: Load) -> None:
    tokenizer = own(load, "qwen3")
    assert tokenizer._fast is not None
    assert tokenizer._fast.encode("a\ud800", True) is None
    with pytest.raises(RequestError, match=r"U\+D800"):
        tokenizer.encode("a\ud800")


def test_other_ids_are_found(reference: tokenizers.Tokenizer, models: Path) -> None:
    def found(backend: Any) -> str | None:
        return difference(FastTokenizer(backend), reference)

    own = load_fastokens(read_text(models / "smollm2" / "tokenizer.json"))
    assert found(own) is None
    assert found(load_fastokens(read_text(models / "qwen3" / "tokenizer.json"))) == "differs in check text 1, ' '"
    assert "differs" in str(found(Broken([])))
    assert "differs" in str(found(Broken(ValueError("limit"))))
    for method, wrong in (("decode_batch", [""]), ("decode_tokens", ""), ("id_to_token", "x"), ("token_to_id", 7)):
        assert "differs in the" in str(found(Other(own, method, wrong))), method


@pytest.mark.parametrize(
    "problem", [ImportError("no fastokens"), ValueError("not BPE"), PanicException("at x.rs:1"), None]
)
def test_what_hinders_fastokens_is_logged(
    models: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, problem: BaseException | None
) -> None:
    def load(text: str) -> Any:
        if problem is None:
            return Broken([1])
        raise problem

    monkeypatch.setattr(module, "load_fastokens", load)
    monkeypatch.setattr(logging.getLogger("fastfront"), "propagate", True)
    caplog.set_level(logging.INFO)
    tokenizer = load_tokenizer(read_model_files(str(models / "smollm2")))
    assert tokenizer.encode("Hello") == [19556]
    (line,) = [record.getMessage() for record in caplog.records if "fastokens" in record.getMessage()]
    assert line.startswith("tokenizer: `tokenizers` encodes (fastokens: ")
    assert ("differs" if problem is None else str(problem)) in line


def test_not_installed(monkeypatch: pytest.MonkeyPatch, models: Path) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    assert load_tokenizer(read_model_files(str(models / "smollm2")))._fast is None


def test_a_panic_while_serving_ends_its_use(reference: tokenizers.Tokenizer) -> None:
    backend = Broken(PanicException("at x.rs:1"))
    tokenizer = Tokenizer(Reference(reference))
    tokenizer._fast = FastTokenizer(backend)
    assert tokenizer.encode("Hello") == [19556]
    backend.ids = [1]
    assert tokenizer.encode("Hello") == [19556]
    assert tokenizer.decode([19556]) == "Hello"
    stopped = FastTokenizer(Broken(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        stopped.encode("x", True)


@pytest.mark.parametrize("model", MODELS)
def test_the_reference_is_let_go(models: Path, model: str) -> None:
    """Nothing that requests ask for commonly loads it again, and the answers are its."""
    tokenizer = load_tokenizer(read_model_files(str(models / model)))
    reference, rng = tokenizer.reference, random.Random(model)
    tokenizer.let_go()
    for text in texts(rng, [])[:40]:
        ids = tokenizer.encode(text)
        for skip in (True, False):
            assert tokenizer.decode(ids, skip) == reference.decode(ids, skip_special_tokens=skip)
        tokens = tokenizer.tokens(ids)
        assert tokens == [reference.id_to_token(i) for i in ids]
        assert tokenizer.join(tokens) == join(reference, tokens)
        assert tokenizer.encode_truncated(text, 5) == truncated(reference, text, 5)
    for _ in range(300):
        ids = rng.choices(range(tokenizer.max_token_id + 9), k=rng.randint(0, 9))
        assert tokenizer.decode(ids, False) == reference.decode(ids, skip_special_tokens=False)
        assert tokenizer.tokens(ids) == [reference.id_to_token(i) or "" for i in ids]
    with pytest.raises(RequestError):
        tokenizer.encode("a\ud800")
    assert not tokenizer._reference.is_loaded
    assert tokenizer.offsets("a b")  # which fastokens cannot tell
    assert tokenizer._reference.is_loaded


def test_it_is_the_same_file_that_is_loaded_again(models: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_bytes((models / "smollm2" / name).read_bytes())
    tokenizer = load_tokenizer(read_model_files(str(tmp_path)))
    tokenizer.let_go()
    (tmp_path / "other").write_text("{}")
    (tmp_path / "other").rename(tmp_path / "tokenizer.json")
    assert tokenizer.offsets("Hello world") == [(0, 5), (5, 11)]


def test_without_fastokens_it_stays(models: Path) -> None:
    tokenizer = load_tokenizer(read_model_files(str(models / "smollm2")), fast=False)
    tokenizer.let_go()
    assert tokenizer._reference.is_loaded


def test_light_bytes() -> None:
    assert light_bytes(len, 1.0, 5000) == 5000
    assert light_bytes(lambda text: sum(map(ord, text * 50)), 1e-5, 10**6) < 5000
