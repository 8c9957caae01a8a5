"""The first worker, and the others as it sees them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import socket
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from fastfront.errors import ConfigError, FastfrontError, StartError, WorkerError
from fastfront.workers import words
from fastfront.workers.line import Line, say_now
from fastfront.workers.worker import SIGNALS, Ends, Worker, on_signals

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: How long the others may take to end, beside the time that they drain for (s).
GRACE_S = 20.0
#: How long another worker may take to tell what it has counted (s).
ANSWER_S = 5.0

_read_failure = msgspec.msgpack.Decoder(tuple[bool, str]).decode


class Child:
    """Another worker, as the first sees it."""

    def __init__(self, index: int, pid: int, sock: socket.socket) -> None:
        self.index = index
        self.pid = pid
        self.status: int | None = None  # its exit code, minus the signal that killed it; None: not known yet
        self.line = Line(sock)
        self.ready = asyncio.Event()
        self.gone: asyncio.Task[None]
        self._failure: FastfrontError | None = None

    def hear(self, word: str, data: bytes) -> None:
        """A word of its."""
        if word == words.READY:
            self.ready.set()
        elif word == words.FAILED:
            wrong, text = _read_failure(data)
            self._failure = ConfigError(text) if wrong else StartError(text)

    async def counts(self) -> bytes:
        """What it has counted; WorkerError."""
        try:
            return await self.line.ask(words.COUNTS, ANSWER_S)
        except WorkerError as error:
            raise WorkerError(f"frontend worker {self.index} does not tell what it has counted: {error}") from error

    async def ended(self) -> FastfrontError:
        """Waits for its exit code, for an error that says it or what it was told."""
        status = await asyncio.to_thread(self.reap)
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        return self._failure or StartError(f"frontend worker {self.index} ended with {how}")

    def reap(self) -> int:
        """Waits for its exit code."""
        self.status = status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status

    def kill(self) -> None:
        """Ends it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class First(Worker):
    """The first worker: the others are its children."""

    def __init__(self, count: int, children: list[Child]) -> None:
        super().__init__(0, count)
        self._children = children
        self._ending = False

    def agree(self, decide: Callable[[], _T]) -> _T:
        decided = decide()
        data = pickle.dumps(decided)
        for child in self._children:
            say_now(child.line.sock, words.AGREED, data)
        return decided

    async def begin(self, process: Ends) -> None:
        def on_signal() -> None:
            self._say(words.SIGNAL)
            process.on_signal()

        on_signals(on_signal)
        for child in self._children:
            await child.line.open()
            child.gone = asyncio.get_running_loop().create_task(self._follow(child, process))

    def found(self) -> None:
        self._say(words.FOUND)

    async def all_ready(self, check: Callable[[], None]) -> None:
        for child in self._children:
            await child.ready.wait()
        check()
        self._say(words.LISTEN)

    async def others(self) -> list[bytes]:
        return await self._gather(None)

    def broken(self, rank: int, times: int, reason: str) -> None:
        self._say(words.BROKEN, words.pack_broken(rank, times, reason))

    async def end(self, *, quick: bool, drain: float, hurry: asyncio.Event) -> None:
        self._ending = True
        if quick:
            self._say(words.SIGNAL)
            self._say(words.SIGNAL)
        all_gone = asyncio.gather(*(child.gone for child in self._children))
        hurrying = asyncio.ensure_future(hurry.wait())
        await asyncio.wait(
            (all_gone, hurrying), timeout=GRACE_S + (0 if quick else drain), return_when=asyncio.FIRST_COMPLETED
        )
        if hurrying.done():
            await asyncio.wait((all_gone,), timeout=GRACE_S)
        hurrying.cancel()
        for child in self._children:
            if not child.gone.done():
                logger.error("frontend worker %d does not end: it is killed", child.index)
                child.kill()
        await all_gone

    @contextlib.contextmanager
    def telling_errors(self) -> Iterator[None]:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            yield
        finally:
            for child in self._children:  # those that are left have heard of nothing yet
                child.line.sock.close()
                if child.status is None:
                    child.kill()
                    child.reap()

    async def _follow(self, child: Child, process: Ends) -> None:
        async def answer(word: str) -> bytes:
            return msgspec.msgpack.encode([self.counts(), *await self._gather(child)])

        def hear(word: str, data: bytes) -> None:
            if word == words.BROKEN:
                self._say(word, data, but=child)
                self.give_up(*words.read_broken(data))
            else:
                child.hear(word, data)

        try:
            await child.line.follow(hear, answer)
        finally:
            child.line.close()
            error = await child.ended()
            if child.status != 0 or not self._ending:
                process.fail(error)

    async def _gather(self, asker: Child | None) -> list[bytes]:
        return await asyncio.gather(*(child.counts() for child in self._children if child is not asker))

    def _say(self, word: str, data: bytes = b"", but: Child | None = None) -> None:
        for child in self._children:
            if child is not but:
                child.line.say(word, data)
