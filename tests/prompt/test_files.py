from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.errors import StartError
from fastfront.prompt.files import read_model_files
from fastfront.prompt.hub import Wish, find_folder


def folder(at: Path, **files: Any) -> Path:
    """A model folder; a dict is written as JSON, `a__b` is `a.b`."""
    at.mkdir(parents=True, exist_ok=True)
    given = {"config__json": {"vocab_size": 5}, "tokenizer__json": {}, **files}
    for name, content in given.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (at / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return at


def test_reads_a_local_folder(tmp_path: Path) -> None:
    at = folder(tmp_path, generation_config__json={"top_k": 3}, tokenizer_config__json={"chat_template": "T"})
    files = read_model_files(str(at), hf_overrides={"vocab_size": 7, "a": {"b": 1}})
    assert files.config == {"vocab_size": 7, "a": {"b": 1}}
    assert files.generation_config == {"top_k": 3}
    assert files.templates == {"default": "T"}
    assert read_model_files(str(folder(tmp_path / "b"))).generation_config is None


def test_overrides_merge_into_nested_configs(tmp_path: Path) -> None:
    at = folder(tmp_path, config__json={"text_config": {"a": 1, "b": 2}})
    assert read_model_files(str(at), hf_overrides={"text_config": {"b": 3}}).config == {"text_config": {"a": 1, "b": 3}}


def test_template_files_win_over_the_config(tmp_path: Path) -> None:
    at = folder(tmp_path, tokenizer_config__json={"chat_template": "config"}, chat_template__jinja="file")
    assert read_model_files(str(at)).templates == {"default": "file"}
    (at / "chat_templates").mkdir()
    (at / "chat_templates" / "tool_use.jinja").write_text("tools", encoding="utf-8")
    assert read_model_files(str(at)).templates == {"default": "file", "tool_use": "tools"}


def test_list_of_named_templates(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]
    at = folder(tmp_path, tokenizer_config__json={"chat_template": named})
    assert read_model_files(str(at)).templates == {"default": "D", "rag": "R"}


def test_template_of_a_processor(tmp_path: Path) -> None:
    at = folder(tmp_path, tokenizer_config__json={"chat_template": "T"}, chat_template__json={"chat_template": "P"})
    assert read_model_files(str(at)).templates == {"default": "P", "tool_use": "T"}


def test_other_tokenizer_and_generation_config(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", tokenizer_config__json={"chat_template": "M"})
    other = tmp_path / "t"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}", encoding="utf-8")
    (other / "generation_config.json").write_text('{"top_p": 0.5}', encoding="utf-8")
    files = read_model_files(str(model), tokenizer=str(other), generation_config=str(other))
    assert files.tokenizer == other / "tokenizer.json"
    assert files.templates == {}
    assert files.generation_config == {"top_p": 0.5}
    with pytest.raises(StartError, match="--generation-config"):
        read_model_files(str(model), generation_config=str(model))


@pytest.mark.parametrize(
    "files, words",
    [
        ({"config__json": "{"}, r"cannot read .*config\.json"),
        ({"config__json": "[]"}, "not a JSON object"),
        ({"tokenizer_config__json": {"chat_template": [1]}}, "not a list of named templates"),
    ],
)
def test_broken_files(tmp_path: Path, files: dict[str, Any], words: str) -> None:
    with pytest.raises(StartError, match=words):
        read_model_files(str(folder(tmp_path, **files)))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"no config\.json"):
        find_folder(str(tmp_path), Wish())
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "tokenizer.model").write_text("", encoding="utf-8")
    with pytest.raises(StartError, match=r"no tokenizer\.json in .*tokenizer\.model is there"):
        read_model_files(str(tmp_path))
    with pytest.raises(StartError, match="is a file"):
        find_folder(str(tmp_path / "config.json"), Wish())
