"""Attention over a paged cache: the keys and values of a sequence lie in blocks, wherever there was room.

Each layer's keys are one tensor [blocks * kv_heads, block_size * head_dim]: a row is what one head has in one block. So
the rows of a sequence, gathered head by head, are contiguous keys [kv_heads, tokens, head_dim], and one
scaled_dot_product_attention serves many sequences that decode. How sequences are grouped for that is `plan.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(slots=True)
class Group:
    """Sequences that attend together: several with a token each, or one with many."""

    #: Where their tokens begin among the step's.
    first: int
    sequences: int
    #: Tokens of each.
    queries: int
    #: Rows of the cache, [sequences * kv_heads * blocks].
    rows: Tensor
    #: What is added to the scores, 0 or -inf, [sequences, 1, queries, places]; None: causal from the first place on.
    mask: Tensor | None


@dataclass(slots=True, frozen=True)
class Cache:
    """The keys and values of all layers; `whole` is [2 * layers, blocks * kv_heads, block_size * head_dim]."""

    whole: Tensor
    layers: tuple[LayerCache, ...]

    def clear(self, rows: Tensor) -> None:
        """Zeroes rows of every layer."""
        self.whole.index_fill_(1, rows, 0.0)


@dataclass(slots=True)
class LayerCache:
    """What one layer keeps of all tokens; see above for the shapes."""

    keys: Tensor
    values: Tensor

    def write(self, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Keeps new keys and values [tokens, kv_heads, head_dim]; places [tokens * kv_heads] count head_dim numbers."""
        head_dim = keys.shape[-1]
        self.keys.view(-1, head_dim).index_copy_(0, places, keys.reshape(-1, head_dim))
        self.values.view(-1, head_dim).index_copy_(0, places, values.reshape(-1, head_dim))

    def attend(self, queries: Tensor, kv_heads: int, groups: Sequence[Group]) -> Tensor:
        """What the queries [tokens, heads, head_dim] find, [tokens, heads * head_dim]."""
        found = [self._attend(queries, kv_heads, group) for group in groups]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _attend(self, queries: Tensor, kv_heads: int, group: Group) -> Tensor:
        count, head_dim = group.sequences, queries.shape[-1]
        tokens = count * group.queries
        asked = queries[group.first : group.first + tokens].view(tokens, kv_heads, -1, head_dim)
        keys = self.keys.index_select(0, group.rows).view(count, kv_heads, -1, head_dim)
        values = self.values.index_select(0, group.rows).view(count, kv_heads, -1, head_dim)
        found = _decode(asked, keys, values, group.mask) if group.queries == 1 else _prefill(asked, keys, values, group)
        return found.reshape(tokens, -1)


def _decode(asked: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """[sequences, kv_heads, sharing heads, head_dim]: those that share keys stand where a sequence's tokens would."""
    assert mask is not None
    if keys.device.type == "cpu" and keys.dtype == torch.bfloat16:
        # The same in three steps. On a CPU the function below brings bfloat16 keys into another order at each call,
        # which for so few queries takes most of the time; measured against float32, neither way is nearer.
        flat = mask.expand(-1, *asked.shape[1:3], -1).flatten(0, 1)
        scores = torch.baddbmm(
            flat, asked.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2), alpha=asked.shape[-1] ** -0.5
        )
        return torch.bmm(scores.softmax(-1), values.flatten(0, 1))
    return scaled_dot_product_attention(asked, keys, values, attn_mask=mask.expand(-1, -1, asked.shape[2], -1))


def _prefill(asked: Tensor, keys: Tensor, values: Tensor, group: Group) -> Tensor:
    """[queries, kv_heads, sharing heads, head_dim], as `asked`, for the one sequence of the group."""
    sharing = (-1, asked.shape[2], -1, -1)
    keys, values = keys.transpose(0, 1).expand(sharing), values.transpose(0, 1).expand(sharing)
    if group.mask is None:
        keys, values = keys[:, :, : group.queries], values[:, :, : group.queries]
    found = scaled_dot_product_attention(
        asked.permute(1, 2, 0, 3), keys, values, attn_mask=group.mask, is_causal=group.mask is None
    )
    return found.permute(2, 0, 1, 3)
