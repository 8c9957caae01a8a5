"""Models in GGUF files: llama.cpp's names, its order of rows, its quantizations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from fastfront.engine.torch.gguf_model import LAYER_NAMES, GgufModel
from fastfront.errors import StartError
from tests.engine.torch.tiny import SIZES, check, make, prompts, runner_for

NAMES = {theirs: ours for ours, theirs in LAYER_NAMES.items()}
#: Rows must be whole blocks of 32.
WHOLE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}


def gguf_name(name: str) -> str:
    """llama.cpp's name of a tensor."""
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        number, _, rest = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{number}.{NAMES[rest]}.{kind}"
    return {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[stem] + "." + kind


def pairs(tensor: np.ndarray, heads: int) -> np.ndarray:
    """A head's rows in llama.cpp's order."""
    half = tensor.shape[0] // heads // 2
    return tensor.reshape(heads, 2, half, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def write(
    model: Any,
    path: Path,
    kind: Kind = Kind.F32,
    *,
    drop: str = "",
    extra: dict[str, Any] | None = None,
    parts: int = 1,
) -> Path:
    """Writes the model's matrices as `kind`, and puts into the model what they are afterwards."""
    config, family = model.config, model.config.model_type
    head_dim = model.model.layers[0].self_attn.head_dim
    values = {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads, "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim, "attention.value_length": head_dim, "rope.dimension_count": head_dim,
    }  # fmt: skip
    paths = [path] if parts == 1 else [path.with_name(f"m-{n + 1:05}-of-{parts:05}.gguf") for n in range(parts)]
    writers = [gguf.GGUFWriter(None, family) for _ in paths]
    for key, value in values.items():
        writers[0].add_uint32(f"{family}.{key}", value)
    writers[0].add_float32(f"{family}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writers[0].add_float32(f"{family}.rope.freq_base", config.rope_parameters["rope_theta"])
    writers[0].add_uint32("tokenizer.ggml.eos_token_id", 2)
    for key, value in (extra or {}).items():
        kinds = {str: gguf.GGUFValueType.STRING, float: gguf.GGUFValueType.FLOAT32, int: gguf.GGUFValueType.UINT32}
        writers[0].add_key_value(key.replace("ARCH", family), value, kinds[type(value)])
    for writer in writers if parts > 1 else ():
        writer.add_uint16("split.count", parts)
    with torch.no_grad():
        for number, (name, parameter) in enumerate(model.named_parameters()):
            data = parameter.numpy()
            here = kind if data.ndim == 2 else Kind.F32
            packed = gguf.quantize(data, here)
            parameter.copy_(torch.from_numpy(gguf.dequantize(packed, here)))
            heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(
                name.split(".")[-2]
            )
            if heads and family == "llama":
                packed = pairs(packed, heads)
            if gguf_name(name) != drop:
                writers[number % parts].add_tensor(gguf_name(name), packed, raw_dtype=here)
    if config.rope_parameters.get("rope_type") == "llama3":
        plain = 1.0 / config.rope_parameters["rope_theta"] ** (np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)
        divisors = plain / model.model.rotary_emb.inv_freq.numpy()
        writers[0].add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    for writer, file in zip(writers, paths, strict=True):
        writer.write_header_to_file(file)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths[0]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that quantized blocks fit."""
    for key, value in WHOLE.items():
        monkeypatch.setitem(SIZES, key, value)


@pytest.mark.parametrize("kind", ["llama", "llama-tied", "llama-llama3", "llama-biases", "qwen2", "qwen3"])
def test_families(kind: str, tmp_path: Path) -> None:
    model = make(kind)
    runner = runner_for(write(model, tmp_path / "m.gguf"))
    assert runner.eos_token_ids == (2,)
    check(model, runner, prompts(1, [70, 5]), 6)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_1], ids=lambda k: k.name
)
def test_quantizations(kind: Kind, tmp_path: Path) -> None:
    model = make("llama")
    runner = runner_for(write(model, tmp_path / "m.gguf", kind))
    check(model, runner, prompts(2, [40]), 6)


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        ("llama-linear", {"ARCH.rope.scaling.type": "linear", "ARCH.rope.scaling.factor": 3.0}),
        ("llama-linear", {"ARCH.rope.scale_linear": 3.0}),
        ("llama-yarn", {"ARCH.rope.scaling.type": "yarn", "ARCH.rope.scaling.factor": 4.0,
                        "ARCH.rope.scaling.original_context_length": 128}),
    ],
)  # fmt: skip
def test_long_contexts(kind: str, extra: dict[str, Any], tmp_path: Path) -> None:
    model = make(kind)
    check(model, runner_for(write(model, tmp_path / "m.gguf", extra=extra)), prompts(3, [90]), 4)


def test_several_files(tmp_path: Path) -> None:
    model = make("qwen2")
    first = write(model, tmp_path / "m.gguf", parts=3)
    check(model, runner_for(first), prompts(4, [20]), 4)
    first.with_name("m-00003-of-00003.gguf").unlink()
    with pytest.raises(StartError, match=r"m-00003-of-00003\.gguf"):
        runner_for(first)
    with pytest.raises(StartError, match="name the first, NAME-00001-of-00003"):
        runner_for(first.rename(tmp_path / "whole.gguf"))


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"ARCH.rope.scaling.type": "longrope"}, "rope.scaling.type 'longrope' is not supported"),
        ({"ARCH.rope.scaling.type": "linear"}, "needs a positive rope.scaling.factor"),
        ({"ARCH.attention.head_count": "two"}, "attention.head_count is 'two': a number is needed"),
        ({"ARCH.rope.freq_base": float("inf")}, "rope.freq_base is inf: a number is needed"),
        ({"ARCH.block_count": 1 << 31}, "block_count is 2147483648: more than it has tensors"),
        ({"ARCH.rope.dimension_count": 2}, "rope.dimension_count 2 is not supported"),
        ({"ARCH.attention.head_count_kv": 4}, "6 attention heads cannot share 4 key-value heads"),
        ({"ARCH.feed_forward_length": 81}, r"wrong shape of model.layers.0.mlp.gate_proj.weight \[80, 48\]"),
    ],
)
def test_what_is_not_served(extra: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The writer refuses a key that is there already; here the later one is to count.
    monkeypatch.setattr(gguf.GGUFWriter, "add_key_value", _replace)
    with pytest.raises(StartError, match=said):
        runner_for(write(make("llama"), tmp_path / "m.gguf", extra=extra))


def _replace(writer: gguf.GGUFWriter, key: str, value: Any, kind: Any, sub_type: Any = None) -> None:
    writer.kv_data[0][key] = gguf.gguf_writer.GGUFValue(value=value, type=kind, sub_type=sub_type)


def test_other_families_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "gemma3")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        StartError, match="architecture 'gemma3' is not supported by the built-in engine, only llama, q"
    ):
        GgufModel(tmp_path / "m.gguf")


def test_a_missing_tensor(tmp_path: Path) -> None:
    path = write(make("llama"), tmp_path / "m.gguf", drop="blk.1.ffn_up.weight")
    with pytest.raises(StartError, match=r"has no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        runner_for(path)


def test_a_file_that_was_not_downloaded_whole(tmp_path: Path) -> None:
    path = write(make("llama"), tmp_path / "m.gguf")
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.999):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(StartError, match=r"not downloaded whole|cut off"):
            runner_for(path)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (Kind.Q8_1, "is quantized as Q8_1, which the package gguf cannot read"),
        (Kind.I32, "is quantized as I32, which the package gguf cannot read"),
        (99, "has the type 99, which is unknown"),
    ],
)
def test_unreadable_types(number: int, said: str, tmp_path: Path) -> None:
    path = write(make("llama"), tmp_path / "m.gguf", Kind.Q8_0)
    data = bytearray(path.read_bytes())
    at = data.index(b"blk.0.ffn_up.weight") + len("blk.0.ffn_up.weight") + 4 + 2 * 8
    assert data[at] == Kind.Q8_0
    data[at] = number
    path.write_bytes(data)
    with pytest.raises(StartError, match=r"blk\.0\.ffn_up\.weight " + said):
        runner_for(path)


@pytest.mark.peer
def test_smollm2(peers: Path) -> None:
    """The file says what transformers says with the same numbers, and they are nearly those that it was made from."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(peers / "models" / "smollm2", dtype=torch.float32)
    reader = gguf.GGUFReader(peers / "smollm2.gguf")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            tensor = tensors[gguf_name(name)]
            data = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
            heads = {"q_proj": 9, "k_proj": 3}.get(name.split(".")[-2])
            if heads:
                data = data.view(heads, -1, 2, 576).transpose(1, 2).reshape(parameter.shape)
            assert torch.cosine_similarity(data.flatten(), parameter.flatten(), 0) > 0.99, name
            parameter.copy_(data)
    runner = runner_for(peers / "smollm2.gguf")
    check(model, runner, prompts(5, [5, 40], runner.vocab_size), 8)
