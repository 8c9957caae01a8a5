"""Draws what `curves.py` has recorded: `python bench/plot.py [curves.json [curves.svg]]`."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from svg import chart, page

RESULTS = Path(__file__).resolve().parent / "results"
GENERATED, ALL = ("output_tokens",), ("input_tokens", "output_tokens")
#: Axis of the rows -> title, what goes across, what goes up, and the tokens that the CPU time is shared over.
CHARTS = {
    "concurrency": ("Concurrency", "requests at once", "CPU µs a generated token", GENERATED),
    "output": ("Output length", "generated tokens a request", "CPU µs a generated token", GENERATED),
    "prompt": ("Prompt length", "prompt tokens a request", "CPU µs a token, in and out", ALL),
}


def curves(rows: list[dict[str, Any]], axis: str) -> dict[str, list[tuple[float, float]]]:
    """By frontend: x, and the median over the rounds of CPU microseconds a token."""
    found: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if row["axis"] == axis:
            tokens = sum(row[key] for key in CHARTS[axis][3])
            each = 1e6 * row["cpu_s"] / tokens
            found.setdefault(row["frontend"], {}).setdefault(row["x"], []).append(each)
    return {name: [(x, statistics.median(values)) for x, values in by_x.items()] for name, by_x in found.items()}


def draw(recorded: dict[str, Any]) -> str:
    """The page of all axes that were measured."""
    charts = []
    for axis, (title, across, up, _) in CHARTS.items():
        lines = curves(recorded["rows"], axis)
        if lines:
            charts.append(chart(title, across, up, lines))
    pace = f"{recorded['step_ms']:g} ms a step" if recorded["step_ms"] else "engine ahead"
    return page(f"A frontend's CPU time, {pace}", "both axes logarithmic; medians; flat is the goal", charts)


def main(argv: list[str]) -> None:
    source = Path(argv[0]) if argv else RESULTS / "curves.json"
    target = Path(argv[1]) if argv[1:] else source.with_suffix(".svg")
    target.write_text(draw(json.loads(source.read_text())), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main(sys.argv[1:])
