from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastfront.errors import ConfigError, StartError
from fastfront.prompt.files import read_model_files
from fastfront.prompt.modes import MODES, choose_mode


@pytest.mark.parametrize(
    "config, mode",
    [
        ({}, "hf"),
        ({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]}, "harmony"),
        ({"architectures": ["DeepseekV32ForCausalLM"]}, "deepseek_v32"),
        ({"architectures": ["DeepseekV4ForConditionalGeneration"]}, "deepseek_v4"),
        ({"architectures": ["DeepseekV3ForCausalLM"]}, "hf"),
        ({"architectures": "DeepseekV4ForCausalLM"}, "hf"),
    ],
)
def test_auto_goes_by_the_model(tmp_path: Path, config: dict[str, Any], mode: str) -> None:
    assert choose_mode("auto", config, tmp_path) == mode
    assert choose_mode("hf", config, tmp_path) == "hf"


@pytest.mark.parametrize("asked", ["slow", "cohere", "deepseek_v41", "inkling", "kimi_k3"])
def test_others_are_refused_by_name(tmp_path: Path, asked: str) -> None:
    with pytest.raises(ConfigError, match=f"--tokenizer-mode {asked} is not served; auto, hf, harmony"):
        choose_mode(asked, {}, tmp_path)


def test_a_model_whose_format_is_not_served(tmp_path: Path) -> None:
    config = {"architectures": ["DeepseekV41ForCausalLM"]}
    with pytest.raises(ConfigError, match="the chat format of this model, --tokenizer-mode deepseek_v41, is not"):
        choose_mode("auto", config, tmp_path)
    assert choose_mode("hf", config, tmp_path) == "hf"


@pytest.mark.parametrize(
    "names, mode",
    [
        (["tekken.json", "tokenizer.json"], "hf"),
        (["tekken.json", "tokenizer.json", "consolidated.safetensors"], "mistral"),
        (["tokenizer.model.v3", "tokenizer.json", "params.json"], "mistral"),
        (["tekken.json"], "mistral"),
        (["tokenizer.json", "params.json"], "hf"),
        (["tokenizer.model", "consolidated.safetensors"], "hf"),
    ],
)
def test_mistrals_own_layout(tmp_path: Path, names: list[str], mode: str) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    assert choose_mode("auto", {}, tmp_path) == mode


def test_tokenizer_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StartError, match=r"no tekken\.json and no tokenizer\.model\.v\*"):
        read_model_files(str(tmp_path), tokenizer_mode="mistral")
    (tmp_path / "tokenizer.model.v3").write_bytes(b"")
    assert read_model_files(str(tmp_path)).tokenizer == tmp_path / "tokenizer.model.v3"
    with pytest.raises(StartError, match=r"there is a tokenizer for --tokenizer-mode mistral"):
        read_model_files(str(tmp_path), tokenizer_mode="hf")
    (tmp_path / "tokenizer.model.v7m1").write_bytes(b"")
    with pytest.raises(StartError, match=r"several tokenizers: tokenizer\.model\.v3, tokenizer\.model\.v7m1"):
        read_model_files(str(tmp_path))


def test_the_flag_knows_the_same_modes() -> None:
    from fastfront.cli.flags_table import GROUPS

    flags = [flag for group in GROUPS.values() for flag in group if flag.name == "tokenizer_mode"]
    assert flags[0].choices == MODES
