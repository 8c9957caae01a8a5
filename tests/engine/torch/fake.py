"""An engine over a model of nothing but hashes: each token follows from all before it, as the cache has them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from fastfront.engine.rank.request import Add, decode_add
from fastfront.engine.torch.batch import PAD_BLOCK, Batch
from fastfront.engine.torch.engine import Engine
from fastfront.engine.torch.guided import Guided
from tests.engine.front import add as fields_of

VOCAB = 96


def logits_after(tokens: Iterable[int], vocab: int = VOCAB) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the model says after these tokens."""
    digest = hashlib.blake2b(array("I", tokens).tobytes(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little")).standard_normal(vocab).astype(np.float32) * 2


def greedy(prompt: list[int], count: int, vocab: int = VOCAB) -> list[int]:
    """The likeliest answer, found without an engine."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_after(tokens, vocab).argmax()))
    return tokens[len(prompt) :]


class FakeRunner:
    """Its cache holds the tokens themselves; `on_run` may look at a batch, or raise."""

    def __init__(
        self, num_blocks: int = 40, block_size: int = 4, max_model_len: int = 100, vocab_size: int = VOCAB
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.vocab_size = vocab_size
        self.cache = np.full((num_blocks, block_size), -1)
        self.batches: list[Batch] = []
        self.on_run: Callable[[Batch], None] = lambda batch: None
        self.calls: list[tuple[str, Any]] = []

    def run(self, batch: Batch) -> Tensor:
        """Writes the batch's tokens into their blocks, and says what follows from what is there."""
        self.batches.append(batch)
        self.on_run(batch)
        assert len(batch.query_lens) == len(batch.context_lens) == len(batch.block_tables)
        assert sum(batch.query_lens) == len(batch.token_ids)
        owners = []
        at = 0
        for count, context, table in zip(batch.query_lens, batch.context_lens, batch.block_tables, strict=True):
            assert PAD_BLOCK not in table and len(set(table)) == len(table)
            for place in range(context, context + count):
                self.cache[table[place // self.block_size], place % self.block_size] = batch.token_ids[at]
                owners.append((table, place))
                at += 1
        rows = [self._row(*owners[row]) for row in batch.logits_rows]
        return torch.from_numpy(np.stack(rows)) if rows else torch.empty(0, self.vocab_size)

    def _row(self, table: list[int], place: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return logits_after(self.cache[table].reshape(-1)[: place + 1].tolist(), self.vocab_size)

    def sleep(self, level: int) -> None:
        """Forgets its cache."""
        self.cache[:] = -1
        self.calls.append(("sleep", level))

    def wake(self, tags: list[str] | None) -> None:
        """Notes it."""
        self.calls.append(("wake", tags))


def adding(
    name: str,
    prompt: list[int],
    *,
    priority: int = 0,
    salt: str | None = None,
    reasoning_ended: bool | None = None,
    **params: Any,
) -> Add:
    """A request as it comes in; greedy unless it says otherwise."""
    fields = fields_of(name, prompt=prompt, **{"temperature": 0.0, **params})
    fields[7] = salt
    return decode_add(msgspec.msgpack.encode([*fields, priority, None, False, None, reasoning_ended]))


class Bench:
    """An engine and what its requests have got; `model` is where a tokenizer lies, for grammars."""

    def __init__(self, runner: FakeRunner | None = None, model: Path = Path("/nowhere"), **options: Any) -> None:
        self.runner = runner or FakeRunner()
        self.said: list[str] = []
        options = {"max_num_seqs": 8, "max_num_batched_tokens": 32, "say": self.said.append, **options}
        self.engine = Engine(self.runner, Guided(model, self.runner.vocab_size, lambda: None), **options)
        #: request -> all its outputs, filled up to 18 places.
        self.outputs: dict[str, list[list[Any]]] = {}
        self.stats: list[dict[str, Any]] = []
        self.frames: list[list[bytes]] = []

    def add(self, name: str, prompt: list[int], **options: Any) -> None:
        """Adds a request."""
        self._take(self.engine.add(adding(name, prompt, **options)))

    def step(self) -> None:
        """One step."""
        self._take(self.engine.step())

    def run(self, most: int = 2000) -> None:
        """Steps until nothing is left to do."""
        while self.engine.runnable:
            self.step()
            most -= 1
            assert most, "it does not end"

    def _take(self, messages: list[tuple[int, list[bytes]]]) -> None:
        for _, frames in messages:
            message = msgspec.msgpack.decode(frames[0])
            self.frames.append(frames)
            if message[2]:
                self.stats.append(message[2])
            for output in message[1]:
                self.outputs.setdefault(output[0], []).append(output)

    def tokens(self, name: str) -> list[int]:
        """All tokens of an answer."""
        return [token for output in self.outputs.get(name, ()) for token in output[1]]

    def finish(self, name: str) -> tuple[int | None, Any]:
        """How a request has ended, and why."""
        last = self.outputs[name][-1]
        return last[5], last[6]

    def check_empty(self) -> None:
        """Nothing is left, and no block is held."""
        assert self.engine.unfinished == 0
        assert self.engine.pool.free == self.engine.pool.size
        assert not self.engine.scheduler.running and not self.engine.scheduler.waiting
