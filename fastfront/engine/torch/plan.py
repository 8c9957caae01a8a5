"""From a batch to the tensors of a step: sequences in an order in which they attend in few groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from fastfront.engine.torch.attention import Group
from fastfront.engine.torch.batch import PAD_BLOCK, Batch

#: A group of sequences of unlike lengths reads that many blocks too many, or a share of all, rather than being split.
SPARE_BLOCKS = 24
SPARE_SHARE = 0.25

#: Tokens to compute, tokens in the cache, blocks.
Work = tuple[int, int, Sequence[int]]


@dataclass(slots=True)
class Plan:
    """A step's tensors; `tokens` are in the order of the groups."""

    tokens: Tensor
    positions: Tensor
    #: Where their keys go, [tokens * kv_heads] (see LayerCache).
    places: Tensor
    #: The tokens whose logits are wanted, in the batch's order.
    wanted: Tensor
    #: By a layer's window.
    groups: dict[int | None, list[Group]]


@dataclass(slots=True, frozen=True)
class Planner:
    """Plans for a cache of this form."""

    block_size: int
    kv_heads: int
    windows: frozenset[int | None]
    dtype: torch.dtype
    device: torch.device

    def plan(self, batch: Batch, blocks: int | None = None) -> Plan:
        """A step for the batch; with `blocks`, all its sequences decode in one group that reads so many of each."""
        order = sorted(range(len(batch.query_lens)), key=lambda at: (batch.query_lens[at], batch.context_lens[at]))
        sequences = [(batch.query_lens[at], batch.context_lens[at], batch.block_tables[at]) for at in order]
        starts = list(accumulate(batch.query_lens, initial=0))
        taken = [place for at in order for place in range(starts[at], starts[at + 1])]
        row_of = {place: row for row, place in enumerate(taken)}
        positions = [context + offset for queries, context, _ in sequences for offset in range(queries)]
        tables = [table for queries, _, table in sequences for _ in range(queries)]
        return Plan(
            tokens=self._put([batch.token_ids[place] for place in taken]),
            positions=self._put(positions),
            places=self._places(tables, positions).to(self.device),
            wanted=self._put([row_of[place] for place in batch.logits_rows]),
            groups={window: list(self._groups(sequences, window, blocks)) for window in self.windows},
        )

    def begun(self, batch: Batch) -> Tensor | None:
        """Rows of the cache of the blocks that this step begins and does not fill; None: there are none.

        Whoever had them before may have left what is not finite behind the new tokens, where a mask is no protection.
        """
        blocks = []
        for count, context, table in zip(batch.query_lens, batch.context_lens, batch.block_tables, strict=True):
            full, more = divmod(context + count, self.block_size)
            if more and full * self.block_size >= context:
                blocks.append(table[full])
        if not blocks:
            return None
        rows = torch.tensor(blocks)[:, None] * self.kv_heads + torch.arange(self.kv_heads)
        return rows.flatten().to(self.device)

    def _put(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64).to(self.device)

    def _places(self, tables: Sequence[Sequence[int]], positions: Sequence[int]) -> Tensor:
        size = self.block_size
        slots = [
            table[at // size] * size * self.kv_heads + at % size for table, at in zip(tables, positions, strict=True)
        ]
        return (torch.tensor(slots)[:, None] + torch.arange(self.kv_heads) * size).flatten()

    def _groups(self, sequences: Sequence[Work], window: int | None, blocks: int | None) -> Iterator[Group]:
        """Groups of sequences that decode, from left to right, then one for each that prefills."""
        decoding = sum(queries == 1 for queries, _, _ in sequences)
        first = 0
        for end in self._ends([self._reach(*one, window) for one in sequences[:decoding]], blocks):
            yield self._group(first, sequences[first:end], window, blocks)
            first = end
        for one in sequences[decoding:]:
            yield self._group(first, [one], window, None)
            first += one[0]

    def _reach(self, queries: int, context: int, table: Sequence[int], window: int | None) -> range:
        """Which of its blocks a sequence reads."""
        begin = 0 if window is None else max(0, context + 1 - window)
        return range(begin // self.block_size, (context + queries - 1) // self.block_size + 1)

    def _ends(self, reaches: Sequence[range], blocks: int | None) -> list[int]:
        """Where groups of sequences, in the order of their lengths, end."""
        if blocks is not None:
            return [len(reaches)]
        ends: list[int] = []
        longest = read = spare = 0
        for at in range(len(reaches) - 1, -1, -1):
            read, spare = read + len(reaches[at]), spare + longest - len(reaches[at])
            if not ends or spare > SPARE_BLOCKS + SPARE_SHARE * read:
                ends.append(at + 1)
                longest = read = len(reaches[at])
                spare = 0
        return ends[::-1]

    def _group(self, first: int, sequences: Sequence[Work], window: int | None, blocks: int | None) -> Group:
        size = self.block_size
        reaches = [self._reach(*one, window) for one in sequences]
        count = blocks or max(map(len, reaches))
        padded = [
            [*table[reach.start : reach.stop], *[PAD_BLOCK] * (count - len(reach))]
            for (_, _, table), reach in zip(sequences, reaches, strict=True)
        ]
        rows = torch.tensor(padded)[:, None] * self.kv_heads + torch.arange(self.kv_heads)[None, :, None]
        queries, context, _ = sequences[0]
        mask = None
        if queries == 1 or context or (window is not None and queries > window):
            contexts = torch.tensor([context for _, context, _ in sequences])
            begins = torch.tensor([reach.start * size for reach in reaches])
            mask = self._mask(contexts[:, None] + torch.arange(queries), begins, count * size, window)
        return Group(first, len(sequences), queries, rows.flatten().to(self.device), mask)

    def _mask(self, positions: Tensor, begins: Tensor, places: int, window: int | None) -> Tensor:
        """[sequences, 1, queries, places] for positions [sequences, queries], places from `begins` [sequences] on."""
        near = positions.to(self.device, torch.int32)[:, :, None]
        back = near - (begins[:, None] + torch.arange(places)).to(self.device, torch.int32)[:, None]
        hidden = back < 0 if window is None else (back < 0) | (back >= window)
        return torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, -torch.inf)[:, None]
