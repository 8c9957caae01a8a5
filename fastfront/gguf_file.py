"""What a GGUF file says before its weights: the values of its header, and where each tensor lies.

Read here and not by the `gguf` package, which makes an array of each of a vocabulary's strings and so takes seconds.
Format: magic, version, counts; key, type and value of each value; name, shape, type and offset of each tensor.
"""

from __future__ import annotations

import math
import mmap
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fastfront.errors import StartError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
#: Type numbers of the format -> struct's letter.
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS, _MAX_DEPTH = 4, 4
#: What those values must be that are read as they are, if they are there; of a list, its first item.
_TYPES: dict[str, tuple[type, type | tuple[type, ...] | None]] = {
    "general.architecture": (str, None), "split.count": (int, None), "split.no": (int, None),
    "tokenizer.ggml.model": (str, None), "tokenizer.ggml.eos_token_id": (int, None),
    "tokenizer.ggml.tokens": (list, str), "tokenizer.ggml.merges": (list, str),
    "tokenizer.ggml.token_type": (list, int), "tokenizer.ggml.scores": (list, (int, float)),
}  # fmt: skip


class GgufTensor(NamedTuple):
    """A tensor's place: `shape` rows first (as torch has it), `kind` a GGML type's number, `offset` in the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile(NamedTuple):
    """A file's header: `values` by key, `tensors` by name."""

    path: Path
    values: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        """`general.architecture`, which also begins the keys of the model's own values."""
        return str(self.values.get("general.architecture", ""))

    def of_model(self, key: str, default: Any = None) -> Any:
        """A value of the architecture, e.g. `context_length`."""
        return self.values.get(f"{self.architecture}.{key}", default)


def is_gguf(path: Path) -> bool:
    """Whether a file is one by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_gguf(path: Path) -> GgufFile:
    """Reads the header; StartError for what is no whole GGUF file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Header(data).read(path)
    except (OSError, ValueError, struct.error, KeyError, OverflowError, MemoryError) as error:
        reason = str(error) if type(error) in (OSError, ValueError) else f"its header is cut off or damaged ({error})"
        raise StartError(f"cannot read the GGUF file {path}: {reason}") from error


class _Header:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def read(self, path: Path) -> GgufFile:
        if self._data[:4] != MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._number("I")
        if version not in VERSIONS:
            raise ValueError(f"version {version} is not served, {' and '.join(map(str, VERSIONS))} are")
        tensor_count, value_count = self._count(), self._count()
        values: dict[str, Any] = {}
        for _ in range(value_count):
            key = self._string()
            values[key] = self._value(self._number("I"))
        _check_types(values)
        tensors = [self._tensor() for _ in range(tensor_count)]
        align = values.get("general.alignment", 32)
        if not isinstance(align, int) or align < 1:
            raise ValueError(f"general.alignment is {align!r}")
        begin = -(-self._at // align) * align
        placed = {one.name: one._replace(offset=begin + one.offset) for one in tensors}
        if any(one.offset >= len(self._data) for one in placed.values()):
            raise ValueError("it ends before its tensors do: not downloaded whole")
        return GgufFile(path, values, placed)

    def _number(self, letter: str) -> Any:
        (value,) = struct.unpack_from("<" + letter, self._data, self._at)
        self._at += struct.calcsize("<" + letter)
        return value

    def _count(self) -> int:
        """A length, which cannot be more than the bytes that are left."""
        count = int(self._number("Q"))
        if count > len(self._data) - self._at:
            raise ValueError("it ends within its header: not downloaded whole")
        return count

    def _bytes(self) -> bytes:
        count = self._count()
        self._at += count
        return self._data[self._at - count : self._at]

    def _string(self) -> str:
        return self._bytes().decode("utf-8")

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(_SCALARS[kind])
        if depth == _MAX_DEPTH:
            raise ValueError("its header holds lists in lists in lists")
        inner, count = self._number("I"), self._count()
        if inner in _SCALARS:
            return self._numbers(_SCALARS[inner], count)
        item: Callable[[], Any] = self._string if inner == _STRING else lambda: self._value(inner, depth + 1)
        return [item() for _ in range(count)]

    def _numbers(self, letter: str, count: int) -> list[Any]:
        values = struct.unpack_from(f"<{count}{letter}", self._data, self._at)
        self._at += struct.calcsize(f"<{count}{letter}")
        return list(values)

    def _tensor(self) -> GgufTensor:
        name, dimensions = self._string(), self._number("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise ValueError(f"the tensor {name} has {dimensions} dimensions")
        shape = tuple(int(self._number("Q")) for _ in range(dimensions))
        if not 1 <= math.prod(shape) <= sys.maxsize:
            raise ValueError(f"the tensor {name} has the shape {list(shape[::-1])}")
        return GgufTensor(name, shape[::-1], int(self._number("I")), int(self._number("Q")))


def _check_types(values: dict[str, Any]) -> None:
    for key, (kind, item) in _TYPES.items():
        value = values.get(key)
        wrong = key in values and not isinstance(value, kind)
        if wrong or (item is not None and value and not isinstance(value[0], item)):
            raise ValueError(f"its {key} is not of the type {kind.__name__}, or its items are of a wrong one")
