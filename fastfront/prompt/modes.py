"""--tokenizer-mode: which chat format and which tokenizer a model is served with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastfront.errors import ConfigError, StartError

MODES = ("auto", "hf", "harmony", "deepseek_v32", "deepseek_v4", "mistral")
#: By model type, then by architecture; models of vLLM's that have a format which is not served are named too.
_BY_TYPE = {"gpt_oss": "harmony"}
_BY_ARCHITECTURE = {
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "DeepseekV4ForConditionalGeneration": "deepseek_v4",
    "DeepseekV41ForCausalLM": "deepseek_v41",
    "InklingForCausalLM": "inkling",
    "InklingForConditionalGeneration": "inkling",
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "MoonshotKimiaForCausalLM": "kimi_audio",
}


def choose_mode(asked: str, config: dict[str, Any], tokenizer_folder: Path) -> str:
    """The mode in force, never auto; raises ConfigError for one that is not served."""
    mode = asked
    if asked == "auto":
        architectures = config.get("architectures")
        named = [_BY_ARCHITECTURE.get(str(name)) for name in (architectures if isinstance(architectures, list) else [])]
        mode = _BY_TYPE.get(str(config.get("model_type"))) or next(filter(None, named), "hf")
        if mode == "hf" and is_mistral(tokenizer_folder):
            mode = "mistral"
    if mode in MODES:
        return mode
    why = f"--tokenizer-mode {asked}" if asked != "auto" else f"the chat format of this model, --tokenizer-mode {mode},"
    raise ConfigError(f"{why} is not served; {', '.join(MODES)} are (hf: the model's own chat template)")


def is_mistral(folder: Path) -> bool:
    """Mistral's own layout: weights named consolidated and params.json (all that a cache without weights has of it)."""
    if mistral_file(folder) is None:
        return False
    own = (folder / "params.json").is_file() or any(folder.glob("consolidated*.safetensors"))
    return own or not (folder / "tokenizer.json").is_file()


def mistral_file(folder: Path) -> Path | None:
    """The tokenizer of mistral-common in a folder, None when there is none; raises StartError for several."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if "tekken.json" in names:
        return folder / "tekken.json"
    names = [name for name in names if re.fullmatch(r"tokenizer\.model\.v\d+(m\d+)?", name)]
    if len(names) > 1:
        raise StartError(f"{folder} holds several tokenizers: {', '.join(names)}")
    return folder / names[0] if names else None
