"""Models in folders: how weights are stored, and one clear line for what cannot be loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from fastfront.engine.torch.config_json import read_shape
from fastfront.errors import StartError
from tests.engine.torch.tiny import check, make, prompts, runner_for


def change(folder: Path, **values: Any) -> None:
    """Sets values of config.json; None takes one away."""
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def test_several_files(tmp_path: Path) -> None:
    model = make("qwen2", tmp_path, max_shard_size="20KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 2
    check(model, runner_for(tmp_path), prompts(1, [20]), 4)
    shards[1].unlink()
    with pytest.raises(StartError, match=f"{shards[1].name}: there is no such file"):
        runner_for(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_stored_in_sixteen_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    make("llama").to(dtype).save_pretrained(tmp_path)
    assert read_shape(tmp_path).dtype == str(dtype).removeprefix("torch.")
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    check(model, runner_for(tmp_path), prompts(2, [30]), 4)


def test_older_names_of_rope(tmp_path: Path) -> None:
    model = make("llama-llama3", tmp_path)
    rope = dict(model.config.rope_parameters)
    change(tmp_path, rope_parameters=None, rope_theta=rope.pop("rope_theta"), rope_scaling=rope)
    check(model, runner_for(tmp_path), prompts(3, [90]), 4)
    rope["type"] = rope.pop("rope_type")
    change(tmp_path, rope_scaling=rope)
    check(model, runner_for(tmp_path), prompts(3, [90]), 1)


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        ({"rope_type": "default"}, 512),
        ({"rope_type": "linear", "factor": 2.0}, 1024),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 2048),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}, 512),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4,
          "original_max_position_embeddings": 64}, 512),
    ],
)  # fmt: skip
def test_longest_sequence(rope: dict[str, Any], length: int, tmp_path: Path) -> None:
    make("llama", tmp_path)
    change(tmp_path, rope_parameters=None, rope_scaling=rope, rope_theta=1e4)
    assert read_shape(tmp_path).max_length == length
    assert runner_for(tmp_path).max_model_len == length


def test_ends_of_both_files(tmp_path: Path) -> None:
    make("llama", tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert read_shape(tmp_path).eos_token_ids == (7, 9, 2)
    (tmp_path / "generation_config.json").unlink()
    assert read_shape(tmp_path).eos_token_ids == (2,)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"architectures": ["GemmaForCausalLM"]},
         "architecture 'GemmaForCausalLM' is not supported by the built-in engine, only LlamaForCausalLM, Mistral"),
        ({"architectures": None}, "architecture '' is not supported"),
        ({"architectures": ["GemmaForCausalLM"], "hidden_size": None}, "architecture 'GemmaForCausalLM'"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
         "rope_type 'dynamic' is not supported by the built-in engine, only default, linear, llama3, yarn"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": -1.0}}, "rope_type 'yarn' needs a positive factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "'llama3' needs a positive low_freq_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported by the built-in engine, only silu"),
        ({"quantization_config": {"quant_method": "awq"}}, "weights quantized by 'awq' are not supported"),
        ({"dtype": "float8_e4m3fn"}, "dtype 'float8_e4m3fn' is not supported"),
        ({"num_key_value_heads": 4}, "6 attention heads cannot share 4 key-value heads"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0: it must be positive"),
        ({"num_hidden_layers": 1 << 62}, r"Expected `int` <= 10000 - at `\$\.num_hidden_layers`"),
        ({"num_hidden_layers": 0}, "num_layers = 0: it must be positive"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": -5.0}}, "rope_theta = -5.0: it must be positive"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 0}, "a sliding window without a token"),
        ({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 8,
          "layer_types": ["sliding_attention"]}, "gives 1 of 3 layers a kind"),
        ({"head_dim": 7}, "head_dim is 7: rotary positions need an even one"),
        ({"hidden_size": "48"}, r"config\.json: Expected `int`, got `str` - at `\$\.hidden_size`"),
        ({"hidden_size": None}, "missing required field `hidden_size`"),
        ({"vocab_size": 200}, r"wrong shape of model\.embed_tokens\.weight \[131, 48\]; .* asks for \[200, 48\]"),
        ({"num_hidden_layers": 4}, r"has no tensor model\.layers\.3\.input_layernorm\.weight"),
        ({"num_hidden_layers": 2}, r"has 9 tensors that .* llama as configured does not have: model\.layers\.2"),
        ({"attention_bias": True}, r"has no tensor model\.layers\.0\.self_attn\.q_proj\.bias"),
    ],
)  # fmt: skip
def test_what_is_not_served(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    make("llama", tmp_path)
    change(tmp_path, **values)
    with pytest.raises(StartError, match=said) as caught:
        runner_for(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_config(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"config\.json: No such file"):
        runner_for(tmp_path)
    (tmp_path / "config.json").write_bytes(b"{nonsense")
    with pytest.raises(StartError, match=r"cannot read .*config\.json"):
        runner_for(tmp_path)


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"no model at .*/nothing"):
        runner_for(tmp_path / "nothing")
    (tmp_path / "text").write_text("not a model")
    with pytest.raises(StartError, match="text is not a GGUF file"):
        runner_for(tmp_path / "text")


def test_missing_weights(tmp_path: Path) -> None:
    make("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(StartError, match=r"cannot read the weights in .*model\.safetensors"):
        runner_for(tmp_path)
    file.rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(StartError, match="only safetensors weights are loaded"):
        runner_for(tmp_path)


def test_weights_of_other_types(tmp_path: Path) -> None:
    make("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({**tensors, name: tensors[name].to(torch.float8_e4m3fn)}, file)
    with pytest.raises(StartError, match=f"the tensor {name} in .* is stored as float8_e4m3fn"):
        runner_for(tmp_path)


def test_what_is_computed_is_not_missed(tmp_path: Path) -> None:
    """Old files carry the rotary frequencies, and some that are tied the output, too."""
    model = make("llama-tied", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, file)
    check(model, runner_for(tmp_path), prompts(4, [10]), 2)


def test_progress(tmp_path: Path) -> None:
    from fastfront.engine.torch.runner import Runner
    from fastfront.engine.torch.settings import RunnerSettings

    make("llama", tmp_path)
    told: list[tuple[int, int]] = []
    Runner(RunnerSettings(model=tmp_path, device="cpu"), lambda done, count: told.append((done, count)))
    count = told[0][1]
    assert told == [(n, count) for n in range(1, count + 1)]
