"""Tables over several runs: a sweep, repeated runs, and two results side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastfront.load.metrics import SHOWN, Summary
from fastfront.load.result import Result
from fastfront.load.steady import Steady

#: Key of a result, what it is called, and whether more is better (+1), worse (-1) or neither.
_ROWS = (
    ("request_throughput", "Request throughput (req/s)", 1),
    ("request_goodput", "Request goodput (req/s)", 1),
    ("output_throughput", "Output throughput (tok/s)", 1),
    ("total_token_throughput", "Total token throughput (tok/s)", 1),
    ("max_output_tokens_per_s", "Peak output tokens/s", 1),
    ("max_concurrent_requests", "Peak concurrent requests", 0),
    *(
        (f"{kind}_{name}_ms", f"{kind.title()} {name.upper()} (ms)", -1)
        for name in ("ttft", "tpot", "itl", "e2el")
        for kind in ("mean", "median", "p99")
    ),
    ("completed", "Completed requests", 1),
    ("failed", "Failed requests", -1),
    ("duration", "Duration (s)", -1),
)


def sweep_table(title: str, points: Sequence[tuple[str, Summary, Steady | None]], extra: Sequence[float]) -> str:
    """A line for each point of a sweep (its name, its figures), and which had the most requests a second."""
    shown = tuple(dict.fromkeys((*SHOWN, *extra)))
    heads = [f"P{p:g} {name}(ms)" for p in shown for name in ("TTFT", "TPOT")]
    columns = ["Req/s", "Tok/s", "Total tok/s", "SS req/s", "SS out tok/s", *heads, "Failed"]
    widths = [10, 10, 12, 10, 12, *(len(head) for head in heads), 6]
    lines = [f"{title:<20} " + " ".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))]
    lines.append("-" * 20 + " " + " ".join("-" * width for width in widths))
    for name, summary, steady in points:
        cells = [f"{value:.2f}" for value in (summary.request_throughput, summary.output_throughput)]
        cells.append(f"{summary.total_throughput:.2f}")
        cells += [f"{steady.request_throughput:.2f}", f"{steady.output_throughput:.2f}"] if steady else ["-", "-"]
        cells += [f"{summary.stats[key].percentiles[p]:.2f}" for p in shown for key in ("ttft", "tpot")]
        cells.append(str(summary.failed))
        lines.append(f"{name:<20} " + " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    best = max(points, key=lambda point: point[1].request_throughput)
    wide = max(map(len, lines))
    lines = [f"{' Sweep Summary ':=^{wide}}", *lines, "=" * wide]
    return "\n".join([*lines, f"Best throughput: {best[1].request_throughput:.2f} req/s at {best[0]}"]) + "\n"


def runs_table(results: Sequence[Result]) -> str:
    """Mean, standard deviation, least and most of every figure over repeated runs."""
    lines = [f"{f' Multi-Run Summary ({len(results)} runs) ':=^80}"]
    lines.append(f"{'Metric':<35} {'Mean':>10} {'Std':>10} {'Min':>10} {'Max':>10}")
    lines.append(" ".join("-" * width for width in (35, 10, 10, 10, 10)))
    for key, name, _ in _ROWS:
        values = [float(one[key]) for one in results if one.get(key) is not None]
        if len(values) == len(results):
            mean = math.fsum(values) / len(values)
            std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
            lines.append(f"{name:<35} {mean:>10.2f} {std:>10.2f} {min(values):>10.2f} {max(values):>10.2f}")
    return "\n".join([*lines, "=" * 80]) + "\n"


def compared(a: Result, b: Result, name_a: str, name_b: str) -> str:
    """Two results: every figure that both have, what changed, and the ratio of the second to the first."""
    lines = [f"{' Benchmark Comparison ':=^98}"]
    for letter, name, one in (("A", name_a, a), ("B", name_b, b)):
        lines.append(f"  {letter}: {name} (model: {one.get('model_id')}, date: {one.get('date')})")
    lines += ["", f"{'Metric':<35} {'A':>12} {'B':>12} {'Delta':>10} {'Change':>10} {'B/A':>8}"]
    lines.append(" ".join("-" * width for width in (35, 12, 12, 10, 10, 8)))
    rows = [(name, a.get(key), b.get(key), sign) for key, name, sign in _ROWS]
    inner_a, inner_b = a.get("steady_state") or {}, b.get("steady_state") or {}
    keys = ("request_throughput", "output_throughput", "mean_ttft_ms", "mean_tpot_ms")
    rows += [(f"Steady {name}", inner_a.get(key), inner_b.get(key), sign) for key, name, sign in _ROWS if key in keys]
    lines += [_row(name, one, two, sign) for name, one, two, sign in rows if one is not None and two is not None]
    lines += ["=" * 98, "", "+ better, - worse, from A to B"]
    return "\n".join(lines) + "\n"


def _row(name: str, one: float, two: float, sign: int) -> str:
    change, mark, ratio = "-", " ", "-"
    if one:
        change = f"{100 * (two - one) / one:+.1f}%"
        ratio = f"{two / one:.3f}"
    if two != one and sign:
        mark = "+" if (two > one) == (sign > 0) else "-"
    return f"{name:<35} {one:>12.2f} {two:>12.2f} {two - one:>+10.2f} {change:>9}{mark} {ratio:>8}"
