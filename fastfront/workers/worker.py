"""A worker, as what runs in it sees it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from fastfront.errors import FastfrontError

_T = TypeVar("_T")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Ends(Protocol):
    """A process that can be told to end."""

    def on_signal(self) -> None:
        """The first call asks for the end, the second for a quick one."""

    def fail(self, error: FastfrontError) -> None:
        """It cannot go on."""


class Worker:
    """Process number `index` of the `count` that serve one port. This class is for one that serves it alone."""

    def __init__(self, index: int = 0, count: int = 1) -> None:
        self.index = index
        self.count = count
        #: What this worker has counted, for the others.
        self.counts: Callable[[], bytes] = bytes
        #: Is told what another worker said by `broken`.
        self.give_up: Callable[[int, int, str], None] = lambda rank, times, reason: None

    def agree(self, decide: Callable[[], _T]) -> _T:
        """What the first worker decides, for all; before there is a loop."""
        return decide()

    async def begin(self, process: Ends) -> None:
        """The loop runs, and `process` is what ends."""
        on_signals(process.on_signal)

    async def before_finding(self) -> None:
        """Returns once this worker may look for the model's files."""

    def found(self) -> None:
        """This worker has found them."""

    async def all_ready(self, check: Callable[[], None]) -> None:
        """This worker could listen; returns once it is to. The first calls `check` before anybody does."""

    def started(self) -> None:
        """All that a start does is done."""

    async def others(self) -> list[bytes]:
        """What the others have counted; WorkerError where one does not tell."""
        return []

    def broken(self, rank: int, times: int, reason: str) -> None:
        """This worker can have no more to do with an engine, which it saw register so often: nor should the others."""

    async def end(self, *, quick: bool, drain: float, hurry: asyncio.Event) -> None:
        """Ends the others, who may drain for so many seconds unless it must be quick, and returns when all have.

        They have been told, too, when `hurry` is set.
        """

    @contextlib.contextmanager
    def telling_errors(self) -> Iterator[None]:
        """Errors within are told to the first worker, whose they become."""
        yield


def on_signals(call: Callable[[], None]) -> None:
    """What is done when somebody wants the process to end."""
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, call)
