"""What lies in a model's folder: JSON files, chat templates, and whether all is there that serving takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastfront.errors import StartError
from fastfront.prompt.modes import is_mistral

SAFETENSORS, INDEX = "*.safetensors", "model.safetensors.index.json"


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, None when there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StartError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise StartError(f"{path} holds {type(value).__name__}, not a JSON object")
    return value


def has_config(folder: Path) -> bool:
    """Whether there is a description of the model, Hugging Face's or Mistral's."""
    return (folder / "config.json").is_file() or (folder / "params.json").is_file()


def has_weights(folder: Path) -> bool:
    """Whether there are safetensors, and all of them where an index names several."""
    index = read_object(folder / INDEX)
    if index is None:
        return any(folder.glob(SAFETENSORS))
    names = index.get("weight_map")
    return isinstance(names, dict) and all((folder / str(name)).is_file() for name in set(names.values()))


def is_complete(folder: Path, need_config: bool, need_weights: bool) -> bool:
    """Whether a cached folder can be served without asking for more."""
    if (need_config and not has_config(folder)) or (need_weights and not has_weights(folder)):
        return False
    if is_mistral(folder):
        return True
    if not (folder / "tokenizer.json").is_file():
        return False
    return bool(read_templates(folder, read_object(folder / "tokenizer_config.json") or {}))


def read_templates(folder: Path, tokenizer_config: dict[str, Any]) -> dict[str, str]:
    """Templates by name: files win over tokenizer_config.json, as in transformers."""
    found: dict[str, str] = {}
    main = folder / "chat_template.jinja"
    try:
        if main.is_file():
            found["default"] = main.read_text(encoding="utf-8")
        for path in sorted((folder / "chat_templates").glob("*.jinja")):
            found[path.stem] = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise StartError(f"cannot read the chat templates of {folder}: {error}") from error
    if found:
        return found
    inside = tokenizer_config.get("chat_template")
    if isinstance(inside, str):
        found["default"] = inside
    elif isinstance(inside, list):
        for entry in inside:
            if not (isinstance(entry, dict) and isinstance(entry.get("template"), str)):
                raise StartError(f"chat_template in {folder}/tokenizer_config.json is not a list of named templates")
            found[str(entry.get("name", "default"))] = entry["template"]
    elif isinstance(inside, dict):
        found.update({str(name): text for name, text in inside.items() if isinstance(text, str)})
    processor = (read_object(folder / "chat_template.json") or {}).get("chat_template")
    if isinstance(processor, str):
        # A multimodal processor's own template goes before the tokenizer's, except with tools.
        if "default" in found:
            found.setdefault("tool_use", found["default"])
        found["default"] = processor
    return found
