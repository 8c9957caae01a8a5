from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from fastfront.errors import RequestError, StartError
from fastfront.prompt.files import read_model_files
from fastfront.prompt.prompter import Prompter
from fastfront.prompt.reference import Reference
from fastfront.prompt.tokenizer import Tokenizer, load_tokenizer, special_tokens

MODELS = ("qwen3", "llama3_1", "gemma3", "deepseek_v3", "gptoss", "llama2")


def cases(shared: Path, name: str, model: str) -> list[dict[str, Any]]:
    lines = (shared / "cases" / name).read_text(encoding="utf-8").splitlines()
    return [case for case in map(json.loads, lines) if case["model"] == model]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("alone", [False, True])
def test_encode_cases(load: Callable[..., Prompter], shared: Path, model: str, alone: bool) -> None:
    tokenizer = load(model).tokenizer
    for case in cases(shared, "encode_cases.jsonl", model):
        ids = tokenizer.prompt_ids(case["text"], case["add_special_tokens"], alone=alone)
        assert list(ids) == case["ids"], case["kind"]


@pytest.mark.parametrize("model", MODELS)
def test_decode_cases(load: Callable[..., Prompter], shared: Path, model: str) -> None:
    tokenizer = load(model).tokenizer
    for case in cases(shared, "detok_cases.jsonl", model):
        assert tokenizer.decode(case["ids"], case["skip_special_tokens"]) == case["text"], case["why"]


def test_pieces_tell_added_and_special_and_holes(load: Callable[..., Prompter]) -> None:
    tokenizer = load("qwen3").tokenizer
    pieces = list(tokenizer.pieces())
    assert len(pieces) == tokenizer.max_token_id + 1 == tokenizer.vocab_size == 151669
    assert pieces[9707] == ("Hello", False, False)
    assert pieces[151645] == ("<|im_end|>", True, True)
    assert pieces[151667] == ("<think>", True, False)
    assert 151645 in tokenizer.special_ids
    assert 151667 not in tokenizer.special_ids
    gptoss = load("gptoss").tokenizer
    piece = list(gptoss.pieces())[200000]
    assert piece is None or piece.added


@pytest.mark.parametrize("model", MODELS)
def test_extent_of_a_vocabulary(load: Callable[..., Prompter], model: str) -> None:
    tokenizer = load(model).tokenizer
    assert isinstance(tokenizer, Tokenizer)
    vocabulary = tokenizer.reference.get_vocab(with_added_tokens=True)
    assert tokenizer.vocab_size == len(vocabulary)
    assert tokenizer.max_token_id == max(vocabulary.values())
    assert tokenizer.max_chars_per_token == max(map(len, vocabulary))


@pytest.mark.parametrize(
    ("vocabulary", "added", "extent"),
    [
        ({"a": 0, "[UNK]": 2}, [], (2, 2, 5)),  # a hole
        ({"a": 0, "[UNK]": 1}, ["[SEP-A]", "a"], (3, 2, 7)),
        ({"a": 0, "b": 0, "[UNK]": 1}, [], (3, 1, 5)),  # an id of two tokens
        ({"a": 0, "[UNK]": 1_000_000}, ["[SEP-A]"], (3, 1_000_000, 7)),
    ],
)
def test_extent_of_an_odd_vocabulary(
    vocabulary: dict[str, int], added: list[str], extent: tuple[int, int, int]
) -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "[UNK]"))
    backend.add_special_tokens(added)
    tokenizer = Tokenizer(Reference(backend))
    assert tokenizer.max_token_id == max(backend.get_vocab().values())
    assert (tokenizer.vocab_size, tokenizer.max_token_id, tokenizer.max_chars_per_token) == extent


def test_an_empty_vocabulary_is_refused() -> None:
    with pytest.raises(StartError, match="empty vocabulary"):
        Tokenizer(Reference(tokenizers.Tokenizer(tokenizers.models.BPE())))


@pytest.mark.parametrize("model", MODELS)
def test_no_spaces_between_special_tokens(load: Callable[..., Prompter], model: str) -> None:
    assert not load(model).tokenizer.spaces_special_tokens


def test_spaces_between_special_tokens() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    backend.add_special_tokens(["[SEP]"])
    assert Tokenizer(Reference(backend)).spaces_special_tokens


@pytest.mark.parametrize("model", MODELS)
def test_pieces_agree_with_the_library(load: Callable[..., Prompter], model: str) -> None:
    tokenizer = load(model).tokenizer
    for i, piece in enumerate(tokenizer.pieces()):
        assert tokenizer.id_to_token(i) == (piece.token if piece else None)


def test_decoder_json(load: Callable[..., Prompter]) -> None:
    assert (load("qwen3").tokenizer.decoder() or {})["type"] == "ByteLevel"
    llama = load("llama2").tokenizer.decoder() or {}
    assert [d["type"] for d in llama["decoders"]] == ["Replace", "ByteFallback", "Fuse", "Strip"]


def test_named_tokens(load: Callable[..., Prompter]) -> None:
    tokenizer = load("llama3_1").tokenizer
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (128000, 128009)
    assert load("qwen3").tokenizer.bos_token_id is None
    assert load("gemma3").tokenizer.special_tokens["image_token"] == "<image_soft_token>"


def test_special_tokens_map_counts_only_without_added_tokens_decoder() -> None:
    file = {"eos_token": {"content": "<b>", "lstrip": False}}
    assert special_tokens({"eos_token": "<a>"}, file) == {"eos_token": "<b>"}
    assert special_tokens({"eos_token": "<a>", "added_tokens_decoder": {}}, file) == {"eos_token": "<a>"}
    assert special_tokens({"pad_token": None, "extra_special_tokens": {"image_token": "<i>"}}, {}) == {
        "image_token": "<i>"
    }


@pytest.mark.parametrize("alone", [False, True])
def test_lone_surrogate_is_the_clients_fault(load: Callable[..., Prompter], alone: bool) -> None:
    with pytest.raises(RequestError, match=r"U\+D83D\) at position 2"):
        load("qwen3").tokenizer.prompt_ids("ab\ud83d", alone=alone)


def test_ids_out_of_range_of_the_library(load: Callable[..., Prompter]) -> None:
    tokenizer = load("qwen3").tokenizer
    for bad in (-1, 99999999999):
        with pytest.raises(RequestError):
            tokenizer.decode([9707, bad])
    assert tokenizer.decode([64, 151669, 65, 2**32 - 1]) == "ab"
    assert tokenizer.tokens([9707, 220, 99489, 151935]) == ["Hello", "Ġ", "ä¸ĸçķĮ", ""]


def test_truncation_keeps_special_tokens(load: Callable[..., Prompter]) -> None:
    tokenizer = load("llama3_1").tokenizer
    whole = tokenizer.encode("one two three four five")
    assert whole[0] == 128000
    assert tokenizer.encode_truncated("one two three four five", 3) == [128000, *whole[-2:]]
    assert tokenizer.encode_truncated("one two", 0) == []


def test_truncation_settings_of_the_file_do_not_count(load: Callable[..., Prompter], tmp_path: Path) -> None:
    source = Path(load("smollm2").info.root)
    parsed = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    parsed["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parsed), encoding="utf-8")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert len(load_tokenizer(read_model_files(str(tmp_path))).encode("a b c d e f")) > 2


def test_broken_tokenizer_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StartError, match=r"cannot load .*tokenizer\.json"):
        load_tokenizer(read_model_files(str(tmp_path)))
