"""One line on a terminal that says how far a run is; nothing anywhere else."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TextIO

#: Seconds between two looks.
_STEP = 0.2
_WIDTH = 30


class Progress:
    """Counts requests; draws while its task runs: `async with Progress(...) as progress`."""

    def __init__(self, total: int, out: TextIO | None) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self._out = out if out is not None and out.isatty() else None
        self._task: asyncio.Task[None] | None = None
        self._began = perf_counter()

    def count(self, error: str) -> None:
        """One request is over."""
        self.done += 1
        self.failed += bool(error)

    async def __aenter__(self) -> Progress:
        self._began = perf_counter()
        if self._out is not None:
            self._task = asyncio.create_task(self._draw_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None and self._out is not None:
            self._task.cancel()
            self._out.write("\r" + self.line(perf_counter() - self._began) + "\n")
            self._out.flush()

    async def _draw_on(self) -> None:
        while self._out is not None:
            self._out.write("\r" + self.line(perf_counter() - self._began))
            self._out.flush()
            await asyncio.sleep(_STEP)

    def line(self, seconds: float) -> str:
        """The line `seconds` after the start."""
        share = self.done / self.total if self.total else 1.0
        bar = ("#" * round(share * _WIDTH)).ljust(_WIDTH, ".")
        rate = self.done / seconds if seconds > 0 else 0.0
        left = f"{(self.total - self.done) / rate:.0f} s left" if rate else "? s left"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"[{bar}] {self.done}/{self.total} in {seconds:.0f} s, {left}, {rate:.1f}/s{failed}   "
