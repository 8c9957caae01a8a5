"""The header of a GGUF file, as the `gguf` package reads it, and of files that are none."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from fastfront.errors import StartError
from fastfront.gguf_file import is_gguf, read_gguf
from tests.ggufs import byte_level_values, write_gguf


def test_values_and_tensors_are_those_that_were_written(tmp_path: Path) -> None:
    values = byte_level_values(
        **{"a.flag": True, "a.text": "ü", "a.float": 0.5, "a.bools": [True, False], "a.lists": [[1, 2], [3]]}
    )
    file = read_gguf(write_gguf(tmp_path / "m.gguf", values))
    assert file.values == {"general.architecture": "llama", **values}
    assert (file.architecture, file.of_model("context_length"), file.of_model("none", 7)) == ("llama", 64, 7)
    tensor = file.tensors["token_embd.weight"]
    assert (tensor.shape, tensor.kind) == ((258, 32), gguf.GGMLQuantizationType.F32)
    data = file.path.read_bytes()[tensor.offset :][: 258 * 32 * 4]
    assert np.array_equal(np.frombuffer(data, np.float32), np.arange(258 * 32, dtype=np.float32))


def test_the_reference_reads_the_same_of_a_real_file(peers: Path) -> None:
    path = peers / "smollm2.gguf"
    file, theirs = read_gguf(path), gguf.GGUFReader(path)
    values = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert file.values == values
    assert [(one.name, one.offset, one.kind, one.shape) for one in file.tensors.values()] == [
        (one.name, one.data_offset, one.tensor_type, tuple(reversed(one.shape.tolist()))) for one in theirs.tensors
    ]


def test_a_file_that_is_cut_off_is_told_of(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "m.gguf", byte_level_values()).read_bytes()
    begin = read_gguf(tmp_path / "m.gguf").tensors["token_embd.weight"].offset
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, 200, 7), *range(200, begin, 97), begin]:
        cut.write_bytes(data[:length])
        with pytest.raises(StartError, match=r"cannot read the GGUF file .*cut\.gguf: "):
            read_gguf(cut)


HEAD = b"GGUF" + struct.pack("<I", 3)
TEXT = struct.pack("<Q", 1) + b"k"


@pytest.mark.parametrize(
    "data, says",
    [
        (b"PK\x03\x04" + bytes(40), "it does not begin with GGUF"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(40), "version 1 is not served, 2 and 3 are"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(40), "version 50331648 is not served"),
        (HEAD + struct.pack("<QQ", 1 << 60, 0), "not downloaded whole"),
        (HEAD + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 1 << 40) + b"k", "not downloaded whole"),
        (HEAD + struct.pack("<QQ", 0, 1) + TEXT + struct.pack("<I", 99), "damaged"),
        (HEAD + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 1) + b"\xff" + struct.pack("<I", 0) + b"x", "damaged"),
        (HEAD + struct.pack("<QQ", 0, 1) + TEXT + b"".join(struct.pack("<IQ", 9, 1) for _ in range(8)), "lists"),
        (HEAD + struct.pack("<QQ", 1, 0) + TEXT + struct.pack("<I", 9) + bytes(99), "the tensor k has 9 dimensions"),
        (HEAD + struct.pack("<QQ", 1, 0) + TEXT + struct.pack("<I", 0) + bytes(99), "the tensor k has 0 dimensions"),
        (HEAD + struct.pack("<QQ", 1, 0) + TEXT + struct.pack("<IQQ", 2, 4, 0) + bytes(99), r"the shape \[0, 4\]"),
        (HEAD + struct.pack("<QQ", 1, 0) + TEXT + struct.pack("<IQQ", 2, 1 << 32, 1 << 32) + bytes(99), "the shape"),
    ],
)
def test_what_is_none(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(StartError, match=says):
        read_gguf(path)


@pytest.mark.parametrize(
    "key, value",
    [
        ("tokenizer.ggml.tokens", "x"),
        ("tokenizer.ggml.tokens", [1, 2]),
        ("tokenizer.ggml.merges", [1]),
        ("tokenizer.ggml.token_type", "x"),
        ("tokenizer.ggml.model", [1]),
        ("tokenizer.ggml.eos_token_id", "x"),
        ("split.count", "x"),
        ("split.no", 0.5),
    ],
)
def test_values_of_a_wrong_type(tmp_path: Path, key: str, value: Any) -> None:
    path = write_gguf(tmp_path / "m.gguf", {**byte_level_values(), key: value})
    with pytest.raises(StartError, match=rf"cannot read the GGUF file .*: its {key} is not of the type"):
        read_gguf(path)


def test_a_header_full_of_noise_raises_nothing_else(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "m.gguf", byte_level_values()).read_bytes()[:6000]
    rng = np.random.default_rng(3)
    path = tmp_path / "noise.gguf"
    refused = 0
    for _ in range(300):
        noisy = np.frombuffer(data, np.uint8).copy()
        at = rng.integers(8, len(noisy), size=4)
        noisy[at] = rng.integers(0, 256, size=4)
        path.write_bytes(noisy.tobytes())
        try:
            read = read_gguf(path)
        except StartError:
            refused += 1
        else:
            assert read.path == path
    assert refused > 100


def test_recognized_by_its_first_bytes(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "without-suffix", byte_level_values())
    found: list[Any] = [is_gguf(path) for path in (file, tmp_path, tmp_path / "none", Path(__file__))]
    assert found == [True, False, False, False]
