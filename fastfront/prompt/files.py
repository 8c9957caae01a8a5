"""Finds a model's small files (configs, tokenizer, chat templates) in a folder or on the hub, and reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fastfront.errors import StartError
from fastfront.prompt.modes import choose_mode, is_mistral, mistral_file

#: All that a frontend needs of a model; weights are never fetched.
WANTED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "chat_templates/*.jinja",
    "params.json",
    "tekken.json",
    "tokenizer.model.v*",
)
#: The context length of Mistral's models whose params.json does not say it.
MISTRAL_LENGTH = 128_000


class ModelFiles(NamedTuple):
    """What the files of a model say. A dict is empty, `generation_config` None, where the file is not there."""

    name: str
    folder: Path
    tokenizer_path: Path
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
    """Reads all files of `model` (a folder or a hub name); raises StartError that names what was tried."""
    folder = find_folder(model, revision=revision, download_dir=download_dir, token=token)
    text_folder = folder
    if tokenizer is not None and tokenizer != model:
        text_folder = find_folder(
            tokenizer, revision=tokenizer_revision, download_dir=download_dir, token=token, need_config=False
        )
    elif tokenizer_revision is not None and tokenizer_revision != revision and not Path(model).is_dir():
        text_folder = find_folder(model, revision=tokenizer_revision, download_dir=download_dir, token=token)
    config = _merged(_config(folder), hf_overrides or {})
    mode = choose_mode(tokenizer_mode, config, text_folder)
    tokenizer_path = _tokenizer_path(text_folder, mode)
    generation_folder = folder
    if generation_config not in ("auto", "vllm"):
        generation_folder = find_folder(generation_config, download_dir=download_dir, token=token, need_config=False)
        if not (generation_folder / "generation_config.json").is_file():
            raise StartError(f"no generation_config.json in {generation_folder} (--generation-config)")
    tokenizer_config = _read_object(text_folder / "tokenizer_config.json") or {}
    return ModelFiles(
        name=model,
        folder=folder,
        tokenizer_path=tokenizer_path,
        config=config,
        generation_config=_read_object(generation_folder / "generation_config.json"),
        tokenizer_config=tokenizer_config,
        special_tokens_map=_read_object(text_folder / "special_tokens_map.json") or {},
        templates=_templates(text_folder, tokenizer_config),
        mode=mode,
    )


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


def _config(folder: Path) -> dict[str, Any]:
    """config.json, else what of Mistral's params.json a frontend must know."""
    config = _read_object(folder / "config.json")
    params = _read_object(folder / "params.json") if config is None else None
    if params is None:
        return config or {}
    length = params.get("max_position_embeddings") or params.get("max_seq_len") or MISTRAL_LENGTH
    return {"model_type": "mistral", "vocab_size": params.get("vocab_size"), "max_position_embeddings": length}


def find_folder(
    name: str,
    *,
    revision: str | None = None,
    download_dir: str | None = None,
    token: str | bool | None = None,
    need_config: bool = True,
) -> Path:
    """The local folder of a model: `name` itself when it is one, else its snapshot from the hub, cache first."""
    local = Path(name).expanduser()
    if local.is_dir():
        if need_config and not _has_config(local):
            raise StartError(f"the folder {local} holds no config.json")
        return local
    if local.exists():
        raise StartError(f"{name} is a file; a model is a folder with config.json and tokenizer.json, or a hub name")
    return _from_hub(name, revision, download_dir, token, need_config)


def _from_hub(
    name: str, revision: str | None, download_dir: str | None, token: str | bool | None, need_config: bool
) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    problems: list[str] = []
    partial: Path | None = None
    for local_only in (True, False):
        try:
            folder = Path(
                huggingface_hub.snapshot_download(
                    name,
                    revision=revision,
                    cache_dir=download_dir,
                    token=token,
                    allow_patterns=list(WANTED),
                    local_files_only=local_only,
                )
            )
        except HFValidationError as error:
            raise StartError(f"{name!r} is neither a folder here nor a hub name: {error}") from error
        except Exception as error:  # the hub's client raises errors of several HTTP libraries
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            problems.append(f"{'cache' if local_only else 'hub'}: {reason}")
            continue
        # A cache filled by another program may lack the template: only the hub can tell whether there is one.
        if local_only and not _complete(folder, need_config) and not huggingface_hub.constants.HF_HUB_OFFLINE:
            problems.append(f"cache: {folder} is incomplete")
            partial = folder
            continue
        return folder
    if partial is not None and ((partial / "tokenizer.json").is_file() or mistral_file(partial) is not None):
        return partial
    at = f" at revision {revision}" if revision else ""
    raise StartError(f"cannot find the model {name!r}{at}: no such folder; " + "; ".join(problems))


def _has_config(folder: Path) -> bool:
    return (folder / "config.json").is_file() or (folder / "params.json").is_file()


def _complete(folder: Path, need_config: bool) -> bool:
    if need_config and not _has_config(folder):
        return False
    if is_mistral(folder):
        return True
    if not (folder / "tokenizer.json").is_file():
        return False
    return bool(_templates(folder, _read_object(folder / "tokenizer_config.json") or {}))


def _read_object(path: Path) -> dict[str, Any] | None:
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


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        below = out.get(key)
        out[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return out


def _templates(folder: Path, tokenizer_config: dict[str, Any]) -> dict[str, str]:
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
    processor = (_read_object(folder / "chat_template.json") or {}).get("chat_template")
    if isinstance(processor, str):
        # A multimodal processor's own template goes before the tokenizer's, except with tools.
        if "default" in found:
            found.setdefault("tool_use", found["default"])
        found["default"] = processor
    return found
