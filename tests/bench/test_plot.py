"""The page of curves: every point where it belongs, and SVG that a reader can read."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

NAME = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def scripts(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The modules of bench/, which run as scripts."""
    monkeypatch.syspath_prepend(root / "bench")
    return {name: importlib.import_module(name) for name in ("svg", "plot", "curves")}


def row(frontend: str, axis: str, x: int, cpu: float, prompt: int = 100, **more: Any) -> dict[str, Any]:
    return {
        "frontend": frontend, "axis": axis, "x": x, "cpu_s": cpu, "round": 0, "input_tokens": prompt,
        "output_tokens": 100_000, **more,
    }  # fmt: skip


def test_the_median_of_the_rounds(scripts: dict[str, ModuleType]) -> None:
    rows = [row("a", "output", 16, cpu) for cpu in (0.2, 0.9, 0.3)]
    rows += [row("a", "output", 32, 0.01), row("b", "prompt", 64, 0.4, prompt=100_000)]
    assert scripts["plot"].curves(rows, "output") == {"a": [(16, pytest.approx(3.0)), (32, pytest.approx(0.1))]}
    assert scripts["plot"].curves(rows, "prompt") == {"b": [(64, pytest.approx(2.0))]}


def test_the_axes(scripts: dict[str, ModuleType]) -> None:
    axis = scripts["svg"].Axis(1, 100, 10, 0.0, 200.0)
    assert [axis.at(value) for value in (1, 10, 100)] == pytest.approx([0.0, 100.0, 200.0])
    assert axis.marks() == [1, 10, 100]
    assert scripts["svg"].Axis(64, 131072, 2, 0, 1).marks() == [64 * 4**n for n in range(6)]


def test_the_page(scripts: dict[str, ModuleType]) -> None:
    rows = [row(name, "concurrency", x, cpu) for name, cpu in (("<us>", 0.1), ("them", 1.0)) for x in (1, 64, 2048)]
    page = ElementTree.fromstring(scripts["plot"].draw({"step_ms": 25.0, "rows": rows}))
    texts = [text.text for text in page.iter(f"{NAME}text")]
    assert {"<us>", "them", "Concurrency", "requests at once", "CPU µs a generated token", "1", "10"} <= set(texts)
    assert "A frontend's CPU time, 25 ms a step" in texts
    assert "Output length" not in texts
    us, them = page.iter(f"{NAME}polyline")
    ours = [tuple(map(float, point.split(","))) for point in us.attrib["points"].split()]
    theirs = [tuple(map(float, point.split(","))) for point in them.attrib["points"].split()]
    # The same places across, the ends at the axis' ends; ten times the time is one mark higher, all flat.
    assert [x for x, _ in ours] == [x for x, _ in theirs]
    assert (ours[0][0], ours[2][0]) == (62, 440)
    assert len({y for _, y in ours}) == len({y for _, y in theirs}) == 1
    assert theirs[0][1] < ours[0][1]
    assert len(list(page.iter(f"{NAME}circle"))) == 6


def test_points_and_what_is_missing(scripts: dict[str, ModuleType]) -> None:
    curves = scripts["curves"]
    assert [work.x for work in curves.points("concurrency", 1 << 20)] == [1 << n for n in range(12)]
    assert [work.x for work in curves.points("output", 8192)] == [16 << n for n in range(10)]
    assert [work.x for work in curves.points("prompt", 256)] == [64, 128, 256]
    works = [work for axis in ("concurrency", "output", "prompt") for work in curves.points(axis, 1 << 20)]
    assert all(work.prompts >= work.concurrency for work in works)
    work = curves.points("output", 16)[0]
    rows = [row("vllm-rs", "output", 16, 1.0), row("fastfront", "output", 32, 1.0)]
    assert list(curves.missing(work, 2, rows)) == [("fastfront", 0), ("fastfront", 1), ("vllm-rs", 1)]
