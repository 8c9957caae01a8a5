"""GGUF files for tests: small ones, written by the `gguf` package, and headers that a tokenizer.json stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from fastfront.gguf_file import GgufFile

#: tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_level_values(**more: Any) -> dict[str, Any]:
    """A vocabulary of single bytes, one merge and an end token."""
    tokens = [*bytes_alphabet(), "ab", "<|end|>"]
    values: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NORMAL] * 257 + [CONTROL],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 257,
        "llama.context_length": 64,
    }
    return {key: value for key, value in {**values, **more}.items() if value is not None}


def bytes_alphabet() -> list[str]:
    """GPT-2's stand-ins of all bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [*map(chr, printable), *(chr(0x100 + n) for n in range(len(others)))]


def write_gguf(path: Path, values: dict[str, Any], architecture: str = "llama") -> Path:
    """A file with these values and one tensor, token_embd.weight."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case _:
                writer.add_array(key, value)
    rows = len(values.get("tokenizer.ggml.tokens", [])) or 1
    writer.add_tensor("token_embd.weight", np.arange(rows * 32, dtype=np.float32).reshape(rows, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def header_of(folder: Path, pre: str | None, bos: int | None = None) -> GgufFile:
    """What llama.cpp's converter would write of a folder's tokenizer.json (pre None: sentencepiece's)."""
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    names = {i: text for text, i in document["model"]["vocab"].items()}
    names |= {token["id"]: token["content"] for token in document["added_tokens"]}
    types = {token["id"]: CONTROL if token["special"] else USER_DEFINED for token in document["added_tokens"]}
    count = max(names) + 1
    tokens = [names.get(i, f"[PAD{i}]") for i in range(count)]
    values: dict[str, Any] = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [types.get(i, NORMAL if i in names else UNUSED) for i in range(count)],
    }
    if bos is not None:
        values["tokenizer.ggml.bos_token_id"] = bos
    if pre is not None:
        values |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre}
        values["tokenizer.ggml.merges"] = [
            merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]
        ]
    else:
        values |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.unknown_token_id": 0}
        # Scores fall with the ids, as trained; runs of spaces were put in later and have the least.
        values["tokenizer.ggml.scores"] = [
            -1e9 if len(text) > 1 and not text.strip("▁") else -float(i) for i, text in enumerate(tokens)
        ]
    return GgufFile(folder, values, {})
