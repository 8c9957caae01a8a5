"""Several processes on one port, for more cores than one event loop can use.

The first worker forks the others before anything has begun: no thread, no loop, no file of the model, only what must
be bound first. From then on each is a server of its own, with its own copy of the model's tokenizer, and the kernel
spreads connections over them. The first says when: the others look for the model after it has found it, all listen once
all have loaded, and they end with it. It hears of their errors and ends if one of them does; if it is killed, they
notice.

Between the first and each other is a pair of sockets, on which both say words, a line each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from fastfront import cores
from fastfront.errors import ConfigError, FastfrontError, StartError
from fastfront.told import Tell, Told

log = logging.getLogger(__name__)

#: Workers where nobody said how many: one for each core, but no more than these.
MOST_UNASKED = 4
#: How long the others may take to end, beside the time that they drain for (s).
GRACE_S = 20.0

#: Characters of an error that are told: a line must not be longer than asyncio reads.
_MOST_CHARS = 8192
_FOUND, _READY, _LISTEN, _SIGNAL, _FAILED = b"found\n", b"ready\n", b"listen\n", b"signal\n", b"failed "


class Ends(Protocol):
    """A process that can be told to end."""

    def on_signal(self) -> None:
        """The first call asks for the end, the second for a quick one."""

    def fail(self, error: FastfrontError) -> None:
        """It cannot go on."""


class Worker:
    """One of the `count` processes that serve one port, number `index`; this class is the only one of its port."""

    def __init__(self, index: int = 0, count: int = 1) -> None:
        self.index = index
        self.count = count

    def begin(self, process: Ends) -> None:
        """The loop runs, and `process` is what ends."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, process.on_signal)

    async def before_finding(self) -> None:
        """Returns once this worker may look for the model's files."""

    def found(self) -> None:
        """This worker has found them."""

    async def all_ready(self) -> None:
        """This worker could listen; returns once it is to."""

    def started(self) -> None:
        """All that a start does is done."""

    async def share(self, tell: Tell) -> None:
        """From now on the others may ask for what `tell` gives."""

    async def others(self) -> list[bytes]:
        """What the others tell; WorkerError where one does not answer."""
        return []

    async def end(self, *, quick: bool, drain: float) -> None:
        """Ends the others, who may drain for so many seconds unless it must be quick, and returns when all have."""

    @contextlib.contextmanager
    def last_word(self) -> Iterator[None]:
        """Around all that the worker does."""
        yield


class _OneOfSeveral(Worker):
    """What all of several workers have."""

    def __init__(self, index: int, count: int, folder: Path) -> None:
        super().__init__(index, count)
        self._told = Told(folder, index, count)

    async def share(self, tell: Tell) -> None:
        await self._told.share(tell)

    async def others(self) -> list[bytes]:
        return await self._told.others()


class _Line:
    """The first worker's side of its line to another one."""

    def __init__(self, index: int, pid: int, sock: socket.socket) -> None:
        self.index = index
        self.pid = pid
        self.ready = asyncio.Event()
        self.gone: asyncio.Task[None]
        self._sock = sock

    def open(self, on_end: Callable[[FastfrontError], None]) -> None:
        self.gone = asyncio.get_running_loop().create_task(self._follow(on_end))

    def close(self) -> None:
        self._sock.close()

    def say(self, word: bytes) -> None:
        """Says a word, unless nobody is there to hear it."""
        with contextlib.suppress(OSError):
            self._sock.sendall(word)  # some bytes: there is always room

    async def _follow(self, on_end: Callable[[FastfrontError], None]) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=self._sock.dup())
        reason: FastfrontError | None = None
        with contextlib.closing(writer), contextlib.suppress(OSError):
            async for line in reader:
                if line == _READY:
                    self.ready.set()
                elif line.startswith(_FAILED):
                    reason = _read_failure(line)
        status = os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, self.pid, 0))[1])
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        on_end(reason or StartError(f"frontend worker {self.index} ended with {how}"))


class First(_OneOfSeveral):
    """The first worker: the others are its children."""

    def __init__(self, count: int, folder: Path, lines: list[_Line]) -> None:
        super().__init__(0, count, folder)
        self._lines = lines

    def begin(self, process: Ends) -> None:
        def on_signal() -> None:
            self._say(_SIGNAL)
            process.on_signal()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
        for line in self._lines:
            line.open(process.fail)

    def found(self) -> None:
        self._say(_FOUND)

    async def all_ready(self) -> None:
        for line in self._lines:
            await line.ready.wait()
        self._say(_LISTEN)

    async def end(self, *, quick: bool, drain: float) -> None:
        if quick:
            self._say(_SIGNAL * 2)
        gone = [line.gone for line in self._lines]
        _, late = await asyncio.wait(gone, timeout=GRACE_S + (0 if quick else drain))
        for line in self._lines:
            if line.gone in late:
                log.error("frontend worker %d does not end: it is killed", line.index)
                os.kill(line.pid, signal.SIGKILL)
        await asyncio.wait(gone)
        self._told.close()
        shutil.rmtree(self._told.folder, ignore_errors=True)

    def _say(self, word: bytes) -> None:
        for line in self._lines:
            line.say(word)


class Other(_OneOfSeveral):
    """A worker but the first. Signals are the first one's: a terminal sends them to all."""

    def __init__(self, index: int, count: int, folder: Path, sock: socket.socket) -> None:
        super().__init__(index, count, folder)
        self._sock = sock
        self._may_find, self._may_listen = asyncio.Event(), asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        logging.disable(logging.WARNING)  # until it serves it has nothing to say that the first does not say

    def begin(self, process: Ends) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: None)
        self._following = loop.create_task(self._follow(process))

    async def before_finding(self) -> None:
        await self._may_find.wait()

    async def all_ready(self) -> None:
        self._sock.sendall(_READY)
        await self._may_listen.wait()

    def started(self) -> None:
        logging.disable(logging.NOTSET)

    async def end(self, *, quick: bool, drain: float) -> None:
        self._told.close()

    @contextlib.contextmanager
    def last_word(self) -> Iterator[None]:
        try:
            yield
        except FastfrontError as error:
            told = msgspec.json.encode([isinstance(error, ConfigError), str(error)[:_MOST_CHARS]])
            with contextlib.suppress(OSError):
                self._sock.sendall(_FAILED + told + b"\n")
            sys.exit(1)

    async def _follow(self, process: Ends) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=self._sock.dup())
        with contextlib.closing(writer), contextlib.suppress(OSError):
            async for line in reader:
                if line == _FOUND:
                    self._may_find.set()
                elif line == _LISTEN:
                    self._may_listen.set()
                elif line == _SIGNAL:
                    process.on_signal()
        process.on_signal()
        process.on_signal()


def fork(count: int) -> Worker:
    """Makes `count` workers of this process, and tells which of them it is now. To be called in the main thread, alone.

    Raises StartError where the system has no room for them.
    """
    if count == 1:
        return Worker()
    folder = Path(tempfile.mkdtemp(prefix="fastfront-"))
    sys.stdout.flush()
    sys.stderr.flush()
    lines: list[_Line] = []
    for index in range(1, count):
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError as error:  # those that are there notice that this one ends
            shutil.rmtree(folder)
            raise StartError(f"cannot start {count} frontend workers: {error.strerror}") from error
        if pid == 0:
            ours.close()
            for line in lines:
                line.close()  # what the first says to another is not for this one
            return Other(index, count, folder, theirs)
        theirs.close()
        lines.append(_Line(index, pid, ours))
    return First(count, folder, lines)


def unasked() -> int:
    """How many workers there are where nobody said."""
    return min(cores.usable(), MOST_UNASKED)


def _read_failure(line: bytes) -> FastfrontError:
    wrong, text = msgspec.json.decode(line[len(_FAILED) :], type=tuple[bool, str])
    return ConfigError(text) if wrong else StartError(text)
