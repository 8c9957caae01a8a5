"""CUDA graphs for steps that only decode: their many small kernels are started by one call.

A graph has fixed sizes, so a batch is padded: to a number of sequences, with such that have one token in the block of
nobody, and to a number of blocks. Graphs are captured when first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fastfront.engine.torch.batch import PAD_BLOCK, Batch
from fastfront.engine.torch.plan import Plan, Planner

#: Above this, kernels are large enough to hide the starting of the next.
MOST_SEQUENCES = 256
FEWEST_BLOCKS = 16


@dataclass(slots=True)
class Captured:
    """A graph with the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    plan: Plan
    logits: Tensor


class Graphs:
    """The graphs of one model and cache; `compute` runs them, `limit` is a padded batch's blocks at most."""

    def __init__(self, planner: Planner, compute: Callable[[Plan], Tensor], limit: int) -> None:
        self._planner = planner
        self._compute = compute
        self._limit = limit
        self._captured: dict[tuple[int, int], Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, batch: Batch) -> Tensor | None:
        """The logits, which the next run overwrites; None if the batch is not for graphs."""
        size = padded_size(batch, self._planner.block_size)
        if size is None or size[0] * size[1] > self._limit:
            return None
        plan = self._planner.plan(pad(batch, size[0]), size[1])
        found = self._captured.get(size)
        if found is None:
            found = self._captured[size] = self._capture(plan)
        else:
            _copy(plan, found.plan)
        found.graph.replay()
        return found.logits[: len(batch.logits_rows)]

    def _capture(self, plan: Plan) -> Captured:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._compute(plan)  # what libraries set up at their first call must not be captured
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = self._compute(plan)
        return Captured(graph, plan, logits)


def padded_size(batch: Batch, block_size: int) -> tuple[int, int] | None:
    """Sequences and blocks to pad to; None unless each sequence decodes and wants its logits."""
    count = len(batch.query_lens)
    if count > MOST_SEQUENCES or len(batch.token_ids) > count or len(batch.logits_rows) < count:
        return None
    sequences = _power_of_two(count) if count <= 16 else -(-count // 16) * 16
    return sequences, max(FEWEST_BLOCKS, _power_of_two(max(batch.context_lens) // block_size + 1))


def pad(batch: Batch, sequences: int) -> Batch:
    """The batch with sequences of nobody behind it."""
    more = sequences - len(batch.query_lens)
    return Batch(
        token_ids=[*batch.token_ids, *[0] * more],
        query_lens=[1] * sequences,
        context_lens=[*batch.context_lens, *[0] * more],
        block_tables=[*batch.block_tables, *[[PAD_BLOCK]] * more],
        logits_rows=list(range(sequences)),
    )


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _copy(plan: Plan, to: Plan) -> None:
    """Brings a step's tensors to where a graph reads them."""
    to.tokens.copy_(plan.tokens)
    to.positions.copy_(plan.positions)
    to.places.copy_(plan.places)
    to.wanted.copy_(plan.wanted)
    for window, groups in plan.groups.items():
        for group, target in zip(groups, to.groups[window], strict=True):
            target.rows.copy_(group.rows)
            if group.mask is not None and target.mask is not None:
                target.mask.copy_(group.mask)
