"""Several processes on one port, for more cores than one event loop can use.

The first worker forks the others before anything has begun: only what must be bound first is there. From then on each
is a server of its own, with its own copy of the model's tokenizer, and the kernel spreads connections over them. The
first says when: it alone decides what to serve and finds the model, all listen once all have loaded, and they end with
it. It hears of their errors and ends if one of them does; if it is killed, they notice.

The first has a line to each other worker. Over these it also gathers what all have counted, for whichever is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import msgspec

from fastfront import cores, log
from fastfront.errors import ConfigError, FastfrontError, StartError, WorkerError
from fastfront.line import Line, hear_now, say_now

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Workers where nobody said how many: one for each core, but no more than these.
MOST_UNASKED = 4
#: How long the others may take to end, beside the time that they drain for (s).
GRACE_S = 20.0
#: How long another worker may take to tell what it has counted (s), and the first what all the others have.
ANSWER_S, ALL_ANSWERS_S = 5.0, 6.0
#: Files that a server needs open, and for each worker: sockets for HTTP and engines, and a line.
FILES, FILES_A_WORKER = 64, 5
#: Characters of an error that are told.
MOST_CHARS = 2000
#: Who logs what the first worker's log has said already, while a worker loads.
_LOADERS = "fastfront.prompt"

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_AGREED, _FOUND, _READY, _LISTEN, _SIGNAL, _FAILED = "agreed", "found", "ready", "listen", "signal", "failed"
_COUNTS, _OTHERS = "counts", "others"

_read_list = msgspec.msgpack.Decoder(list[bytes]).decode
_read_failure = msgspec.msgpack.Decoder(tuple[bool, str]).decode


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

    def agree(self, decide: Callable[[], _T]) -> _T:
        """What the first worker decides, for all; before there is a loop."""
        return decide()

    async def begin(self, process: Ends) -> None:
        """The loop runs, and `process` is what ends."""
        _on_signals(process.on_signal)

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

    async def end(self, *, quick: bool, drain: float, hurry: asyncio.Event) -> None:
        """Ends the others, who may drain for so many seconds unless it must be quick, and returns when all have.

        They have been told, too, when `hurry` is set.
        """

    @contextlib.contextmanager
    def telling_errors(self) -> Iterator[None]:
        """Errors within are told to the first worker, whose they become."""
        yield


class _Child:
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
        if word == _READY:
            self.ready.set()
        elif word == _FAILED:
            wrong, text = _read_failure(data)
            self._failure = ConfigError(text) if wrong else StartError(text)

    async def counts(self) -> bytes:
        """What it has counted; WorkerError."""
        try:
            return await self.line.ask(_COUNTS, ANSWER_S)
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

    def __init__(self, count: int, children: list[_Child]) -> None:
        super().__init__(0, count)
        self._children = children
        self._ending = False

    def agree(self, decide: Callable[[], _T]) -> _T:
        decided = decide()
        data = pickle.dumps(decided)
        for child in self._children:
            say_now(child.line.sock, _AGREED, data)
        return decided

    async def begin(self, process: Ends) -> None:
        def on_signal() -> None:
            self._say(_SIGNAL)
            process.on_signal()

        _on_signals(on_signal)
        for child in self._children:
            await child.line.open()
            child.gone = asyncio.get_running_loop().create_task(self._follow(child, process))

    def found(self) -> None:
        self._say(_FOUND)

    async def all_ready(self, check: Callable[[], None]) -> None:
        for child in self._children:
            await child.ready.wait()
        check()
        self._say(_LISTEN)

    async def others(self) -> list[bytes]:
        return await self._gather(None)

    async def end(self, *, quick: bool, drain: float, hurry: asyncio.Event) -> None:
        self._ending = True
        if quick:
            self._say(_SIGNAL)
            self._say(_SIGNAL)
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
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            yield
        finally:
            for child in self._children:  # those that are left have heard of nothing yet
                child.line.sock.close()
                if child.status is None:
                    child.kill()
                    child.reap()

    async def _follow(self, child: _Child, process: Ends) -> None:
        async def answer(word: str) -> bytes:
            return msgspec.msgpack.encode([self.counts(), *await self._gather(child)])

        try:
            await child.line.follow(child.hear, answer)
        finally:
            child.line.close()
            error = await child.ended()
            if child.status != 0 or not self._ending:
                process.fail(error)

    async def _gather(self, asker: _Child | None) -> list[bytes]:
        return await asyncio.gather(*(child.counts() for child in self._children if child is not asker))

    def _say(self, word: str) -> None:
        for child in self._children:
            child.line.say(word)


class Other(Worker):
    """A worker but the first. Signals are the first one's: a terminal sends them to all."""

    def __init__(self, index: int, count: int, sock: socket.socket) -> None:
        super().__init__(index, count)
        self._line = Line(sock)
        self._may_find, self._may_listen = asyncio.Event(), asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        logging.disable(logging.WARNING)  # until it serves it has nothing to say that the first does not say

    def agree(self, decide: Callable[[], _T]) -> _T:
        message = hear_now(self._line.sock)
        if message is None:
            sys.exit(1)  # the first has ended, and has said why
        decided: _T = pickle.loads(message.data)
        return decided

    async def begin(self, process: Ends) -> None:
        _on_signals(lambda: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        await self._line.open()
        self._following = asyncio.get_running_loop().create_task(self._follow(process))

    async def before_finding(self) -> None:
        await self._may_find.wait()

    async def all_ready(self, check: Callable[[], None]) -> None:
        self._line.say(_READY)
        await self._may_listen.wait()
        logging.getLogger(_LOADERS).setLevel(logging.ERROR)
        logging.disable(logging.NOTSET)

    def started(self) -> None:
        logging.getLogger(_LOADERS).setLevel(logging.NOTSET)

    async def others(self) -> list[bytes]:
        return _read_list(await self._line.ask(_OTHERS, ALL_ANSWERS_S))

    @contextlib.contextmanager
    def telling_errors(self) -> Iterator[None]:
        try:
            yield
        except FastfrontError as error:
            text = str(error)[:MOST_CHARS].encode(errors="replace").decode()
            say_now(self._line.sock, _FAILED, msgspec.msgpack.encode((isinstance(error, ConfigError), text)))
            sys.exit(1)

    async def _follow(self, process: Ends) -> None:
        def hear(word: str, data: bytes) -> None:
            if word == _FOUND:
                self._may_find.set()
            elif word == _LISTEN:
                self._may_listen.set()
            elif word == _SIGNAL:
                process.on_signal()

        async def answer(word: str) -> bytes:
            return self.counts()

        await self._line.follow(hear, answer)
        self._line.close()
        process.on_signal()
        process.on_signal()


def fork(count: int) -> Worker:
    """Makes `count` workers of this process, and tells which of them it is now. Raises StartError if that cannot be.

    To be called before there is a loop or a thread: of those only the caller would go on in the others. SIGTERM and
    SIGINT wait from here until `telling_errors` (the first) and `begin` (another): what runs at a fork must not be cut.
    """
    if count == 1:
        return Worker()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be none, or it is closed
            stream.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    children: list[_Child] = []
    for index in range(1, count):
        try:
            ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError as error:  # those that are there notice that this one ends
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            raise StartError(f"cannot start {count} frontend workers: {error.strerror}") from error
        if pid == 0:
            for sock in (ours, *(child.line.sock for child in children)):
                sock.close()
            log.name_worker(index)
            return Other(index, count, theirs)
        theirs.close()
        children.append(_Child(index, pid, ours))
    log.name_worker(0)
    return First(count, children)


def check_room(count: int) -> None:
    """StartError where the process may not have as many files open as so many workers need."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = FILES + FILES_A_WORKER * count
    if count > 1 and limit != resource.RLIM_INFINITY and limit < needed:
        raise StartError(
            f"{count} frontend workers need {needed} open files, and the limit is {limit} (ulimit -n); "
            "--api-server-count takes fewer workers"
        )


def unasked() -> int:
    """How many workers there are where nobody said."""
    return min(cores.usable(), MOST_UNASKED)


def _on_signals(call: Callable[[], None]) -> None:
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, call)
