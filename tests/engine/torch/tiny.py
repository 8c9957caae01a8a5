"""Tiny random models, made by transformers, and what both it and the runner say about the same tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastfront.engine.torch.batch import Batch
from fastfront.engine.torch.runner import Runner
from fastfront.engine.torch.settings import RunnerSettings

VOCAB = 131
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.3, "eos_token_id": 2,
    "bos_token_id": 1, "tie_word_embeddings": False,
}  # fmt: skip
#: Name -> the model's class and what is special about it.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}),
    "llama-head-dim": ("Llama", {"head_dim": 16}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5e3}}),
    "llama-llama3": ("Llama", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}}),
    "llama-yarn": ("Llama", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}}),
    "llama-yarn-mscale": ("Llama", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128, "mscale": 0.7,
        "mscale_all_dim": 1.1, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 37, "head_dim": 12}),
    "qwen2": ("Qwen2", {}),
    "qwen2-windows": ("Qwen2", {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3-bias": ("Qwen3", {"head_dim": 12, "attention_bias": True}),
}  # fmt: skip


def make(kind: str, folder: Path | None = None, **more: Any) -> Any:
    """A model of transformers in float32 with random weights, biases and norms; saved into `folder`."""
    import transformers

    family, special = KINDS[kind]
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **special})
    torch.manual_seed(len(kind))
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
    if folder is not None:
        model.save_pretrained(folder, **more)
    return model


def runner_for(model: Path, **settings: Any) -> Runner:
    """A runner on the CPU in float32."""
    return Runner(RunnerSettings(**{
        "model": model, "device": "cpu", "dtype": "float32", "num_gpu_blocks_override": 400, **settings
    }))  # fmt: skip


def prompts(seed: int, lengths: Sequence[int], vocab: int = VOCAB) -> list[list[int]]:
    """Random tokens."""
    rng = random.Random(seed)
    return [[rng.randrange(3, vocab) for _ in range(length)] for length in lengths]


class Cache:
    """Gives sequences blocks in a shuffled order."""

    def __init__(self, runner: Runner, seed: int = 0) -> None:
        self.size = runner.block_size
        self.free = list(range(1, runner.num_blocks))
        random.Random(seed).shuffle(self.free)

    def table(self, tokens: int) -> list[int]:
        """Blocks for so many tokens."""
        return [self.free.pop() for _ in range(-(-tokens // self.size))]


def feed(runner: Runner, sequences: Sequence[list[int]], tables: Sequence[list[int]], chunk: int) -> list[Tensor]:
    """The logits after every token, [tokens, vocab] of each sequence; all are fed `chunk` tokens a step."""
    found: list[list[Tensor]] = [[] for _ in sequences]
    done = 0
    while any(len(sequence) > done for sequence in sequences):
        at = [number for number, sequence in enumerate(sequences) if len(sequence) > done]
        parts = [sequences[number][done : done + chunk] for number in at]
        flat = [token for part in parts for token in part]
        logits = runner.run(
            Batch(flat, [len(part) for part in parts], [done] * len(at), [tables[number] for number in at],
                  list(range(len(flat))))
        )  # fmt: skip
        for number, rows in zip(at, torch.split(logits.clone(), [len(part) for part in parts]), strict=True):
            found[number].append(rows)
        done += chunk
    return [torch.cat(rows) for rows in found]


def greedy(runner: Runner, starts: Sequence[list[int]], count: int) -> tuple[list[list[int]], list[Tensor]]:
    """The sequences with `count` more tokens, and the log-probabilities [count, vocab] that these were taken from."""
    cache = Cache(runner)
    tables = [cache.table(len(start) + count) for start in starts]
    sequences = [list(start) for start in starts]
    rows: list[list[Tensor]] = [[] for _ in starts]
    todo = sequences
    context = [0] * len(starts)
    for _ in range(count):
        ends = torch.tensor([len(part) for part in todo]).cumsum(0) - 1
        flat = [token for part in todo for token in part]
        logits = runner.run(Batch(flat, [len(part) for part in todo], context, tables, ends.tolist()))
        context = [before + len(part) for before, part in zip(context, todo, strict=True)]
        todo = []
        for sequence, row, kept in zip(sequences, logits.log_softmax(-1), rows, strict=True):
            kept.append(row)
            sequence.append(int(row.argmax()))
            todo.append(sequence[-1:])
    return sequences, [torch.stack(kept) for kept in rows]


@torch.no_grad()
def reference(model: Any, sequence: Sequence[int], count: int) -> Tensor:
    """transformers' log-probabilities [count, vocab] that the last `count` tokens are to be taken from."""
    logits: Tensor = model(torch.tensor([list(sequence[:-1])])).logits
    return logits[0, -count:].float().log_softmax(-1)


def check(model: Any, runner: Runner, starts: Sequence[list[int]], count: int, within: float = 1e-3) -> None:
    """Greedy tokens are those of transformers, and log-probabilities as near as that."""
    sequences, found = greedy(runner, starts, count)
    for sequence, rows in zip(sequences, found, strict=True):
        expected = reference(model, sequence, count)
        assert expected.argmax(-1).tolist() == sequence[-count:]
        assert (rows - expected).abs().max().item() < within
