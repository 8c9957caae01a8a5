"""What is counted for Prometheus: all that vLLM's Python frontend counts and that can be counted here now.

Everything is counted once per request or per engine statistics message, nothing per token. Counting is adding to plain
numbers, since a request is served in less time than `prometheus_client`'s own instruments take to count it; that
library writes them out (`exposition.py`), and only a scrape pays for it.

Several processes may serve one port: each counts alone, and the one that is scraped renders the sum of its own counts
and the others' snapshots.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import fsum, inf
from typing import TypeVar

import msgspec

from fastfront.flow import FINISH_REASONS

K = TypeVar("K")

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_WHOLE = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


def token_buckets(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to `most` (tokens)."""
    steps = (step * 10**power for power in range(len(str(most))) for step in (1, 2, 5))
    return tuple(float(bound) for bound in steps if bound <= most)


def _united(parts: Iterable[dict[K, int]]) -> dict[K, int]:
    """All keys, each with the sum of its numbers."""
    out: dict[K, int] = {}
    for part in parts:
        for key, count in part.items():
            out[key] = out.get(key, 0) + count
    return out


class Histogram(msgspec.Struct, forbid_unknown_fields=True):
    """How many values fell at or below each bound and not below the one before, and their sum."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Histogram:
        """No value yet."""
        return cls(bounds, [0] * (len(bounds) + 1), 0.0)

    @classmethod
    def sum(cls, parts: Sequence[Histogram]) -> Histogram:
        """A new one with the values of all `parts`; ValueError unless they have the same bounds."""
        bounds = parts[0].bounds
        if any(part.bounds != bounds for part in parts):
            raise ValueError("histograms with different bounds cannot be added")
        counts = [sum(column) for column in zip(*(part.counts for part in parts), strict=True)]
        # Exact, so the same in any order: a sum that shrank by its last bit when another process is scraped would be
        # taken for a restart.
        return cls(bounds, counts, fsum(part.total for part in parts))

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class EngineCounts(msgspec.Struct, forbid_unknown_fields=True):
    """What is counted for one engine; totals of the sizes are the tokens of all its requests."""

    success: dict[str, int]
    #: What the engine last told of itself, and when (time.monotonic: one clock for all processes of a machine).
    running: int
    waiting: int
    cache: float
    heard: float
    first_token: Histogram
    whole: Histogram
    prompt_size: Histogram
    generated_size: Histogram

    @classmethod
    def empty(cls, sizes: tuple[float, ...]) -> EngineCounts:
        """Nothing counted, never heard of; `sizes` are the bounds for numbers of tokens."""
        return cls(
            success=dict.fromkeys(FINISH_REASONS, 0),
            running=0,
            waiting=0,
            cache=0.0,
            heard=-inf,
            first_token=Histogram.empty(_FIRST_TOKEN),
            whole=Histogram.empty(_WHOLE),
            prompt_size=Histogram.empty(sizes),
            generated_size=Histogram.empty(sizes),
        )

    @classmethod
    def sum(cls, parts: Sequence[EngineCounts]) -> EngineCounts:
        """New counts of all that `parts` counted; what the engine tells of itself is what was heard last."""
        latest = max(parts, key=lambda part: part.heard)
        return cls(
            success=_united(part.success for part in parts),
            running=latest.running,
            waiting=latest.waiting,
            cache=latest.cache,
            heard=latest.heard,
            first_token=Histogram.sum([part.first_token for part in parts]),
            whole=Histogram.sum([part.whole for part in parts]),
            prompt_size=Histogram.sum([part.prompt_size for part in parts]),
            generated_size=Histogram.sum([part.generated_size for part in parts]),
        )


class Counts(msgspec.Struct, forbid_unknown_fields=True):
    """What one process has counted since `created` (Unix time); `answers` by method, route and status."""

    created: float
    engines: dict[int, EngineCounts]
    answers: dict[tuple[str, str, int], int]

    @classmethod
    def sum(cls, parts: Sequence[Counts]) -> Counts:
        """New counts of all that `parts` counted."""
        known = dict.fromkeys(index for part in parts for index in part.engines)
        return cls(
            created=min(part.created for part in parts),
            engines={
                index: EngineCounts.sum([part.engines[index] for part in parts if index in part.engines])
                for index in known
            },
            answers=_united(part.answers for part in parts),
        )


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Counts)


def _read(snapshot: bytes) -> Counts:
    try:
        return _DECODER.decode(snapshot)
    except msgspec.DecodeError as error:
        raise ValueError(f"this is no snapshot of this version's metrics: {error}") from error


class Metrics:
    """What one process counts for a served model of `max_model_len` tokens; `engines` have series from the start.

    Unless it is `alone`, what describes a single process (python_*, process_*) is left out of the exposition.
    """

    def __init__(
        self, model_name: str, max_model_len: int, engines: Iterable[int] = (0,), *, alone: bool = True
    ) -> None:
        self.model_name = model_name
        self._sizes = token_buckets(max_model_len)
        self._counts = Counts(time.time(), {index: EngineCounts.empty(self._sizes) for index in engines}, {})
        self._alone = alone

    def _add(self, engine: int) -> EngineCounts:
        added = self._counts.engines[engine] = EngineCounts.empty(self._sizes)
        return added

    def observe_scheduler(self, engine: int, running: int, waiting: int, kv_cache_usage: float) -> None:
        """The engine's own statistics; `kv_cache_usage` 0 to 1."""
        series = self._counts.engines.get(engine) or self._add(engine)
        series.running = running
        series.waiting = waiting
        series.cache = kv_cache_usage
        series.heard = time.monotonic()

    def observe_first_token(self, engine: int, seconds: float) -> None:
        """A request's first output came `seconds` after it arrived."""
        series = self._counts.engines.get(engine) or self._add(engine)
        series.first_token.observe(seconds)

    def observe_finished(
        self, engine: int, finish_reason: str, prompt_tokens: int, generated_tokens: int, seconds: float
    ) -> None:
        """A request ended (`finish_reason` of flow.FINISH_REASONS) `seconds` after it arrived."""
        series = self._counts.engines.get(engine) or self._add(engine)
        series.success[finish_reason] += 1
        series.whole.observe(seconds)
        series.prompt_size.observe(prompt_tokens)
        series.generated_size.observe(generated_tokens)

    def observe_http(self, method: str, handler: str, status: int) -> None:
        """One HTTP answer; `handler` is the route's path or `none`, never what a client sent (that has no end)."""
        answers = self._counts.answers
        key = (method if method in _METHODS else "OTHER", handler, status)
        answers[key] = answers.get(key, 0) + 1

    def snapshot(self) -> bytes:
        """What has been counted until now, for another process's `render`: Counts as msgpack."""
        return _ENCODER.encode(self._counts)

    def render(self, accept: str, others: Iterable[bytes] = ()) -> tuple[str, bytes]:
        """Content type and text of the sum of own counts and the snapshots `others`, in the form `accept` asks for.

        ValueError for a snapshot of another version or another model's length.
        """
        # Not before: with it come an HTTP server and client, 2.5 MiB.
        from fastfront.exposition import expose

        counts = Counts.sum([self._counts, *map(_read, others)])
        return expose(self.model_name, counts, accept, alone=self._alone)
