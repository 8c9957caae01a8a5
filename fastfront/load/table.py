"""The printed table of a run: line for line as vLLM's benchmark prints it, for scripts that read it."""

from __future__ import annotations

from collections.abc import Sequence

from fastfront.load.metrics import NAMES, Stats, Summary
from fastfront.load.options import Load, Wanted
from fastfront.load.record import Record
from fastfront.load.steady import Steady

WIDTH = 60
_STEADY_WIDTH = 47
#: Most different errors that are told.
_ERRORS = 10


def table(summary: Summary, load: Load, steady: Steady | None = None) -> str:
    """All of a run's lines."""
    lines = [f"{' Serving Benchmark Result ':=^{WIDTH}}", *_counts(summary)]
    if load.traffic.max_concurrency is not None:
        lines.append(_row("Maximum request concurrency:", load.traffic.max_concurrency))
    if load.traffic.rate != float("inf"):
        lines.append(_row("Request rate configured (RPS):", load.traffic.rate))
    lines.append(_row("Benchmark duration (s):", summary.duration))
    lines += [*_tokens(summary), _row("Request throughput (req/s):", summary.request_throughput)]
    if summary.goodput is not None:
        lines.append(_row("Request goodput (req/s):", summary.goodput))
    lines.append(_row("Output token throughput (tok/s):", summary.output_throughput))
    lines.append(_row("Peak output token throughput (tok/s):", summary.peak_output))
    lines.append(_row("Peak concurrent requests:", float(summary.peak_requests)))
    lines.append(_row("Total token throughput (tok/s):", summary.total_throughput))
    lines += [*metric_lines(summary.stats, load.wanted), "=" * WIDTH]
    if steady is not None:
        lines += _steady(steady)
    return "\n".join(lines) + "\n"


def talks_table(overall: Summary, by_turn: Sequence[Summary], facts: dict[str, str], wanted: Wanted) -> str:
    """The lines of a run of conversations: `facts` first, all turns together, then each turn."""
    lines = [f"{' Multi-Turn Benchmark Result ':=^{WIDTH}}"]
    lines += [f"{name + ':':<45} {value}" for name, value in facts.items()]
    parts = [(" Overall (All Turns) ", overall)]
    parts += [(f" Turn {n} ({s.completed + s.failed} samples) ", s) for n, s in enumerate(by_turn, 1)]
    for title, summary in parts:
        lines += [f"{title:-^{WIDTH}}", *_counts(summary), *_tokens(summary)]
        lines.append(_row("Request throughput (req/s):", summary.request_throughput))
        lines.append(_row("Input token throughput (tok/s):", summary.input_throughput))
        lines.append(_row("Output token throughput (tok/s):", summary.output_throughput))
        lines.append(_row("Total token throughput (tok/s):", summary.total_throughput))
        lines += metric_lines(summary.stats, wanted)
    return "\n".join([*lines, "=" * WIDTH]) + "\n"


def errors(records: Sequence[Record]) -> str:
    """What went wrong: each error once, the most frequent first; "" where nothing did."""
    counts: dict[str, int] = {}
    for record in records:
        if record.error:
            counts[record.error] = counts.get(record.error, 0) + 1
    if not counts:
        return ""
    told = sorted(counts.items(), key=lambda item: -item[1])[:_ERRORS]
    lines = [f"Failed requests during benchmark run detected (capping to {_ERRORS}):"]
    return "\n".join([*lines, *(f"Error {n}: {error} ({count}x)" for n, (error, count) in enumerate(told))]) + "\n"


def metric_lines(stats: dict[str, Stats], wanted: Wanted) -> list[str]:
    """The lines of the metrics that are asked for."""
    lines = []
    for name in wanted.metrics:
        short, long = NAMES[name]
        lines.append(f"{long:-^{WIDTH}}")
        lines.append(_row(f"Mean {short} (ms):", stats[name].mean))
        lines.append(_row(f"Median {short} (ms):", stats[name].median))
        lines += [_row(f"P{p:g} {short} (ms):", stats[name].percentiles[p]) for p in wanted.percentiles]
    return lines


def _counts(summary: Summary) -> list[str]:
    return [_row("Successful requests:", summary.completed), _row("Failed requests:", summary.failed)]


def _tokens(summary: Summary) -> list[str]:
    return [_row("Total input tokens:", summary.input_tokens), _row("Total generated tokens:", summary.output_tokens)]


def _row(name: str, value: float) -> str:
    return f"{name:<40} {value:<10}" if isinstance(value, int) else f"{name:<40} {value:<10.2f}"


def _steady(steady: Steady) -> list[str]:
    share = 100 * steady.started / steady.total
    lines = [f"Warning: {steady.warning}"] if steady.warning else []
    lines.append(f"{' Steady-State Metrics ':=^{_STEADY_WIDTH}}")
    facts = {
        "Concurrency threshold:": f">= {steady.threshold:g} * {steady.wish} = {steady.needed}",
        "Window:": f"{steady.start:.1f}s -> {steady.end:.1f}s  ({steady.duration:.1f}s)",
        "Observed peak concurrency:": steady.peak,
        "Requests started in window:": f"{steady.started} / {steady.total} ({share:.1f}%)",
        "Requests completed in window:": steady.completed,
    }
    lines += [f"{name:<35} {value}" for name, value in facts.items()]
    rates = {
        "Request throughput (req/s):": steady.request_throughput,
        "Output token throughput (tok/s):": steady.output_throughput,
        "Input token throughput (tok/s):": steady.input_throughput,
        "Total token throughput (tok/s):": steady.input_throughput + steady.output_throughput,
    }
    lines += ["-" * _STEADY_WIDTH, *(f"{name:<35} {value:.2f}" for name, value in rates.items())]
    for name, stats in (("TTFT", steady.ttft), ("TPOT", steady.tpot)):
        lines += ["-" * _STEADY_WIDTH, f"{f'Mean {name} (ms):':<35} {stats.mean:.2f}"]
        lines.append(f"{f'Median {name} (ms):':<35} {stats.median:.2f}")
        lines += [f"{f'P{p:g} {name} (ms):':<35} {value:.2f}" for p, value in sorted(stats.percentiles.items())]
    return [*lines, "=" * _STEADY_WIDTH]
