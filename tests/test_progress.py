"""A bar on a terminal, lines in a log, nothing for what is done at once."""

from __future__ import annotations

import os
import sys
from io import StringIO
from pathlib import Path

import pytest

from fastfront import progress
from fastfront.errors import ConfigError
from fastfront.progress import Progress, wants_bar, watching


class Clock:
    """Stands for time.monotonic."""

    now = 0.0

    def monotonic(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that Progress sees."""
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_bar(clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFRONT_PROGRESS", "bar")
    with Progress("loading", 200_000_000) as told:
        for clock.now in (0.5, 0.9, 1.01, 1.05, 1.2):
            told.advance(40_000_000)
    bars = [f"loading [{'#' * n}{'.' * (30 - n)}] {share} % of 200 MB" for n, share in ((18, 60), (30, 100))]
    blank = " " * len(bars[1])
    assert capsys.readouterr().err == f"\r{bars[0]}\r{bars[1]}\r{blank}\r"


def test_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTFRONT_PROGRESS", "lines")
    lines: list[str] = []
    monkeypatch.setattr(progress.log, "info", lambda text, *args: lines.append(text % args))
    with Progress("loading", unit="tensors") as told, Progress("reading") as unknown:
        for clock.now in (0.5, 1.0, 3.0, 6.0, 7.0):
            told.at(round(clock.now), 20)
        unknown.at(3_000_000)
    assert lines == ["loading: 5 % of 20 tensors", "loading: 30 % of 20 tensors", "reading: 3 MB"]
    assert capsys.readouterr().err == ""


def test_what_is_done_at_once_is_not_told(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTFRONT_PROGRESS", "bar")
    with Progress("loading", 10) as told:
        clock.now = 0.9
        told.at(10)
    assert capsys.readouterr().err == ""


def test_who_looks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := StringIO())
    monkeypatch.delenv("FASTFRONT_PROGRESS", raising=False)
    assert not wants_bar()
    monkeypatch.setattr(written, "isatty", lambda: True)
    assert wants_bar()
    monkeypatch.setenv("FASTFRONT_PROGRESS", "lines")
    assert not wants_bar()
    monkeypatch.setenv("FASTFRONT_PROGRESS", "yes")
    with pytest.raises(ConfigError, match="FASTFRONT_PROGRESS must be auto, bar or lines, not 'yes'"):
        wants_bar()


def test_a_folder_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "before").write_bytes(bytes(1000))
    seen: list[int] = []
    monkeypatch.setattr(Progress, "at", lambda self, done: seen.append(done))
    with watching("downloading", 5000, tmp_path):
        (tmp_path / "inner").mkdir()
        (tmp_path / "inner" / "new").write_bytes(bytes(5000))
        while 5000 not in seen:
            os.sched_yield()
    assert set(seen) <= {0, 5000}
