"""Line charts with logarithmic axes as SVG, of nothing but text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 20, 42, 52
_COLOURS = ("#0b6e4f", "#c1440e", "#3457a6", "#7a3b8f")


class Axis(NamedTuple):
    """A logarithmic axis from `low` to `high`, with a mark at every power of `base`, drawn from `start` to `end`."""

    low: float
    high: float
    base: int
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value is drawn."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def marks(self) -> list[float]:
        """The powers of `base` on the axis; of two, every second where there are many."""
        first = math.ceil(math.log(self.low, self.base) - 1e-9)
        last = math.floor(math.log(self.high, self.base) + 1e-9)
        step = 2 if last - first > 8 else 1
        return [float(self.base) ** n for n in range(first, last + 1, step)]


def chart(title: str, x_label: str, y_label: str, lines: dict[str, Points]) -> str:
    """One chart, WIDTH by HEIGHT: a line and a dot a point for each name; every value must be above 0."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    across = Axis(min(xs), max(max(xs), min(xs) * 2), 2, _LEFT, WIDTH - _RIGHT)
    low, high = (10 ** fit(math.log10(edge)) for fit, edge in ((math.floor, min(ys)), (math.ceil, max(ys) * 1.001)))
    up = Axis(low, high, 10, HEIGHT - _BOTTOM, _TOP)
    parts = [_text(WIDTH / 2, 20, title, weight="600"), *_grid(across, up)]
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 14, x_label))
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(_text(16, middle, y_label, more=f' transform="rotate(-90 16 {middle:g})"'))
    for number, (name, points) in enumerate(lines.items()):
        parts += _line(name, number, [(across.at(x), up.at(y)) for x, y in sorted(points)])
    return "\n".join(parts)


def page(title: str, note: str, charts: Sequence[str]) -> str:
    """A whole SVG document: charts side by side, a title above and a note below."""
    width, height = WIDTH * len(charts), HEIGHT + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(width / 2, 24, title, size=16, weight="600"),
        *(f'<g transform="translate({number * WIDTH} 34)">\n{one}\n</g>' for number, one in enumerate(charts)),
        _text(width / 2, height - 10, note, colour="#555"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(across: Axis, up: Axis) -> list[str]:
    parts = []
    for value in across.marks():
        x = across.at(value)
        parts.append(_stroke(x, up.start, x, up.end, "#e4e4e4"))
        parts.append(_text(x, up.start + 16, _short(value)))
    for value in up.marks():
        y = up.at(value)
        parts.append(_stroke(across.start, y, across.end, y, "#cccccc"))
        parts.append(_text(across.start - 6, y + 4, _short(value), anchor="end"))
    parts.append(_stroke(across.start, up.start, across.end, up.start, "black"))
    parts.append(_stroke(across.start, up.start, across.start, up.end, "black"))
    return parts


def _line(name: str, number: int, points: Points) -> list[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    key = _LEFT + 8 + 110 * number
    parts.append(_stroke(key, 34, key + 18, 34, colour, width=2))
    return [*parts, _text(key + 23, 38, name, anchor="start")]


def _short(value: float) -> str:
    """1024 as 1k, 0.1 as it is."""
    return f"{value / 1024:g}k" if value >= 1024 and value % 1024 == 0 else f"{value:g}"


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12, weight: str = "400",
    colour: str = "black", more: str = "",
) -> str:  # fmt: skip
    style = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}{more}>{escape(text)}</text>'
