"""Sends requests when they are due, and no more than so many at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from time import perf_counter

from fastfront.load.record import Record
from fastfront.load.sample import Sample

Job = tuple[Sample, Record]
Send = Callable[[Sample, Record], Awaitable[None]]


class Lanes:
    """A lane sends one request after the other; there are as many lanes as it takes, at most `limit` (None: no limit).

    No more than one lane waits for the next request's time. When that has come it lets another wait, and sends. The
    other has the loop's next turn: of many requests that are due at once each is begun after what came meanwhile is
    read, so that none of their clocks runs while others are begun.
    """

    def __init__(self, jobs: Iterable[Job], send: Send, limit: int | None) -> None:
        self._jobs: Iterator[Job] = iter(jobs)
        self._send = send
        self._free: float = math.inf if limit is None else limit
        self._waits = False
        self._group = asyncio.TaskGroup()

    async def run(self) -> None:
        """Returns when all are answered. `due` of the records is of time.perf_counter."""
        async with self._group:
            self._open()

    def _open(self) -> None:
        self._free -= 1
        self._waits = True
        self._group.create_task(self._lane())

    async def _lane(self) -> None:
        for sample, record in self._jobs:
            ahead = record.due - perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            self._waits = False
            if self._free:
                self._open()
            await self._send(sample, record)
            if self._waits:
                self._free += 1
                return
            self._waits = True
