"""The shape of a model from its folder's config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from fastfront.engine.torch.shape import ROPE_KINDS, Rope, Shape, require
from fastfront.errors import StartError

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
#: Far more than any model has: a wrong number must not become a list of that many.
MAX_LAYERS = 10_000
DTYPES = ("float32", "float16", "bfloat16")

T = TypeVar("T")


class RopeConfig(msgspec.Struct):
    """`rope_scaling`, or the newer `rope_parameters`."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None
    partial_rotary_factor: float | None = None
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


class Config(msgspec.Struct):
    """What of config.json is needed; its names."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: Annotated[int, msgspec.Meta(le=MAX_LAYERS)]
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_theta: float | None = None
    rope_scaling: RopeConfig | None = None
    rope_parameters: RopeConfig | None = None
    partial_rotary_factor: float | None = None
    sliding_window: int | None = None
    use_sliding_window: bool = False
    max_window_layers: int = 0
    layer_types: list[str] | None = None
    quantization_config: dict[str, Any] | None = None
    dtype: str | None = None
    torch_dtype: str | None = None
    eos_token_id: int | list[int] | None = None


class Kind(msgspec.Struct):
    """What is read first: which model it is."""

    architectures: list[str] = []


class GenerationConfig(msgspec.Struct):
    """What of generation_config.json is needed."""

    eos_token_id: int | list[int] | None = None


def read_shape(folder: Path) -> Shape:
    """Reads config.json and, where there is one, generation_config.json; StartError."""
    file = folder / "config.json"
    architectures = _read(file, Kind).architectures
    architecture = next((name for name in architectures if name in FAMILIES), ", ".join(architectures))
    require(architecture, list(FAMILIES), "architecture", str(file))
    family = FAMILIES[architecture]
    config = _read(file, Config)
    if config.quantization_config is not None:
        method = config.quantization_config.get("quant_method", "unknown")
        raise StartError(
            f"{file}: weights quantized by {method!r} are not supported by the built-in engine: "
            "take the model unquantized or as a GGUF file"
        )
    require(config.hidden_act, ["silu"], "hidden_act", str(file))
    rope, stretch = _rope(config, str(file))
    if config.num_attention_heads < 1:
        raise StartError(f"{file}: num_attention_heads is {config.num_attention_heads}: it must be positive")
    bias = family in ("llama", "qwen3") and config.attention_bias
    return Shape(
        family=family,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        norm_eps=config.rms_norm_eps,
        rope=rope,
        max_length=int(config.max_position_embeddings * stretch),
        tied=config.tie_word_embeddings,
        qkv_bias=bias or family == "qwen2",
        output_bias=bias,
        mlp_bias=family == "llama" and config.mlp_bias,
        qk_norm=family == "qwen3",
        windows=_windows(config, family),
        dtype=_dtype(config, str(file)),
        eos_token_ids=_ends(folder, config),
    )


def _read(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartError(f"cannot read {file}: {reason}") from error


def _rope(config: Config, where: str) -> tuple[Rope, float]:
    """The variant, and by how much it stretches max_position_embeddings."""
    said = config.rope_parameters or config.rope_scaling or RopeConfig()
    kind = said.rope_type or said.type or "default"
    require(kind, ROPE_KINDS, "rope_type", where)
    for partial in (said.partial_rotary_factor, config.partial_rotary_factor):
        require(partial, [None, 1.0], "partial_rotary_factor", where)
    theta = said.rope_theta or config.rope_theta or 10000.0
    original = said.original_max_position_embeddings or config.max_position_embeddings
    if kind == "default":
        return Rope(theta=theta), 1.0
    factor = said.factor
    if factor is None and kind == "yarn":
        factor = config.max_position_embeddings / original
    needed = {"factor": factor, "low_freq_factor": said.low_freq_factor, "high_freq_factor": said.high_freq_factor}
    for name in ("factor",) if kind != "llama3" else tuple(needed):
        if not (needed[name] or 0) > 0:
            raise StartError(f"{where}: rope_type {kind!r} needs a positive {name}")
    rope = Rope(
        theta=theta,
        kind=kind,
        factor=factor or 1.0,
        original_length=original,
        low_freq_factor=said.low_freq_factor or 1.0,
        high_freq_factor=said.high_freq_factor or 4.0,
        beta_fast=said.beta_fast or 32.0,
        beta_slow=said.beta_slow or 1.0,
        attention_factor=said.attention_factor,
        mscale=said.mscale,
        mscale_all_dim=said.mscale_all_dim,
        truncate=said.truncate,
    )
    # llama3's max_position_embeddings is stretched already; yarn's may be, or not.
    stretches = {"llama3": 1.0, "linear": rope.factor, "yarn": rope.factor * original / config.max_position_embeddings}
    return rope, stretches[kind]


def _windows(config: Config, family: str) -> tuple[int | None, ...]:
    layers, window = config.num_hidden_layers, config.sliding_window
    if window is None or family == "llama" or (family != "mistral" and not config.use_sliding_window):
        return (None,) * layers
    if family == "mistral":
        return (window,) * layers
    kinds = config.layer_types
    if kinds is None:
        return tuple(window if layer >= config.max_window_layers else None for layer in range(layers))
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _dtype(config: Config, where: str) -> str:
    dtype = config.dtype or config.torch_dtype or "float32"
    require(dtype, DTYPES, "dtype", where)
    return dtype


def _ends(folder: Path, config: Config) -> tuple[int, ...]:
    """The ids of both files, those of generation_config.json first."""
    file = folder / "generation_config.json"
    said = [_read(file, GenerationConfig).eos_token_id] if file.is_file() else []
    found: dict[int, None] = {}
    for value in (*said, config.eos_token_id):
        found.update(dict.fromkeys(value if isinstance(value, list) else [] if value is None else [value]))
    return tuple(found)
