"""Multiplication by a fixed matrix, as fast as the device allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]


def linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """x -> x @ weight.T + bias for x [tokens, columns]; on a CPU the weight is kept in oneDNN's own order, alone."""
    if weight.device.type == "cpu" and _can_pack(weight.dtype):
        return _packed(weight, bias)
    return lambda x: functional.linear(x, weight, bias)


def _packed(weight: Tensor, bias: Tensor | None) -> Linear:
    # The two operators that torch.compile uses on CPUs: without them each call would bring the weight into order anew,
    # which takes longer than the multiplication of a few tokens.
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: multiply(x, packed, bias, "none", [], "")


@cache
def _can_pack(dtype: torch.dtype) -> bool:
    """Whether this torch has those operators for the type on this processor, and they multiply right."""
    weight, x = torch.eye(16, dtype=dtype), torch.arange(32).view(2, 16).to(dtype)
    try:
        return torch.equal(_packed(weight, None)(x), x)
    except (AttributeError, RuntimeError):  # NotImplementedError is a RuntimeError
        return False
