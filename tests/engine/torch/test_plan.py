"""How a batch is put in groups, and how one is padded for a graph."""

from __future__ import annotations

import torch

from fastfront.engine.torch.batch import Batch
from fastfront.engine.torch.graphs import pad, padded_size
from fastfront.engine.torch.plan import Planner

CPU = torch.device("cpu")
FULL = Planner(4, 2, frozenset([None]), torch.float32, CPU)


def decode(contexts: list[int]) -> Batch:
    """One token for each sequence; sequence n has the blocks 100 n + 1 and on."""
    count = len(contexts)
    tables = [[100 * n + 1 + block for block in range(context // 4 + 1)] for n, context in enumerate(contexts)]
    return Batch(list(range(10, 10 + count)), [1] * count, contexts, tables, list(range(count)))


def test_sequences_are_put_in_order_and_back() -> None:
    plan = FULL.plan(Batch([7, 8, 9, 5, 6], [1, 3, 1], [6, 0, 2], [[1, 2], [3], [4]], [0, 3, 4]))
    assert plan.tokens.tolist() == [6, 7, 8, 9, 5]
    assert plan.positions.tolist() == [2, 6, 0, 1, 2]
    assert plan.wanted.tolist() == [1, 4, 0]
    # Block b, head h, place p: row (2 b + h), of which each has 4 places.
    assert plan.places.tolist() == [34, 38, 18, 22, 24, 28, 25, 29, 26, 30]
    decoding, prompt = plan.groups[None]
    assert (decoding.first, decoding.sequences, decoding.queries) == (0, 2, 1)
    assert decoding.rows.view(2, 2, 2).tolist() == [[[8, 0], [9, 1]], [[2, 4], [3, 5]]]
    assert decoding.mask is not None
    assert (decoding.mask.view(2, 8) == 0).tolist() == [[True] * 3 + [False] * 5, [True] * 7 + [False]]
    assert (prompt.first, prompt.sequences, prompt.queries, prompt.mask) == (2, 1, 3, None)


def test_a_window_reads_only_its_blocks() -> None:
    planner = Planner(4, 1, frozenset([None, 5]), torch.float32, CPU)
    plan = planner.plan(decode([18]))
    whole, window = plan.groups[None][0], plan.groups[5][0]
    assert whole.rows.tolist() == [1, 2, 3, 4, 5]
    assert window.rows.tolist() == [4, 5]
    assert window.mask is not None
    # The token 18 and the four before it, of 12 to 19.
    assert (window.mask.flatten() == 0).tolist() == [False, False, True, True, True, True, True, False]


def test_a_prompt_longer_than_the_window_has_a_mask() -> None:
    planner = Planner(4, 1, frozenset([3]), torch.float32, CPU)
    short = planner.plan(Batch([1, 2, 3], [3], [0], [[1]], [2])).groups[3][0]
    long = planner.plan(Batch([1, 2, 3, 4], [4], [0], [[1]], [3])).groups[3][0]
    assert short.mask is None
    assert long.mask is not None
    assert (long.mask[0, 0] == 0).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]


def test_unlike_lengths_are_not_padded_to_the_longest() -> None:
    lengths = [group.sequences for group in FULL.plan(decode([4000, 30, 20, 3900, 10])).groups[None]]
    assert lengths == [3, 2]
    rows = [group.rows.numel() // (2 * group.sequences) for group in FULL.plan(decode([4000, 30])).groups[None]]
    assert rows == [8, 1001]
    assert [group.sequences for group in FULL.plan(decode([40, 41, 60, 70])).groups[None]] == [4]


def test_padding_for_a_graph() -> None:
    batch = decode([5, 90, 3])
    assert padded_size(batch, 4) == (4, 32)
    plan = FULL.plan(pad(batch, 4), 32)
    (group,) = plan.groups[None]
    assert plan.wanted.tolist() == [2, 3, 1, 0]
    assert plan.tokens[plan.wanted].tolist() == [10, 11, 12, 0]
    assert group.rows.numel() == 4 * 2 * 32
    assert group.mask is not None
    assert group.mask.shape == (4, 1, 1, 128)
    assert (group.mask == 0).sum((1, 2, 3)).tolist() == [1, 4, 6, 91]
    # Whoever pads writes where nobody reads.
    assert plan.places[:2].tolist() == [0, 4]


def test_what_is_not_for_graphs() -> None:
    assert padded_size(Batch([1, 2], [2], [0], [[1]], [1]), 4) is None
    assert padded_size(Batch([1, 2], [1, 1], [4, 4], [[1, 2], [3, 4]], [1]), 4) is None
    assert padded_size(decode([1] * 257), 4) is None
    assert padded_size(decode([1] * 33), 4) == (48, 16)
