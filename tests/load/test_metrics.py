"""The figures of scripted timelines, to the last digit; vLLM's definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from fastfront.load.metrics import Stats, percentile, stats, summarize
from fastfront.load.options import Load, Target, Traffic, Wanted
from fastfront.load.record import Record
from fastfront.load.steady import steady_state


def record(start: float, times: Sequence[float], tokens: int, prompt: int = 10, due: float = 0.0) -> Record:
    made = Record(prompt, due or start)
    made.start = start
    made.times.extend(times)
    made.output_tokens = tokens
    return made


def failed(start: float) -> Record:
    made = record(start, [], 0)
    made.error = "HTTP 500"
    return made


def test_one_request() -> None:
    one = record(10.0, [10.5, 10.75, 11.5], tokens=5, due=9.75)
    assert (one.ttft, one.latency, one.tpot, one.itls, one.queued) == (0.5, 1.5, 0.25, [0.25, 0.75], 0.25)
    assert record(1.0, [1.5], 1).tpot == 0.0
    assert (failed(1.0).ttft, failed(1.0).latency, failed(1.0).itls) == (0.0, 0.0, [])


def test_a_run() -> None:
    """Three requests: five tokens in three events, one token, and a failure, which counts in nothing else."""
    records = [record(0.0, [0.5, 0.75, 1.5], tokens=5), record(0.25, [1.25], tokens=1, prompt=30), failed(0.5)]
    found = summarize(records, 2.0, Wanted(percentiles=(50.0, 99.0)))
    assert (found.completed, found.failed, found.input_tokens, found.output_tokens) == (2, 1, 40, 6)
    assert (found.request_throughput, found.input_throughput) == (1.0, 20.0)
    assert (found.output_throughput, found.total_throughput, found.goodput) == (3.0, 23.0, None)
    assert found.stats["ttft"].mean == 750.0
    assert found.stats["ttft"].std == 250.0
    assert found.stats["ttft"].percentiles == pytest.approx({50.0: 750.0, 99.0: 995.0, 90.0: 950.0})
    assert found.stats["tpot"] == Stats(250.0, 250.0, 0.0, {50.0: 250.0, 99.0: 250.0, 90.0: 250.0})
    assert (found.stats["itl"].mean, found.stats["itl"].median) == (500.0, 500.0)
    assert found.stats["e2el"].mean == 1250.0


def test_peaks_are_those_of_whole_seconds() -> None:
    records = [record(100.0, [100.1, 100.9, 101.0], 3), record(101.5, [101.6], 1), record(103.0, [103.5], 1)]
    found = summarize(records, 4.0, Wanted())
    assert (found.peak_output, found.peak_requests) == (2.0, 2)


def test_goodput() -> None:
    records = [record(0.0, [0.1, 0.2], 2), record(0.0, [0.3, 0.4], 2), record(0.0, [0.1], 1), failed(0.0)]
    limits = {"ttft": 150.0, "tpot": 50.0}
    # The first is too slow a token, the second too late; one token has no TPOT.
    assert summarize(records, 2.0, Wanted(goodput=limits)).goodput == 0.5
    assert summarize(records, 2.0, Wanted(goodput={"e2el": 1000.0})).goodput == 1.5


def test_nothing_answered() -> None:
    found = summarize([failed(0.0)], 1.0, Wanted(goodput={"ttft": 1.0}))
    assert (found.completed, found.failed, found.goodput, found.peak_output, found.peak_requests) == (0, 1, 0.0, 0.0, 0)
    assert found.stats["ttft"] == Stats(0.0, 0.0, 0.0, {99.0: 0.0, 50.0: 0.0, 90.0: 0.0})


def test_percentiles_lie_between_their_neighbours() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    assert [percentile(values, p) for p in (0, 25, 50, 90, 100)] == pytest.approx([1.0, 1.75, 3.0, 6.8, 8.0])
    assert percentile([3.0], 99) == 3.0
    assert stats([0.003, 0.001], (50.0,)).mean == 2.0


def steady(records: list[Record], wanted: Wanted, rate: float = math.inf) -> object:
    return steady_state(records, 0.0, 10.0, load(wanted, rate))


def load(wanted: Wanted, rate: float = math.inf) -> Load:
    return Load(target=Target(), traffic=Traffic(rate=rate, max_concurrency=2), wanted=wanted)


def test_the_steady_state() -> None:
    """Two at a time: both run from 1 s on, and for the last time until 9 s."""
    records = [
        record(0.0, [2.0, 4.0], 4), record(1.0, [3.0, 6.0], 2), record(4.0, [5.0, 9.0], 2), record(6.0, [7.0, 10.0], 2)
    ]  # fmt: skip
    found = steady_state(records, 0.0, 10.0, load(Wanted(steady_least=5.0)))
    assert found is not None
    assert (found.start, found.end, found.needed, found.peak, found.warning) == (1.0, 9.0, 2, 2, "")
    assert (found.started, found.completed, found.total) == (3, 2, 4)
    assert found.request_throughput == 2 / 8
    assert found.input_throughput == 30 / 8
    assert found.output_throughput == pytest.approx(7 * 10 / 8 / 8)
    assert found.ttft.mean == pytest.approx(4000 / 3)
    short = steady_state(records, 0.0, 10.0, load(Wanted()))
    assert short is not None
    assert short.warning == "steady-state window is 8.0s (80.0% of run); may not be representative"


def test_no_steady_state() -> None:
    alone = [record(0.0, [1.0], 1), record(2.0, [3.0], 1)]
    assert steady(alone, Wanted()) is None
    both = [record(0.0, [1.0], 1), record(0.5, [2.0], 1)]
    assert steady(both, Wanted()) is not None
    assert steady(both, Wanted(steady_threshold=None)) is None
    assert steady(both, Wanted(), rate=5.0) is None
    assert steady([failed(0.0)], Wanted()) is None
