"""A worker but the first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from fastfront.errors import ConfigError, FastfrontError
from fastfront.workers import words
from fastfront.workers.line import Line, hear_now, say_now
from fastfront.workers.worker import SIGNALS, Ends, Worker, on_signals

_T = TypeVar("_T")

#: How long the first may take to tell what all the others have counted (s): longer than one of them may.
ANSWER_S = 6.0
#: Characters of an error that are told.
MOST_CHARS = 2000
#: Who logs what the first worker's log has said already, while a worker loads.
_LOADERS = "fastfront.prompt"

_read_list = msgspec.msgpack.Decoder(list[bytes]).decode


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
        on_signals(lambda: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        await self._line.open()
        self._following = asyncio.get_running_loop().create_task(self._follow(process))

    async def before_finding(self) -> None:
        await self._may_find.wait()

    async def all_ready(self, check: Callable[[], None]) -> None:
        self._line.say(words.READY)
        await self._may_listen.wait()
        logging.getLogger(_LOADERS).setLevel(logging.ERROR)
        logging.disable(logging.NOTSET)

    def started(self) -> None:
        logging.getLogger(_LOADERS).setLevel(logging.NOTSET)

    def broken(self, rank: int, times: int, reason: str) -> None:
        self._line.say(words.BROKEN, words.pack_broken(rank, times, reason))

    async def others(self) -> list[bytes]:
        return _read_list(await self._line.ask(words.OTHERS, ANSWER_S))

    @contextlib.contextmanager
    def telling_errors(self) -> Iterator[None]:
        try:
            yield
        except FastfrontError as error:
            text = str(error)[:MOST_CHARS].encode(errors="replace").decode()
            say_now(self._line.sock, words.FAILED, msgspec.msgpack.encode((isinstance(error, ConfigError), text)))
            sys.exit(1)

    async def _follow(self, process: Ends) -> None:
        def hear(word: str, data: bytes) -> None:
            if word == words.FOUND:
                self._may_find.set()
            elif word == words.LISTEN:
                self._may_listen.set()
            elif word == words.SIGNAL:
                process.on_signal()
            elif word == words.BROKEN:
                self.give_up(*words.read_broken(data))

        async def answer(word: str) -> bytes:
            return self.counts()

        await self._line.follow(hear, answer)
        self._line.close()
        process.on_signal()
        process.on_signal()
