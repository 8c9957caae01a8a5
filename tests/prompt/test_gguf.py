"""A GGUF file in place of a model's folder: the same ids, prompts and facts."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from fastfront.errors import StartError
from fastfront.gguf_file import GgufFile, read_gguf
from fastfront.prompt import gguf_model
from fastfront.prompt.files import read_model_files
from fastfront.prompt.gguf_tokenizer import WORDS, tokenizer_json
from fastfront.prompt.load import PromptSettings, load_prompter
from fastfront.prompt.tokenizer import load_tokenizer
from tests.ggufs import byte_level_values, header_of, write_gguf

CHAT = [{"role": "user", "content": "What is the capital of France?"}, {"role": "assistant", "content": "Par\nis"}]


def texts(shared: Path) -> list[str]:
    """The texts of all cases, and seeded mixtures of their pieces."""
    lines = (shared / "cases" / "encode_cases.jsonl").read_text(encoding="utf-8").splitlines()
    given = list(dict.fromkeys(json.loads(line)["text"] for line in lines))
    rng = random.Random(4)

    def mixtures() -> Iterator[str]:
        for _ in range(1000):
            yield "".join(text[(at := rng.randint(0, 9)) : at + rng.randint(1, 15)] for text in rng.choices(given, k=6))

    return [*given, *mixtures()]


def made(file: GgufFile) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(file)))


@pytest.mark.parametrize(
    "name, pre, bos", [("qwen3", "qwen2", None), ("llama3_1", "llama-bpe", 128000), ("llama2", None, 1)]
)
def test_ids_are_those_of_the_folder(models: Path, shared: Path, name: str, pre: str | None, bos: int | None) -> None:
    theirs = tokenizers.Tokenizer.from_file(str(models / name / "tokenizer.json"))
    ours = made(header_of(models / name, pre, bos))
    for text in texts(shared):
        for special in (True, False):
            assert ours.encode(text, add_special_tokens=special).ids == theirs.encode(
                text, add_special_tokens=special
            ).ids, text
    ids = random.Random(5).choices(range(theirs.get_vocab_size()), k=3000)
    for skip in (True, False):
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
    assert ours.get_vocab() == theirs.get_vocab()


def test_smollm2_cuts_digits_apart_as_its_file_says(peers: Path, shared: Path) -> None:
    """The folder was converted from the same file by transformers, which does not read `tokenizer.ggml.pre`."""
    ours = made(read_gguf(peers / "smollm2.gguf"))
    theirs = tokenizers.Tokenizer.from_file(str(peers / "models" / "smollm2" / "tokenizer.json"))
    assert ours.get_vocab() == theirs.get_vocab()
    given = texts(shared)
    plain = [text for text in given if not any(character.isnumeric() for character in text)]
    assert len(plain) > 300
    for text in plain:
        assert ours.encode(text).ids == theirs.encode(text).ids, text
    # The published tokenizer of the model has this step; with it there is no other difference.
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    assert theirs.encode("a  1").tokens == ["a", "Ġ", "Ġ", "1"]
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, theirs.pre_tokenizer])
    assert theirs.encode("a  1").tokens == ["a", "ĠĠ", "1"]
    for text in given:
        assert ours.encode(text).ids == theirs.encode(text).ids, text


def test_a_file_makes_the_prompts_of_the_folder(peers: Path) -> None:
    by_file = load_prompter(PromptSettings(str(peers / "smollm2.gguf"), served_model_name=("m",)))
    by_folder = load_prompter(PromptSettings(str(peers / "models" / "smollm2"), served_model_name=("m",)))
    differ = {"created", "root"}
    facts = [
        {name: getattr(one.info, name) for name in one.info.__struct_fields__ if name not in differ}
        for one in (by_file, by_folder)
    ]
    assert facts[0] == facts[1]
    assert facts[0]["max_model_len"] == 8192
    assert by_file.tokenizer.special_tokens == by_folder.tokenizer.special_tokens
    assert by_file.chat_template == by_folder.chat_template
    assert list(by_file.tokenizer.pieces()) == list(by_folder.tokenizer.pieces())


def test_fastokens_reads_it_too(peers: Path) -> None:
    tokenizer = load_tokenizer(read_model_files(str(peers / "smollm2.gguf")))
    assert tokenizer._fast is not None
    assert tokenizer.encode("a  1 b") == made(read_gguf(peers / "smollm2.gguf")).encode("a  1 b").ids


def test_another_tokenizer_may_be_named(peers: Path, models: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", byte_level_values(**{"tokenizer.ggml.pre": "unheard-of"}))
    files = read_model_files(str(file), tokenizer=str(models / "qwen3"))
    assert files.tokenizer == models / "qwen3" / "tokenizer.json"
    assert files.config["max_position_embeddings"] == 64
    files = read_model_files(str(models / "qwen3"), tokenizer=str(peers / "smollm2.gguf"))
    assert files.tokenizer_config["eos_token"] == "<|im_end|>"


def test_facts_of_the_model(tmp_path: Path) -> None:
    values = byte_level_values(
        **{
            "qwen3moe.context_length": 99, "qwen3moe.expert_count": 8, "tokenizer.ggml.eot_token_id": 3,
            "tokenizer.ggml.eom_token_id": 257, "tokenizer.ggml.bos_token_id": 1, "general.sampling.temp": 0.5,
            "general.sampling.top_k": 20, "tokenizer.chat_template": "T", "tokenizer.chat_template.tool_use": "U",
        }
    )  # fmt: skip
    file = read_gguf(write_gguf(tmp_path / "m.gguf", values, "qwen3moe"))
    assert gguf_model.config(file) == {
        "model_type": "qwen3_moe", "vocab_size": 258, "max_position_embeddings": 99, "num_experts": 8,
        "bos_token_id": 1, "eos_token_id": 257,
    }  # fmt: skip
    assert gguf_model.generation_config(file) == {"eos_token_id": [257, 3], "temperature": 0.5, "top_k": 20}
    assert gguf_model.templates(file) == {"default": "T", "tool_use": "U"}
    assert gguf_model.tokenizer_config(file)["eos_token"] == "<|end|>"


@pytest.mark.parametrize(
    "values, says",
    [
        ({"tokenizer.ggml.model": "bert"}, "its tokenizer is of the kind 'bert'; gpt2 and llama are served"),
        ({"tokenizer.ggml.model": None}, "of the kind None"),
        ({"tokenizer.ggml.pre": "unheard-of"}, r"cuts words in the way 'unheard-of' \(tokenizer.ggml.pre\); .*qwen2"),
        ({"tokenizer.ggml.pre": None}, "cuts words in the way None"),
        ({"tokenizer.ggml.merges": None}, "it has no merges"),
        ({"tokenizer.ggml.token_type": [1]}, "it has 258 tokens and 1 token types"),
        ({"tokenizer.ggml.model": "llama"}, "it has no score for each token"),
        ({"tokenizer.ggml.bos_token_id": 999, "tokenizer.ggml.add_bos_token": True}, "bos token 999 is outside"),
        ({"llama.context_length": None}, "holds no language model: llama.context_length is not there"),
        ({"split.no": 1, "split.count": 3}, "is part 2 of 3 of a model: name the first one"),
    ],
)
def test_what_is_not_served_is_named(tmp_path: Path, values: dict[str, Any], says: str) -> None:
    file = write_gguf(tmp_path / "m.gguf", byte_level_values(**values))
    with pytest.raises(StartError, match=says) as caught:
        read_model_files(str(file))
    assert str(file) in str(caught.value)


def test_every_way_to_cut_words_can_be_loaded() -> None:
    for pre in WORDS:
        file = GgufFile(Path("m"), byte_level_values(**{"tokenizer.ggml.pre": pre, "llama.context_length": None}), {})
        tokenizer = made(file)
        text = "ab Ab's 123 été  \n x"
        assert tokenizer.decode(tokenizer.encode(text).ids) == text, pre


def test_ends_are_added_where_the_file_says(tmp_path: Path) -> None:
    values = {"tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.add_bos_token": True}
    file = GgufFile(Path("m"), byte_level_values(**values, **{"tokenizer.ggml.add_eos_token": True}), {})
    assert made(file).encode("a").ids[::2] == [256, 257]
    assert len(made(file).encode("a", add_special_tokens=False).ids) == 1
    assert len(made(GgufFile(Path("m"), byte_level_values(), {})).encode("a").ids) == 1


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"x")
    with pytest.raises(StartError, match="is a file and no GGUF"):
        read_model_files(str(path))
