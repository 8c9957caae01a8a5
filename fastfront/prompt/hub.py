"""Finds a model's folder: one on this machine, or its snapshot from the hub, cache first."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fastfront.errors import StartError
from fastfront.progress import watching
from fastfront.prompt.folder import INDEX, SAFETENSORS, has_config, has_weights, is_complete
from fastfront.prompt.modes import mistral_file

#: All that a frontend needs of a model.
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
#: What the built-in engine needs besides, and weights in another form.
WEIGHTS, NOT_WEIGHTS = (SAFETENSORS, INDEX), ("consolidated*", "original/*")
#: How long the hub may take to answer the first question (s). Its client alone would wait without end.
HUB_TIMEOUT = 10.0


class NotThereError(Exception):
    """A place does not have the model; the text is why."""


class Wish(NamedTuple):
    """What is looked for, beside the name. `weights`: also what only an engine reads."""

    revision: str | None = None
    download_dir: str | None = None
    token: str | bool | None = None
    need_config: bool = True
    weights: bool = False

    def options(self) -> dict[str, Any]:
        """The arguments of snapshot_download."""
        return {
            "revision": self.revision,
            "cache_dir": self.download_dir,
            "token": self.token,
            "allow_patterns": [*WANTED, *(WEIGHTS if self.weights else ())],
            "ignore_patterns": list(NOT_WEIGHTS) if self.weights else None,
        }


def find_folder(name: str, wish: Wish) -> Path:
    """The local folder of a model: `name` itself when it is one, else its snapshot from the hub, cache first.

    StartError tells all that was tried.
    """
    local = Path(name).expanduser()
    if local.is_dir():
        if wish.need_config and not has_config(local):
            raise StartError(f"the folder {local} holds no config.json")
        return local
    if local.exists():
        raise StartError(
            f"{name} is a file and no GGUF; a model is a folder with config.json and tokenizer.json, a GGUF file, or "
            "a hub name"
        )
    partial: Path | None = None
    try:
        folder = from_cache(name, wish)
        # A cache filled by another program may lack the template: only the hub can tell whether there is one.
        if is_offline() or is_complete(folder, wish.need_config, wish.weights):
            return folder
        partial = folder
        in_cache = f"{folder} is incomplete"
    except NotThereError as error:
        in_cache = str(error)
    try:
        return from_hub(name, wish)
    except NotThereError as error:
        on_hub = str(error)
    if partial is not None and _will_do(partial, wish):
        return partial
    at = f" at revision {wish.revision}" if wish.revision else ""
    raise StartError(f"cannot find the model {name!r}{at}: no such folder or file; cache: {in_cache}; hub: {on_hub}")


def from_cache(name: str, wish: Wish) -> Path:
    """What the hub's client has of a model on this machine, perhaps not all; NotThereError."""
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(huggingface_hub.snapshot_download(name, local_files_only=True, **wish.options()))
    except HFValidationError as error:
        raise StartError(f"no model {name!r}: neither a folder nor a GGUF file here, nor a hub name") from error
    except LocalEntryNotFoundError as error:
        raise NotThereError("not there, or not whole") from error
    except Exception as error:  # the hub's client raises errors of several HTTP libraries
        raise NotThereError(_reason(error)) from error


def from_hub(name: str, wish: Wish) -> Path:
    """Fetches a model from the hub into its client's cache; NotThereError."""
    import huggingface_hub
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if is_offline():
        raise NotThereError("not asked, HF_HUB_OFFLINE is set")
    cache = Path(wish.download_dir or HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    disable_progress_bars()
    try:
        total = _size(huggingface_hub, name, wish)
        with watching(f"downloading {name}", total, cache / "blobs"):
            return Path(huggingface_hub.snapshot_download(name, **wish.options()))
    except Exception as error:  # as above
        raise NotThereError(_reason(error)) from error


def _will_do(folder: Path, wish: Wish) -> bool:
    """Whether a folder that may lack a template can be served all the same."""
    tokenizer = (folder / "tokenizer.json").is_file() or mistral_file(folder) is not None
    return tokenizer and (not wish.weights or has_weights(folder))


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE is set, as the hub's client reads it."""
    import huggingface_hub

    return bool(huggingface_hub.constants.HF_HUB_OFFLINE)


def _size(hub: Any, name: str, wish: Wish) -> int:
    """Bytes of the files that are wanted. The first question to the hub, and the only one that we can limit in time."""
    told = hub.HfApi(token=wish.token).model_info(
        name, revision=wish.revision, files_metadata=True, timeout=HUB_TIMEOUT
    )
    sizes = {file.rfilename: file.size or 0 for file in told.siblings or ()}
    options = wish.options()
    wanted = hub.utils.filter_repo_objects(
        sizes, allow_patterns=options["allow_patterns"], ignore_patterns=options["ignore_patterns"]
    )
    return sum(sizes[file] for file in wanted)


def _reason(error: Exception) -> str:
    """The first line of what the hub's client says, which goes on with advice."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
