"""Reads a model's small files (configs, tokenizer, chat templates), or what a GGUF file says in place of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fastfront.errors import StartError
from fastfront.gguf_file import GgufFile, is_gguf, read_gguf
from fastfront.prompt import gguf_model
from fastfront.prompt.folder import read_object, read_templates
from fastfront.prompt.gguf_tokenizer import tokenizer_json
from fastfront.prompt.hub import Wish, find_folder
from fastfront.prompt.modes import choose_mode, mistral_file

#: The context length of Mistral's models whose params.json does not say it.
MISTRAL_LENGTH = 128_000

#: A folder, or the header of a GGUF file.
Source = Path | GgufFile


class ModelFiles(NamedTuple):
    """What the files of a model say. A dict is empty, `generation_config` None, where the file is not there."""

    name: str
    #: The tokenizer's file, or the text of the tokenizer.json that there would be, had a GGUF one.
    tokenizer: Path | str
    config: dict[str, Any]
    generation_config: dict[str, Any] | None
    tokenizer_config: dict[str, Any]
    special_tokens_map: dict[str, Any]
    #: Chat templates by name; `default` is the one used without asking, `tool_use` the one when tools are given.
    templates: dict[str, str]
    #: The tokenizer mode in force, never auto.
    mode: str = "hf"


def read_model_files(
    model: str,
    *,
    tokenizer: str | None = None,
    tokenizer_mode: str = "auto",
    revision: str | None = None,
    tokenizer_revision: str | None = None,
    generation_config: str = "auto",
    hf_overrides: dict[str, Any] | None = None,
    download_dir: str | None = None,
    token: str | bool | None = None,
) -> ModelFiles:
    """Reads all files of `model` (a folder, a GGUF file or a hub name); raises StartError that names what was tried."""

    def find(name: str, at: str | None, need_config: bool = False) -> Source:
        local = Path(name).expanduser()
        if local.is_file() and is_gguf(local):
            return read_gguf(local)
        return find_folder(name, Wish(at, download_dir, token, need_config))

    source = find(model, revision, True)
    texts = source
    if tokenizer is not None and tokenizer != model:
        texts = find(tokenizer, tokenizer_revision)
    elif tokenizer_revision is not None and tokenizer_revision != revision and not Path(model).exists():
        texts = find(model, tokenizer_revision, True)
    config = _merged(_config(source), hf_overrides or {})
    if generation_config in ("auto", "vllm"):
        generation = _generation_config(source)
    else:
        generation = _generation_config(find(generation_config, None))
        if generation is None:
            raise StartError(f"no generation_config.json in {generation_config} (--generation-config)")
    mode = choose_mode(tokenizer_mode, config, texts if isinstance(texts, Path) else texts.path)
    return ModelFiles(model, config=config, generation_config=generation, mode=mode, **_texts(texts, mode))


def _texts(source: Source, mode: str) -> dict[str, Any]:
    """The fields of ModelFiles that are about texts."""
    if isinstance(source, Path):
        tokenizer_config = read_object(source / "tokenizer_config.json") or {}
        return {
            "tokenizer": _tokenizer_path(source, mode),
            "tokenizer_config": tokenizer_config,
            "special_tokens_map": read_object(source / "special_tokens_map.json") or {},
            "templates": read_templates(source, tokenizer_config),
        }
    if mode == "mistral":
        raise StartError(f"no tekken.json and no tokenizer.model.v* in {source.path} (--tokenizer-mode mistral)")
    return {
        "tokenizer": json.dumps(tokenizer_json(source)),
        "tokenizer_config": gguf_model.tokenizer_config(source),
        "special_tokens_map": {},
        "templates": gguf_model.templates(source),
    }


def _tokenizer_path(folder: Path, mode: str) -> Path:
    path = mistral_file(folder) if mode == "mistral" else folder / "tokenizer.json"
    if path is not None and path.is_file():
        return path
    if path is None:
        raise StartError(f"no tekken.json and no tokenizer.model.v* in {folder} (--tokenizer-mode mistral)")
    if mistral_file(folder) is not None:
        hint = " (there is a tokenizer for --tokenizer-mode mistral)"
    else:
        others = [name for name in ("tokenizer.model", "tiktoken.model") if (folder / name).exists()]
        hint = f" ({', '.join(others)} is there, a format that fastfront does not read)" if others else ""
    raise StartError(f"no tokenizer.json in {folder}{hint}")


def _config(source: Source) -> dict[str, Any]:
    """config.json, else what of Mistral's params.json, or of a GGUF file, a frontend must know."""
    if not isinstance(source, Path):
        return gguf_model.config(source)
    config = read_object(source / "config.json")
    params = read_object(source / "params.json") if config is None else None
    if params is None:
        return config or {}
    length = params.get("max_position_embeddings") or params.get("max_seq_len") or MISTRAL_LENGTH
    return {"model_type": "mistral", "vocab_size": params.get("vocab_size"), "max_position_embeddings": length}


def _generation_config(source: Source) -> dict[str, Any] | None:
    if not isinstance(source, Path):
        return gguf_model.generation_config(source)
    return read_object(source / "generation_config.json")


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        below = out.get(key)
        out[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return out
