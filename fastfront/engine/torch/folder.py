"""A model as Hugging Face keeps it: config.json beside one or more safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fastfront.engine.torch.config_json import read_shape
from fastfront.errors import StartError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Index(msgspec.Struct):
    """Which file has which tensor."""

    weight_map: dict[str, str]


class Folder:
    """A Checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.where = folder
        self.shape = read_shape(folder)
        self._files: dict[str, Any] = {name: self._open(folder / name) for name in self._shards()}
        self._file_of = {tensor: name for name, file in self._files.items() for tensor in file.keys()}  # noqa: SIM118

    def names(self) -> set[str]:
        """The tensors that there are."""
        return set(self._file_of)

    def tensor(self, name: str) -> Tensor:
        """One tensor, mapped from its file; StartError."""
        file = self._file_of[name]
        try:
            tensor: Tensor = self._files[file].get_tensor(name)
        except SafetensorError as error:
            raise StartError(f"cannot read the tensor {name} from {self.where / file}: {error}") from error
        if tensor.dtype not in DTYPES:
            raise StartError(
                f"the tensor {name} in {self.where / file} is stored as {str(tensor.dtype).removeprefix('torch.')}: "
                "only float32, float16 and bfloat16 are supported by the built-in engine"
            )
        return tensor

    def close(self) -> None:
        """Lets go of the files."""
        self._files.clear()

    def _shards(self) -> list[str]:
        if (self.where / SINGLE).is_file():
            return [SINGLE]
        index = self.where / INDEX
        if not index.is_file():
            raise StartError(f"{self.where} holds neither {SINGLE} nor {INDEX}: only safetensors weights are loaded")
        try:
            return sorted(set(msgspec.json.decode(index.read_bytes(), type=Index).weight_map.values()))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StartError(f"cannot read {index}: {error}") from error

    def _open(self, file: Path) -> Any:
        try:
            return safe_open(file, framework="pt", device="cpu")
        except (OSError, SafetensorError) as error:
            reason = "there is no such file" if not file.exists() else error
            raise StartError(f"cannot read the weights in {file}: {reason}") from error
