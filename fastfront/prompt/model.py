"""Facts of the model that its configs tell: vocabulary size, context length, end tokens, sampling defaults."""

from __future__ import annotations

import math
from typing import Any

from fastfront.errors import ConfigError

_SAMPLING = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
)
#: What --override-generation-config may set: type, least and greatest value.
_OVERRIDES: dict[str, tuple[type, float, float]] = {
    "repetition_penalty": (float, 1e-6, math.inf),
    "presence_penalty": (float, -2.0, 2.0),
    "frequency_penalty": (float, -2.0, 2.0),
    "temperature": (float, 0.0, 2.0),
    "top_k": (int, -1, 2**31 - 1),
    "top_p": (float, 1e-6, 1.0),
    "min_p": (float, 0.0, 1.0),
    "max_new_tokens": (int, 1, 2**31 - 1),
}
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "decoder", "generator")
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
#: RoPE kinds whose max_position_embeddings is the scaled length already.
_SCALED_ROPES = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
DEFAULT_LENGTH = 2048


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The part of config.json that describes the language model (all of it for a text model)."""
    for _ in range(2):  # thinker_config holds a text_config of its own
        inner = config.get("thinker_config")
        if isinstance(inner, dict):
            config = inner
    for name in _TEXT_CONFIGS:
        inner = config.get(name)
        if isinstance(inner, dict):
            return {**{k: v for k, v in config.items() if k in ("eos_token_id", "vocab_size")}, **inner}
    return config


def vocab_size(config: dict[str, Any]) -> int:
    """Rows of the embedding, 0 when the config does not say."""
    value = text_config(config).get("vocab_size")
    return value if isinstance(value, int) else 0


def context_length(config: dict[str, Any]) -> int:
    """The length in tokens that the model was made for, RoPE scaling included (2048 when nothing says)."""
    text = text_config(config)
    lengths = [text[key] for key in _LENGTHS if isinstance(text.get(key), int)]
    if not lengths:
        return DEFAULT_LENGTH
    length = float(text["model_max_length"] if isinstance(text.get("model_max_length"), int) else min(lengths))
    factor = 1.0
    for rope in _ropes(text):
        kind = rope.get("rope_type") or rope.get("type")
        if kind == "longrope" and isinstance(text.get("original_max_position_embeddings"), int):
            return int(text["original_max_position_embeddings"])
        if kind not in _SCALED_ROPES and isinstance(rope.get("factor"), int | float):
            factor = float(rope["factor"])
    if "gemma3" in str(config.get("model_type", "")):
        factor = 1.0
    return int(length * factor)


def _ropes(text: dict[str, Any]) -> list[dict[str, Any]]:
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    if not isinstance(rope, dict):
        return []
    inner = [value for value in rope.values() if isinstance(value, dict)]
    return inner or [rope]


def eos_token_ids(config: dict[str, Any], generation_config: dict[str, Any] | None) -> list[int]:
    """End tokens of generation_config.json, or of config.json when there is no such file; no doubles, in order."""
    source = text_config(config) if generation_config is None else generation_config
    value = source.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(v for v in values if isinstance(v, int) and not isinstance(v, bool)))


def sampling_defaults(
    generation_config: dict[str, Any] | None, source: str, overrides: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Sampling parameters that a request leaves open, by their request names; none from the file for source `vllm`."""
    config = {} if source == "vllm" or generation_config is None else dict(generation_config)
    _check_overrides(overrides or {})
    config.update(overrides or {})
    out = {name: config[name] for name in _SAMPLING if config.get(name) is not None}
    if config.get("max_new_tokens") is not None:
        out["max_tokens"] = config["max_new_tokens"]
    return out


def _check_overrides(overrides: dict[str, Any]) -> None:
    """ConfigError for a setting that nothing would come of, or whose value no request could live with."""
    for name, value in overrides.items():
        bounds = _OVERRIDES.get(name)
        if bounds is None:
            raise ConfigError(f"--override-generation-config: no {name!r}; there are {', '.join(_OVERRIDES)}")
        kind, low, high = bounds
        good = type(value) in (int, kind) and low <= value <= high
        if not good:
            raise ConfigError(f"--override-generation-config: {name} must be from {low:g} to {high:g}, not {value!r}")


def is_moe(config: dict[str, Any]) -> bool:
    """Whether the model is a mixture of experts."""
    text = text_config(config)
    counts = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return any(isinstance(text.get(name), int) and text[name] > 0 for name in counts)
