"""A profile of the engine's steps, written as a trace that chrome://tracing reads."""

from __future__ import annotations

import re
import time
from pathlib import Path

import torch


class Profile:
    """At most one profile at a time; with no folder there is none to be had."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._running: torch.profiler.profile | None = None
        self._name = ""
        #: Steps until it begins; None when no profile is asked for.
        self._delay: int | None = None
        self._left = 0

    def start(self, prefix: str | None, delay: int, most: int) -> None:
        """Begins after `delay` steps and ends by itself after `most` (0: not by itself)."""
        if self._folder is None:
            raise RuntimeError("Profiling is not enabled: start the engine with --profiler-config")
        if self._running or self._delay is not None:
            raise RuntimeError("a profile is being made already")
        self._name = re.sub(r"[^\w.-]", "_", prefix or "fastfront")
        self._delay, self._left = delay, most
        if not delay:
            self._begin()

    def stop(self) -> None:
        """Writes what there is; nothing if none was started."""
        self._delay = None
        running, self._running = self._running, None
        if running is not None and self._folder is not None:
            running.stop()
            self._folder.mkdir(parents=True, exist_ok=True)
            running.export_chrome_trace(str(self._folder / f"{self._name}.{time.time_ns()}.pt.trace.json"))

    def step(self) -> None:
        """A step of the engine is over."""
        if self._running is not None:
            self._left -= 1
            if not self._left:
                self.stop()
        elif self._delay is not None:
            self._delay -= 1
            if self._delay <= 0:
                self._begin()

    def _begin(self) -> None:
        self._delay = None
        self._running = torch.profiler.profile()
        self._running.start()
