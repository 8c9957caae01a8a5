"""The figures of a run, as vLLM's benchmark defines them: TTFT, TPOT, ITL, E2EL, throughputs, goodput and peaks."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from fastfront.load.options import Wanted
from fastfront.load.record import Record

#: Key -> short name, long name. The last two are told only where they are asked for.
NAMES = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
    "client_queue_time": ("Client Queue Time", "Client-side Queueing"),
    "e2el_including_client_queue": ("E2EL incl. Client Queue", "Queue-inclusive End-to-end Latency"),
}
#: Percentiles that tables over several runs show, whatever else is asked for.
SHOWN = (50.0, 90.0)


class Stats(NamedTuple):
    """One metric in milliseconds; zeros where there is no value. `percentiles` by their number."""

    mean: float
    median: float
    std: float
    percentiles: dict[float, float]


class Summary(NamedTuple):
    """A run in figures: seconds, tokens, and milliseconds by metric. The peaks are those of whole seconds."""

    duration: float
    completed: int
    failed: int
    input_tokens: int
    output_tokens: int
    goodput: float | None
    peak_output: float
    peak_requests: int
    stats: dict[str, Stats]

    def rate(self, count: int) -> float:
        """`count` a second."""
        return count / self.duration if self.duration > 0 else 0.0

    @property
    def request_throughput(self) -> float:
        """Requests a second that were answered."""
        return self.rate(self.completed)

    @property
    def input_throughput(self) -> float:
        """Prompt tokens a second."""
        return self.rate(self.input_tokens)

    @property
    def output_throughput(self) -> float:
        """Generated tokens a second."""
        return self.rate(self.output_tokens)

    @property
    def total_throughput(self) -> float:
        """Both, a second."""
        return self.rate(self.input_tokens + self.output_tokens)


def summarize(records: Sequence[Record], duration: float, wanted: Wanted) -> Summary:
    """The figures of `records`, which took `duration` seconds; only answered requests count, but as failed."""
    good = [record for record in records if not record.error]
    percentiles = tuple(dict.fromkeys((*wanted.percentiles, *SHOWN)))
    values = {
        "ttft": [record.ttft for record in good],
        "tpot": [record.tpot for record in good if record.output_tokens > 1],
        "itl": gaps(good),
        "e2el": [record.latency for record in good],
        "client_queue_time": [record.queued for record in good],
        "e2el_including_client_queue": [record.latency + record.queued for record in good],
    }
    tokens, requests = _peaks(good)
    within = sum(_is_good(record, wanted.goodput) for record in good)
    return Summary(
        duration=duration,
        completed=len(good),
        failed=len(records) - len(good),
        input_tokens=sum(record.prompt_tokens for record in good),
        output_tokens=sum(record.output_tokens for record in good),
        goodput=within / duration if wanted.goodput and duration > 0 else None,
        peak_output=tokens,
        peak_requests=requests,
        stats={name: stats(these, percentiles) for name, these in values.items()},
    )


def gaps(records: Sequence[Record]) -> array[float]:
    """All seconds between events, in one array: there may be millions."""
    out: array[float] = array("d")
    for record in records:
        out.extend(record.itls)
    return out


def stats(values: Sequence[float], percentiles: Sequence[float]) -> Stats:
    """Of seconds, in milliseconds."""
    if not values:
        return Stats(0.0, 0.0, 0.0, dict.fromkeys(percentiles, 0.0))
    ordered = array("d", sorted(values))
    mean = math.fsum(ordered) / len(ordered)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / len(ordered))
    found = {p: percentile(ordered, p) * 1000 for p in percentiles}
    return Stats(mean * 1000, percentile(ordered, 50) * 1000, std * 1000, found)


def percentile(ordered: Sequence[float], p: float) -> float:
    """The p-th percentile of rising values, between its neighbours in proportion (numpy's default)."""
    at = (len(ordered) - 1) * p / 100
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _is_good(record: Record, limits: dict[str, float]) -> bool:
    """Whether a request keeps every limit (ms); a single token has a TPOT of 0."""
    is_at = {"ttft": record.ttft, "tpot": record.tpot, "e2el": record.latency}
    return all(is_at[name] * 1000 <= limit for name, limit in limits.items())


def _peaks(records: Sequence[Record]) -> tuple[float, int]:
    """The most events in a second, and the most requests alive in one; seconds count from the first request."""
    if not records:
        return 0.0, 0
    began = min(record.start for record in records)
    seconds = math.ceil(max(record.start + record.latency for record in records) - began) + 1
    tokens, starts = [0] * seconds, [0] * (seconds + 1)
    for record in records:
        for time in record.times:
            tokens[int(time - began)] += 1
        starts[int(record.start - began)] += 1
        starts[int(record.start + record.latency - began) + 1] -= 1
    alive = most = 0
    for change in starts:
        alive += change
        most = max(most, alive)
    return float(max(tokens)), most
