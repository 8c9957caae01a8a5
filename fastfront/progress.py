"""How far a long start is: a bar on a terminal, now and then a line in a log."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from fastfront import env

log = logging.getLogger(__name__)

#: What is done within this time is not told (s); then a bar is drawn, and a line written, at most this often (s).
QUIET_S, BAR_S, LINE_S = 1.0, 0.1, 5.0
WIDTH = 30


class Progress:
    """Tells of `what`, of which `total` bytes, or other units, are to be done (0: unknown). Closed, the bar is gone."""

    def __init__(self, what: str, total: int = 0, unit: str = "bytes") -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0
        self._bar = wants_bar()
        self._told = time.monotonic() + QUIET_S - (BAR_S if self._bar else LINE_S)
        self._drawn = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def advance(self, count: int) -> None:
        """So many more are done."""
        self.at(self._done + count)

    def at(self, done: int, total: int | None = None) -> None:
        """So many are done altogether, of `total` if that is known now."""
        self._done = done
        self._total = self._total if total is None else total
        now = time.monotonic()
        if now - self._told < (BAR_S if self._bar else LINE_S):
            return
        self._told = now
        if self._bar:
            self._draw(self._line(done))
        else:
            log.info("%s: %s", self._what, self._amount(done))

    def close(self) -> None:
        """Takes the bar away."""
        if self._drawn:
            self._draw("")

    def _line(self, done: int) -> str:
        if not self._total:
            return f"{self._what} {self._amount(done)}"
        full = WIDTH * min(done, self._total) // self._total
        return f"{self._what} [{'#' * full}{'.' * (WIDTH - full)}] {self._amount(done)}"

    def _amount(self, done: int) -> str:
        if not self._total:
            return self._counted(done)
        return f"{100 * min(done, self._total) // self._total} % of {self._counted(self._total)}"

    def _counted(self, count: int) -> str:
        return f"{round(count / 1e6)} MB" if self._unit == "bytes" else f"{count} {self._unit}"

    def _draw(self, line: str) -> None:
        with suppress(OSError, ValueError):  # standard error may be closed
            sys.stderr.write("\r" + line.ljust(self._drawn) + ("" if line else "\r"))
            sys.stderr.flush()
        self._drawn = len(line)


@contextmanager
def watching(what: str, total: int, folder: Path) -> Iterator[None]:
    """Tells how `folder` grows while somebody else writes into it."""
    with Progress(what, total) as progress:
        before, ended = _size(folder), threading.Event()

        def watch() -> None:
            while not ended.wait(BAR_S * 2):
                progress.at(max(0, _size(folder) - before))

        thread = threading.Thread(target=watch, daemon=True, name="progress")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def wants_bar() -> bool:
    """Whether somebody looks on: standard error is a terminal, or FASTFRONT_PROGRESS says so."""
    wish = env.progress()
    if wish != "auto":
        return wish == "bar"
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # it may be moved meanwhile
            if path.is_file() and not path.is_symlink():
                size += path.stat().st_size
    return size
