"""Messages between two processes of one server, over a pair of sockets: words, and questions that are answered.

A message is a length (4 bytes, big-endian) and a msgpack array: word, number, data. The number of a question comes back
with its answer; a word that wants none has number 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from fastfront.errors import WorkerError

logger = logging.getLogger(__name__)

_ANSWER, _SORRY = "answer", "sorry"

Answer = Callable[[str], Awaitable[bytes]]


class Message(NamedTuple):
    """A word, the number of a question or 0, and what comes with it."""

    word: str
    number: int
    data: bytes


_decode = msgspec.msgpack.Decoder(Message).decode


def pack(word: str, number: int = 0, data: bytes = b"") -> bytes:
    """A message as it goes over the line."""
    body = msgspec.msgpack.encode(Message(word, number, data))
    return len(body).to_bytes(4, "big") + body


def say_now(sock: socket.socket, word: str, data: bytes = b"") -> None:
    """Says a word where no loop runs; nothing happens where nobody is there to hear it."""
    sock.setblocking(True)
    with contextlib.suppress(OSError):
        sock.sendall(pack(word, data=data))


def hear_now(sock: socket.socket) -> Message | None:
    """The next message where no loop runs yet; None when the other process has ended."""
    head = _receive(sock, 4)
    body = head and _receive(sock, int.from_bytes(head, "big"))
    return _decode(body) if body else None


def _receive(sock: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        try:
            more = sock.recv(size - len(data))
        except ConnectionError:
            return None
        if not more:
            return None
        data += more
    return data


class Line:
    """One end, on the running loop."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._early = b""  # what was said before the line was open: a signal may be
        self._ended = False

    async def open(self) -> None:
        """To be called before it is followed."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self.sock.dup())
        self._write(self._early)

    def say(self, word: str, data: bytes = b"") -> None:
        """Says a word."""
        self._write(pack(word, data=data))

    async def ask(self, word: str, seconds: float) -> bytes:
        """The answer to a question; WorkerError where none comes in that time."""
        if self._ended:
            raise WorkerError("it has ended")
        number = next(self._numbers)
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        self._write(pack(word, number))
        try:
            async with asyncio.timeout(seconds):
                data: bytes = await answer
                return data
        except TimeoutError:
            raise WorkerError(f"no answer within {seconds:g} s") from None
        finally:
            del self._asked[number]

    async def follow(self, hear: Callable[[str, bytes], None], answer: Answer) -> None:
        """Gives every word to `hear` and every question to `answer`, until the other process has ended."""
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    size = int.from_bytes(await self._reader.readexactly(4), "big")
                    self._take(_decode(await self._reader.readexactly(size)), hear, answer)
        finally:
            self._ended = True
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(WorkerError("it has ended"))

    def _take(self, message: Message, hear: Callable[[str, bytes], None], answer: Answer) -> None:
        if message.word in (_ANSWER, _SORRY):
            self._answered(message)
        elif message.number:
            task = asyncio.get_running_loop().create_task(self._reply(message, answer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:
            try:
                hear(message.word, message.data)
            except Exception:  # the line must go on: by its end the other process knows that this one has ended
                logger.exception("what another worker said could not be taken in: %s", message.word)

    def close(self) -> None:
        """Says no more; the socket itself stays open until the process ends, by which the other one knows that."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, data: bytes) -> None:
        if self._writer is None:
            self._early += data
        elif not self._writer.is_closing():
            self._writer.write(data)

    def _answered(self, message: Message) -> None:
        asked = self._asked.get(message.number)
        if asked is None or asked.done():
            return  # too late
        if message.word == _ANSWER:
            asked.set_result(message.data)
        else:
            asked.set_exception(WorkerError(message.data.decode()))

    async def _reply(self, message: Message, answer: Answer) -> None:
        try:
            reply = pack(_ANSWER, message.number, await answer(message.word))
        except WorkerError as error:
            reply = pack(_SORRY, message.number, str(error).encode())
        self._write(reply)
