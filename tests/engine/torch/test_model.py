"""Every family and variant says what transformers says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fastfront.engine.torch.batch import Batch
from tests.engine.torch.tiny import KINDS, Cache, check, feed, make, prompts, reference, runner_for

MIXED = [1, 2, 15, 16, 17, 33, 64, 90]


@pytest.mark.parametrize("kind", KINDS)
def test_says_what_transformers_says(kind: str, tmp_path: Path) -> None:
    model = make(kind, tmp_path)
    runner = runner_for(tmp_path)
    check(model, runner, prompts(1, [70]), 12)
    check(model, runner, prompts(2, MIXED), 6)


def test_many_sequences_of_mixed_lengths(tmp_path: Path) -> None:
    check(make("mistral-window", tmp_path), runner_for(tmp_path), prompts(3, [3 + 5 * n for n in range(32)]), 8)


@pytest.mark.parametrize("kind", ["llama", "mistral-window", "qwen2-windows"])
@pytest.mark.parametrize("block_size", [8, 16])
def test_chunks_are_as_good_as_whole_prompts(kind: str, block_size: int, tmp_path: Path) -> None:
    make(kind, tmp_path)
    runner = runner_for(tmp_path, block_size=block_size)
    cache = Cache(runner)
    sequences = prompts(4, [50, 81, 7])
    whole = feed(runner, sequences, [cache.table(90) for _ in sequences], 90)
    for chunk in (1, 5, 16, 40):
        parts = feed(runner, sequences, [cache.table(90) for _ in sequences], chunk)
        for expected, found in zip(whole, parts, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_decoding_beside_prefill_in_any_order(tmp_path: Path) -> None:
    """One step with a fresh prompt, a chunk of another and two that decode, of which only some rows are wanted."""
    model = make("llama", tmp_path)
    runner = runner_for(tmp_path)
    cache = Cache(runner)
    sequences = prompts(5, [40, 30, 25, 60])
    tables = [cache.table(64) for _ in sequences]
    known = [20, 29, 0, 59]
    for sequence, table, count in zip(sequences, tables, known, strict=True):
        if count:
            feed(runner, [sequence[:count]], [table], 64)
    lengths = [len(sequence) - count for sequence, count in zip(sequences, known, strict=True)]
    flat = [token for sequence, count in zip(sequences, known, strict=True) for token in sequence[count:]]
    ends = [19, 20, 45, 46]
    logits = runner.run(Batch(flat, lengths, known, tables, ends)).log_softmax(-1)
    for sequence, row in zip(sequences, logits, strict=True):
        torch.testing.assert_close(row, reference(model, [*sequence, 0], 1)[0], rtol=0, atol=1e-3)


def test_sequences_share_the_blocks_of_their_beginning(tmp_path: Path) -> None:
    model = make("qwen3", tmp_path)
    runner = runner_for(tmp_path)
    cache = Cache(runner)
    start = prompts(6, [32])[0]
    shared = cache.table(32)
    feed(runner, [start], [shared], 32)
    ends = prompts(7, [9, 1, 20])
    flat = [token for end in ends for token in end]
    tables = [shared + cache.table(24) for _ in ends]
    logits = runner.run(Batch(flat, [9, 1, 20], [32] * 3, tables, [8, 9, 29])).log_softmax(-1)
    for end, row in zip(ends, logits, strict=True):
        torch.testing.assert_close(row, reference(model, [*start, *end, 0], 1)[0], rtol=0, atol=1e-3)


def test_a_step_of_which_no_logits_are_wanted(tmp_path: Path) -> None:
    make("llama", tmp_path)
    runner = runner_for(tmp_path)
    logits = runner.run(Batch([5, 6, 7], [3], [0], [Cache(runner).table(3)], []))
    assert logits.shape == (0, 131)
    assert logits.dtype == torch.float32


def test_running_a_batch_again_gives_the_same(tmp_path: Path) -> None:
    make("llama", tmp_path)
    runner = runner_for(tmp_path)
    batch = Batch(prompts(8, [20])[0], [20], [0], [Cache(runner).table(20)], [0, 19])
    assert torch.equal(runner.run(batch).clone(), runner.run(batch))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_near(dtype: str, tmp_path: Path) -> None:
    """Of 16 bits' numbers no more can be asked than that the probabilities are alike."""
    make("llama", tmp_path)
    exact, rough = runner_for(tmp_path), runner_for(tmp_path, dtype=dtype)
    sequences = prompts(9, [10, 40, 23])
    cache = Cache(exact)
    whole = feed(exact, sequences, [cache.table(40) for _ in sequences], 40)
    for chunk in (1, 16, 40):
        cache = Cache(rough)
        found = feed(rough, sequences, [cache.table(40) for _ in sequences], chunk)
        for expected, rows in zip(whole, found, strict=True):
            assert (expected.softmax(-1) - rows.softmax(-1)).abs().max().item() < 0.1


@pytest.mark.peer
@pytest.mark.parametrize("count", [1, 32])
def test_smollm2(peers: Path, count: int) -> None:
    from transformers import AutoModelForCausalLM

    folder = peers / "models" / "smollm2"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    runner = runner_for(folder)
    check(model, runner, prompts(10, [24 - n % 20 for n in range(count)], runner.vocab_size), 5)
