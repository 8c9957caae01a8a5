"""Runs a model step by step: what the scheduler, which knows sequences and blocks, has of all the tensors below."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Collection

import torch
from torch import Tensor

from fastfront.engine.torch.attention import Cache
from fastfront.engine.torch.batch import Batch
from fastfront.engine.torch.checkpoint import open_checkpoint
from fastfront.engine.torch.device import choose_device, choose_dtype, limit_threads, out_of_memory
from fastfront.engine.torch.graphs import Graphs
from fastfront.engine.torch.memory import cache_size, check_weights, make_cache
from fastfront.engine.torch.model import Decoder
from fastfront.engine.torch.plan import Plan, Planner
from fastfront.engine.torch.settings import RunnerSettings
from fastfront.engine.torch.shape import Shape
from fastfront.engine.torch.weights import Progress, Weights
from fastfront.errors import StartError

log = logging.getLogger(__name__)


class Runner:
    """A loaded model and its cache."""

    device: torch.device
    dtype: torch.dtype
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    block_size: int
    #: Blocks of the cache, of which block 0 is nobody's (batch.PAD_BLOCK).
    num_blocks: int
    #: Tokens of one sequence at most, those of its prompt included.
    max_model_len: int

    def __init__(self, settings: RunnerSettings, progress: Progress | None = None) -> None:
        """Loads the model; `progress` is told of each tensor. StartError if it cannot be loaded or memory is short."""
        self.device = choose_device(settings.device)
        if self.device.type == "cpu":
            limit_threads()
        self._settings = settings
        self._model: Decoder | None = None
        self._cache: Cache | None = None
        self._graphs: Graphs | None = None
        self._shape = self._load(progress)
        self.vocab_size = self._shape.vocab_size
        self.eos_token_ids = self._shape.eos_token_ids
        self.block_size = settings.block_size
        self.num_blocks, self.max_model_len = cache_size(
            self._shape, settings, self.device, self.dtype, _length(self._shape, settings)
        )
        self._planner = Planner(
            self.block_size, self._shape.num_kv_heads, frozenset(self._shape.windows), self.dtype, self.device
        )
        self._make_cache()

    @torch.inference_mode()
    def run(self, batch: Batch) -> Tensor:
        """Puts the batch's tokens into the cache; logits [len(batch.logits_rows), vocab_size] in float32.

        The tensor is the caller's to change until the next run. Running a batch again gives the same.
        """
        begun = self._planner.begun(batch)
        if begun is not None and self._cache is not None:
            self._cache.clear(begun)
        if self._graphs is not None:
            logits = self._graphs.run(batch)
            if logits is not None:
                return logits
        return self._compute(self._planner.plan(batch))

    def sleep(self, level: int = 1) -> None:
        """Gives the cache and the weights back; the files are the copy that either level (1, 2) wakes from."""
        self._model, self._cache, self._graphs = None, None, None
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def wake(self, tags: Collection[str] | None = None) -> None:
        """Takes `weights`, `kv_cache` or, with None, both again, the cache empty; StartError as at the start."""
        if self._model is None and (tags is None or "weights" in tags):
            self._load(None)
        if self._cache is None and (tags is None or "kv_cache" in tags):
            self._make_cache()

    def _load(self, progress: Progress | None) -> Shape:
        began = time.monotonic()
        checkpoint = open_checkpoint(self._settings.model)
        try:
            shape = checkpoint.shape
            self.dtype = choose_dtype(self._settings.dtype, shape.dtype, self.device)
            check_weights(shape, self.device, self.dtype)
            self._model = Decoder(
                Weights(checkpoint, self.device, self.dtype, progress), _length(shape, self._settings)
            )
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise StartError(
                f"too little memory on {self.device} for the weights, or for positions up to the length of a sequence "
                f"(--max-model-len lowers it): {error}"
            ) from error
        finally:
            checkpoint.close()
        log.info(
            "loaded %s as %s on %s in %.1f s",
            self._settings.model.name, str(self.dtype).removeprefix("torch."), self.device, time.monotonic() - began,
        )  # fmt: skip
        return shape

    @torch.inference_mode()
    def _make_cache(self) -> None:
        self._cache = make_cache(self._shape, self.num_blocks, self.block_size, self.device, self.dtype)
        if self.device.type == "cuda" and not self._settings.enforce_eager:
            self._graphs = Graphs(self._planner, self._compute, self.num_blocks)

    def _compute(self, plan: Plan) -> Tensor:
        if self._model is None or self._cache is None:
            raise RuntimeError("the model sleeps")
        return self._model(plan, self._cache.layers)


def _length(shape: Shape, settings: RunnerSettings) -> int:
    """Tokens of one sequence at most, before memory is asked; StartError."""
    if settings.max_model_len is None:
        return shape.max_length
    if settings.max_model_len > shape.max_length:
        raise StartError(
            f"--max-model-len {settings.max_model_len} is more than the model was made for: {shape.max_length}"
        )
    return settings.max_model_len
