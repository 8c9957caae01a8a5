"""The decoder: Llama and its like, which differ in few places. Read `Decoder.__call__` first."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, cat, float32, split
from torch.nn.functional import embedding, rms_norm, silu

from fastfront.engine.torch.attention import LayerCache
from fastfront.engine.torch.linear import Linear, linear
from fastfront.engine.torch.plan import Plan
from fastfront.engine.torch.rope import rotate, tables
from fastfront.engine.torch.weights import Weights


class Decoder:
    """A whole model with its weights."""

    def __init__(self, weights: Weights, length: int) -> None:
        """Loads it for sequences of up to `length` tokens; StartError."""
        shape = weights.shape
        matrix = (shape.vocab_size, shape.hidden_size)
        self.embedding = weights.take("model.embed_tokens.weight", *matrix)
        self.layers = [Layer(weights, number) for number in range(shape.num_layers)]
        self.norm = Norm(weights, "model.norm", shape.hidden_size)
        if shape.tied:
            weights.drop("lm_head.weight")
        self.head = linear(self.embedding if shape.tied else weights.take("lm_head.weight", *matrix))
        weights.finish()
        cos, sin = tables(shape.rope, shape.head_dim, length)
        self.cos = cos[:, None].to(weights.device, weights.dtype)
        self.sin = sin[:, None].to(weights.device, weights.dtype)

    def __call__(self, plan: Plan, cache: Sequence[LayerCache]) -> Tensor:
        """The logits of the wanted tokens, [wanted, vocab_size] in float32; the cache gets the new tokens' keys."""
        hidden = embedding(plan.tokens, self.embedding)
        turn = self.cos.index_select(0, plan.positions), self.sin.index_select(0, plan.positions)
        for layer, kept in zip(self.layers, cache, strict=True):
            hidden = layer(hidden, turn, plan, kept)
        if not len(plan.wanted):
            return hidden.new_empty(0, len(self.embedding), dtype=float32)
        return self.head(self.norm(hidden.index_select(0, plan.wanted))).float()


class Layer:
    """Attention, then an MLP, each beside a way around it."""

    def __init__(self, weights: Weights, number: int) -> None:
        name, size = f"model.layers.{number}.", weights.shape.hidden_size
        self.attention_norm = Norm(weights, name + "input_layernorm", size)
        self.attention = Attention(weights, name + "self_attn.", weights.shape.windows[number])
        self.mlp_norm = Norm(weights, name + "post_attention_layernorm", size)
        self.mlp = Mlp(weights, name + "mlp.")

    def __call__(self, hidden: Tensor, turn: tuple[Tensor, Tensor], plan: Plan, cache: LayerCache) -> Tensor:
        """hidden is [tokens, hidden_size], as is what comes out."""
        hidden = hidden + self.attention(self.attention_norm(hidden), turn, plan, cache)
        return hidden.add_(self.mlp(self.mlp_norm(hidden)))


class Attention:
    """Grouped queries with rotary positions; queries, keys and values come from one multiplication."""

    def __init__(self, weights: Weights, name: str, window: int | None) -> None:
        shape = weights.shape
        self.heads, self.kv_heads, self.head_dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
        self.window = window
        rows = (self.heads + 2 * self.kv_heads) * self.head_dim
        self.qkv = _joined(weights, name, ("q_proj", "k_proj", "v_proj"), rows, shape.hidden_size, shape.qkv_bias)
        self.output = _joined(
            weights, name, ("o_proj",), shape.hidden_size, self.heads * self.head_dim, shape.output_bias
        )
        self.query_norm = Norm(weights, name + "q_norm", self.head_dim) if shape.qk_norm else None
        self.key_norm = Norm(weights, name + "k_norm", self.head_dim) if shape.qk_norm else None

    def __call__(self, hidden: Tensor, turn: tuple[Tensor, Tensor], plan: Plan, cache: LayerCache) -> Tensor:
        """hidden is [tokens, hidden_size], as is what comes out."""
        heads = self.qkv(hidden).view(len(hidden), -1, self.head_dim)
        turning, values = split(heads, [self.heads + self.kv_heads, self.kv_heads], 1)
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = split(turning, [self.heads, self.kv_heads], 1)
            turning = cat((self.query_norm(queries), self.key_norm(keys)), 1)
        queries, keys = split(rotate(turning, *turn), [self.heads, self.kv_heads], 1)
        cache.write(plan.places, keys, values)
        return self.output(cache.attend(queries, self.kv_heads, plan.groups[self.window]))


class Mlp:
    """Two ways up, one of which is the gate of the other, and one down."""

    def __init__(self, weights: Weights, name: str) -> None:
        shape = weights.shape
        small, large, bias = shape.hidden_size, shape.intermediate_size, shape.mlp_bias
        self.gate_up = _joined(weights, name, ("gate_proj", "up_proj"), 2 * large, small, bias)
        self.down = _joined(weights, name, ("down_proj",), small, large, bias)

    def __call__(self, hidden: Tensor) -> Tensor:
        """hidden is [tokens, hidden_size], as is what comes out."""
        gate, up = self.gate_up(hidden).chunk(2, -1)
        return self.down(silu(gate).mul_(up))


class Norm:
    """Division by the root of the mean square, then a factor for each element."""

    def __init__(self, weights: Weights, name: str, size: int) -> None:
        self.size, self.epsilon = (size,), weights.shape.norm_eps
        self.weight = weights.take(name + ".weight", size)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Over the last dimension."""
        return rms_norm(hidden, self.size, self.weight, self.epsilon)


def _joined(weights: Weights, prefix: str, names: Sequence[str], rows: int, columns: int, bias: bool) -> Linear:
    """One multiplication for those of several names, whose results lie side by side."""
    matrix = weights.join([f"{prefix}{name}.weight" for name in names], rows, columns)
    offset = weights.join([f"{prefix}{name}.bias" for name in names], rows) if bias else None
    return linear(matrix, offset)
