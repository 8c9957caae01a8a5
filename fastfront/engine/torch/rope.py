"""Rotary positions: the tables of cosines and sines for each variant, and the turn itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fastfront.engine.torch.shape import Rope


def tables(rope: Rope, head_dim: int, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines [length, head_dim] in float32, as `rotate` needs them."""
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies(rope, head_dim)
    cos, sin = angles.cos() * scale(rope), angles.sin() * scale(rope)
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the two halves of each head [tokens, heads, head_dim]; cos and sin are [tokens, 1, head_dim]."""
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


def frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Radians a token for each pair of a head's elements, [head_dim / 2] in float32."""
    plain = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if rope.divisors is not None:
        return plain / torch.tensor(rope.divisors)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, plain)
    if rope.kind == "yarn":
        return _yarn(rope, plain, head_dim)
    return plain


def scale(rope: Rope) -> float:
    """What cosine and sine are multiplied by."""
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return log_scale(rope.factor, rope.mscale) / log_scale(rope.factor, rope.mscale_all_dim)
    return log_scale(rope.factor)


def log_scale(factor: float, weight: float = 1.0) -> float:
    """What yarn scales cosine and sine by when the context becomes `factor` times as long."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _llama3(rope: Rope, plain: Tensor) -> Tensor:
    """Slow waves are stretched by `factor`, fast ones stay, those between are blended by turns per trained context."""
    turns = rope.original_length * plain / (2 * math.pi)
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return _blend(plain, rope.factor, keep.clamp(0, 1))


def _yarn(rope: Rope, plain: Tensor, head_dim: int) -> Tensor:
    """As llama3, but the blend is linear in the index of the pair between those with beta_fast and beta_slow turns."""

    def pair_with(turns: float) -> float:
        wavelength = rope.original_length / (turns * 2 * math.pi)
        return head_dim * math.log(wavelength) / (2 * math.log(rope.theta))

    low, high = pair_with(rope.beta_fast), pair_with(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = (torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low or 0.001)
    return _blend(plain, rope.factor, 1 - ramp.clamp(0, 1))


def _blend(plain: Tensor, factor: float, keep: Tensor) -> Tensor:
    return plain / factor * (1 - keep) + plain * keep
