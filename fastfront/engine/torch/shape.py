"""What a model is: the numbers of its configuration, whichever file they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastfront.errors import StartError

ROPE_KINDS = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """How positions turn queries and keys; what a kind does not use stays as it is."""

    theta: float = 10000.0
    #: One of ROPE_KINDS.
    kind: str = "default"
    #: How much longer than trained the context becomes.
    factor: float = 1.0
    #: Tokens of the context that the model was first trained with (llama3, yarn).
    original_length: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    #: Scales cosine and sine (yarn); None: as `factor`, `mscale` and `mscale_all_dim` say.
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    #: Whether the bounds of yarn's ramp are whole numbers.
    truncate: bool = True
    #: What each frequency is divided by, head_dim / 2 numbers that stand in for a kind (GGUF).
    divisors: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder of the Llama kind; all sizes are numbers of elements."""

    #: llama, qwen2, qwen3 or mistral.
    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: Rope
    #: Tokens of one sequence at most.
    max_length: int
    #: Whether the embedding is the output's matrix, too.
    tied: bool
    #: Whether queries, keys and values have a bias; whether the attention's output has; whether the MLP has.
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    #: Whether queries and keys are normalized, head by head.
    qk_norm: bool = False
    #: Of each layer: tokens back, itself included, that a token sees; None: all.
    windows: tuple[int | None, ...]
    #: As the weights are stored: float32, float16 or bfloat16; what is quantized counts as bfloat16.
    dtype: str
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads")
        for name in (*sizes, "head_dim", "max_length"):
            if getattr(self, name) < 1:
                raise StartError(f"the model's configuration says {name} = {getattr(self, name)}: it must be positive")
        if not self.rope.theta > 0:
            raise StartError(f"the model's configuration says rope_theta = {self.rope.theta}: it must be positive")
        if len(self.windows) != self.num_layers or any(window is not None and window < 1 for window in self.windows):
            raise StartError(
                f"the model's configuration gives {len(self.windows)} of {self.num_layers} layers a kind, or a sliding "
                "window without a token"
            )
        if self.num_heads % self.num_kv_heads:
            raise StartError(
                f"the model's {self.num_heads} attention heads cannot share {self.num_kv_heads} key-value heads"
            )
        if self.head_dim % 2:
            raise StartError(f"the model's head_dim is {self.head_dim}: rotary positions need an even one")

    @property
    def parameters(self) -> int:
        """Numbers in the matrices."""
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        layer = self.hidden_size * (attention + 3 * self.intermediate_size)
        return self.num_layers * layer + (1 if self.tied else 2) * self.vocab_size * self.hidden_size

    @property
    def kv_values(self) -> int:
        """Numbers that the cache keeps for one token, in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


def require(value: object, allowed: Sequence[object], what: str, where: str) -> None:
    """StartError, naming what is supported, unless `value` is one of those."""
    if value not in allowed:
        names = ", ".join(map(str, allowed))
        raise StartError(f"{where}: {what} {value!r} is not supported by the built-in engine, only {names}")
