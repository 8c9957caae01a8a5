"""A model as llama.cpp keeps it: a GGUF file, or several. Quantized tensors become numbers when they are read."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from fastfront.engine.torch.rope import log_scale
from fastfront.engine.torch.shape import Rope, Shape, require
from fastfront.errors import StartError
from fastfront.gguf_file import GgufFile, GgufTensor, read_gguf

FAMILIES = ("llama", "qwen2", "qwen3")
#: GGUF's name of a tensor, without `blk.N.`, -> Hugging Face's, without `model.layers.N.`
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
#: What a long context divides the rotary frequencies by, instead of metadata.
DIVISORS = "rope_freqs.weight"
PLAIN = {0: "<f4", 1: "<f2"}
BFLOAT16 = 30


class GgufModel:
    """A Checkpoint."""

    def __init__(self, path: Path) -> None:
        self.where = path
        head = read_gguf(path)
        require(head.architecture, FAMILIES, "architecture", str(path))
        parts = [head, *(read_gguf(part) for part in _other_parts(path, head))]
        self._bytes = {part.path: np.memmap(part.path, np.uint8, "r") for part in parts}
        raw = {name: (part.path, tensor) for part in parts for name, tensor in part.tensors.items()}
        divisors = raw.pop(DIVISORS, None)
        self._tensors = {_hugging_face(name): place for name, place in raw.items()}
        self._heads = (0, 0)
        names = set(self._tensors)
        self.shape = _shape(head, names, self._row_count("model.embed_tokens.weight"),
                            None if divisors is None else self._read(*divisors))  # fmt: skip
        if head.architecture == "llama":
            self._heads = (self.shape.num_heads, self.shape.num_kv_heads)

    def names(self) -> set[str]:
        """The tensors that there are."""
        return set(self._tensors)

    def tensor(self, name: str) -> Tensor:
        """One tensor, quantized ones as float32; StartError."""
        tensor = self._read(*self._tensors[name])
        part = name.rpartition(".self_attn.")[2].partition(".")[0]
        heads = {"q_proj": self._heads[0], "k_proj": self._heads[1]}.get(part, 0)
        return _halves(tensor, heads) if heads else tensor

    def close(self) -> None:
        """Lets go of the files."""
        self._bytes.clear()

    def _row_count(self, name: str) -> int:
        if name not in self._tensors:
            raise StartError(f"{self.where} has no tensor {name} (in its own names token_embd.weight)")
        return self._tensors[name][1].shape[0]

    def _read(self, path: Path, tensor: GgufTensor) -> Tensor:
        kind = _kind(tensor, path)
        shape = tensor.shape
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if shape[-1] % block:
            raise StartError(f"{path}: the rows of the tensor {tensor.name} are no whole blocks of {kind.name}")
        count = int(np.prod(shape, dtype=np.int64)) // block * size
        data = self._bytes[path][tensor.offset : tensor.offset + count]
        if len(data) < count:
            raise StartError(f"{path} ends within the tensor {tensor.name}: not downloaded whole")
        if tensor.kind in PLAIN:
            return torch.from_numpy(data.view(PLAIN[tensor.kind]).reshape(shape).copy())
        if tensor.kind == BFLOAT16:
            return torch.from_numpy(data.view("<i2").reshape(shape).copy()).view(torch.bfloat16)
        try:
            values = gguf.dequantize(data.reshape(*shape[:-1], shape[-1] // block * size), kind)
        except NotImplementedError as error:
            raise StartError(
                f"{path}: the tensor {tensor.name} is quantized as {kind.name}, which the package gguf cannot read: "
                "take a file of another quantization, e.g. Q8_0 or Q4_K_M"
            ) from error
        return torch.from_numpy(values)


def _kind(tensor: GgufTensor, path: Path) -> gguf.GGMLQuantizationType:
    try:
        return gguf.GGMLQuantizationType(tensor.kind)
    except ValueError as error:
        raise StartError(f"{path}: the tensor {tensor.name} has the type {tensor.kind}, which is unknown") from error


def _halves(tensor: Tensor, heads: int) -> Tensor:
    """Undoes llama.cpp's order of a head's rows: what turns together is side by side there, half a head apart here."""
    if tensor.shape[0] % (2 * heads):
        return tensor  # of a wrong shape, which the reader tells
    return tensor.view(heads, -1, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def _hugging_face(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    match = re.fullmatch(r"blk\.(\d+)\.(.+)", stem)
    if match:
        return f"model.layers.{match[1]}.{LAYER_NAMES.get(match[2], match[2])}.{kind}"
    return f"{NAMES.get(stem, stem)}.{kind}"


def _other_parts(path: Path, head: GgufFile) -> list[Path]:
    """The files beside the first, if the model is split into several."""
    count = int(head.values.get("split.count", 0))
    if count < 2:
        return []
    match = re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if match is None or int(match[2]) != 1 or int(match[3]) != count:
        raise StartError(f"{path} is one of {count} parts of a model: name the first, NAME-00001-of-{count:05}.gguf")
    return [path.with_name(f"{match[1]}-{part:05}-of-{match[3]}.gguf") for part in range(2, count + 1)]


def _shape(head: GgufFile, names: set[str], vocab_size: int, divisors: Tensor | None) -> Shape:
    where = str(head.path)

    def number(key: str, default: float | None = None) -> Any:
        value = head.of_model(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise StartError(f"{where}: {head.architecture}.{key} is {value!r}: a number is needed")
        return value

    hidden, heads = int(number("embedding_length")), int(number("attention.head_count"))
    if heads < 1:
        raise StartError(f"{where}: {head.architecture}.attention.head_count is {heads}: it must be positive")
    head_dim = int(number("attention.key_length", hidden // heads))
    require(number("attention.value_length", head_dim), [head_dim], "attention.value_length", where)
    require(number("rope.dimension_count", head_dim), [head_dim], "rope.dimension_count", where)
    layers = int(number("block_count"))
    if layers > len(names):
        raise StartError(f"{where}: {head.architecture}.block_count is {layers}: more than it has tensors")
    window = int(number("attention.sliding_window", 0)) or None
    end = head.values.get("tokenizer.ggml.eos_token_id")
    first = "model.layers.0."
    return Shape(
        family=head.architecture,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=int(number("feed_forward_length")),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=int(number("attention.head_count_kv", heads)),
        head_dim=head_dim,
        norm_eps=float(number("attention.layer_norm_rms_epsilon")),
        rope=_rope(head, number, divisors),
        max_length=int(number("context_length")),
        tied="lm_head.weight" not in names,
        qkv_bias=first + "self_attn.q_proj.bias" in names,
        output_bias=first + "self_attn.o_proj.bias" in names,
        mlp_bias=first + "mlp.up_proj.bias" in names,
        qk_norm=first + "self_attn.q_norm.weight" in names,
        windows=(window,) * layers,
        dtype="bfloat16",
        eos_token_ids=() if end is None else (int(end),),
    )


def _rope(head: GgufFile, number: Any, divisors: Tensor | None) -> Rope:
    kind = head.of_model("rope.scaling.type", "none")
    require(kind, ["none", "linear", "yarn"], "rope.scaling.type", str(head.path))
    factor = float(number("rope.scaling.factor", 0.0))
    attention = float(number("rope.scaling.attn_factor", 1.0))
    if kind == "none":
        # Files of the year 2023 say it so.
        factor = float(number("rope.scale_linear", 1.0))
        kind = "default" if factor == 1.0 else "linear"
    if not factor > 0:
        raise StartError(f"{head.path}: rope.scaling.type {kind!r} needs a positive rope.scaling.factor")
    return Rope(
        theta=float(number("rope.freq_base", 10000.0)),
        kind=kind,
        factor=factor,
        original_length=int(number("rope.scaling.original_context_length", 0)) or int(number("context_length")),
        # llama.cpp multiplies yarn's own factor by this one.
        attention_factor=attention * log_scale(factor) if kind == "yarn" else None,
        beta_fast=float(number("rope.scaling.yarn_beta_fast", 32.0)),
        beta_slow=float(number("rope.scaling.yarn_beta_slow", 1.0)),
        divisors=None if divisors is None else tuple(divisors.tolist()),
    )
