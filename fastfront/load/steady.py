"""The steady state of a run with a concurrency limit: its figures without the filling at the start and the draining."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from fastfront.load.metrics import SHOWN, Stats, stats
from fastfront.load.options import Load
from fastfront.load.record import Record


class Steady(NamedTuple):
    """The window (seconds after the run's start), what happened in it, and per second of it; `warning` or ""."""

    start: float
    end: float
    wish: int
    threshold: float
    needed: int
    peak: int
    started: int
    completed: int
    total: int
    warning: str
    request_throughput: float
    input_throughput: float
    output_throughput: float
    ttft: Stats
    tpot: Stats

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.start


def steady_state(records: Sequence[Record], began: float, duration: float, load: Load) -> Steady | None:
    """From when `steady_threshold` of the requests first run at once until fewer do for good; None if they never do.

    Requests that begin in the window give the times, those that end in it the rate; tokens count when they come.
    """
    wish, threshold = load.traffic.max_concurrency, load.wanted.steady_threshold
    if wish is None or threshold is None or not math.isinf(load.traffic.rate) or load.traffic.ramp is not None:
        return None
    needed = math.ceil(wish * threshold)
    good = [record for record in records if not record.error]
    window, peak = _window(good, needed)
    if window is None:
        return None
    start, end = window
    inside = [record for record in good if start <= record.start <= end]
    ended = sum(start <= record.times[-1] < end for record in good)
    events = sum(bisect_right(record.times, end) - bisect_left(record.times, start) for record in good)
    # One event may hold several tokens: each counts as its share of the answer's.
    total_events = sum(len(record.times) for record in good)
    tokens = events * sum(record.output_tokens for record in good) / total_events
    long = end - start
    percentiles = tuple(dict.fromkeys((*load.wanted.percentiles, *SHOWN)))
    return Steady(
        start=start - began, end=end - began, wish=wish, threshold=threshold, needed=needed, peak=peak,
        started=len(inside), completed=ended, total=len(good), warning=_warning(long, duration, load),
        request_throughput=ended / long, output_throughput=tokens / long,
        input_throughput=sum(record.prompt_tokens for record in inside) / long,
        ttft=stats([record.ttft for record in inside], percentiles),
        tpot=stats([record.tpot for record in inside if record.output_tokens > 1], percentiles),
    )  # fmt: skip


def _window(records: Sequence[Record], needed: int) -> tuple[tuple[float, float] | None, int]:
    """When at least `needed` first ran at once and when they last did, and the most that ever did."""
    changes = [(record.start, 1) for record in records] + [(record.times[-1], -1) for record in records]
    alive = peak = 0
    start = end = None
    for time, change in sorted(changes):
        if change < 0 and alive == needed:
            end = time
        alive += change
        peak = max(peak, alive)
        if start is None and alive >= needed:
            start = time
    if start is None or end is None or end <= start:
        return None, peak
    return (start, end), peak


def _warning(long: float, duration: float, load: Load) -> str:
    least = load.wanted.steady_least
    if long >= (max(10.0, 0.1 * duration) if least is None else least):
        return ""
    share = 100 * long / duration if duration > 0 else 0.0
    return f"steady-state window is {long:.1f}s ({share:.1f}% of run); may not be representative"
