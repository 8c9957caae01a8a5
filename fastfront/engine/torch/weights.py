"""Takes a checkpoint's tensors one by one, each checked and put where and as it is to be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fastfront.engine.torch.checkpoint import Checkpoint
from fastfront.errors import StartError

#: Takes how many of how many tensors are loaded.
Progress = Callable[[int, int], None]
#: Tensors that some checkpoints carry and that are computed here.
COMPUTED = (".rotary_emb.inv_freq",)


class Weights:
    """A checkpoint on its way to `device` in `dtype`."""

    def __init__(
        self, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, progress: Progress | None = None
    ) -> None:
        self.shape = checkpoint.shape
        self.device = device
        self.dtype = dtype
        self._checkpoint = checkpoint
        self._left = {name for name in checkpoint.names() if not name.endswith(COMPUTED)}
        self._count = len(self._left)
        self._progress = progress

    def take(self, name: str, *size: int) -> Tensor:
        """One tensor of that size; StartError."""
        return self.join([name], *size)

    def join(self, names: Sequence[str], *size: int) -> Tensor:
        """Tensors one below the other, each of that size but for its rows, `size[0]` in all; StartError."""
        parts = [self._read(name) for name in names]
        rows = sum(part.shape[0] for part in parts if part.dim())
        if rows != size[0] or any(part.shape[1:] != size[1:] for part in parts):
            found = ", ".join(f"{name} {list(part.shape)}" for name, part in zip(names, parts, strict=True))
            raise StartError(
                f"{self._checkpoint.where}: wrong shape of {found}; the configuration asks for {list(size)}"
            )
        joined = torch.empty(size, dtype=self.dtype, device=self.device)
        at = 0
        for part in parts:
            joined[at : at + len(part)].copy_(part)
            at += len(part)
        return joined

    def drop(self, name: str) -> None:
        """A tensor that is not needed if it is there."""
        self._left.discard(name)

    def finish(self) -> None:
        """StartError if the model has tensors that nobody took: it is not what its configuration says."""
        if self._left:
            some = ", ".join(sorted(self._left)[:3])
            raise StartError(
                f"{self._checkpoint.where} has {len(self._left)} tensors that a model of the family "
                f"{self.shape.family} as configured does not have: {some}"
            )

    def _read(self, name: str) -> Tensor:
        if name not in self._left:
            raise StartError(f"{self._checkpoint.where} has no tensor {name}, which the configuration asks for")
        tensor = self._checkpoint.tensor(name)
        self._left.remove(name)
        if self._progress is not None:
            self._progress(self._count - len(self._left), self._count)
        return tensor
