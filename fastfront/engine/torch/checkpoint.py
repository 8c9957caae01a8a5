"""A model's files: its shape and its tensors, by the names that a Hugging Face folder gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import Tensor

from fastfront.engine.torch.shape import Shape
from fastfront.errors import StartError
from fastfront.gguf_file import is_gguf


class Checkpoint(Protocol):
    """An open model; the files are mapped, so a tensor costs no memory before it is used."""

    where: Path
    shape: Shape

    def names(self) -> set[str]:
        """The tensors that there are."""

    def tensor(self, name: str) -> Tensor:
        """One of them, in float32, float16 or bfloat16 on the CPU; StartError if it cannot be read."""

    def close(self) -> None:
        """Lets go of the files; the tensors stay usable."""


def open_checkpoint(model: Path) -> Checkpoint:
    """Opens a folder with config.json and safetensors, or a GGUF file; StartError."""
    from fastfront.engine.torch.folder import Folder
    from fastfront.engine.torch.gguf_model import GgufModel

    if model.is_dir():
        return Folder(model)
    if not model.exists():
        raise StartError(f"no model at {model}: there is no such folder or file")
    if is_gguf(model):
        return GgufModel(model)
    raise StartError(f"{model} is not a GGUF file; a model is one of those, or a folder with config.json")
