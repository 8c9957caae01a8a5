"""A server on 127.0.0.1 that answers each request with the next scripted bytes, in the test's own event loop."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

#: Beside bytes: end the connection as it should be, or with a reset; an event is waited for.
CLOSE, RESET = "close", "reset"
Piece = bytes | str | asyncio.Event

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def event(text: str, **more: Any) -> bytes:
    """A completion's event."""
    body = {"id": "x", "choices": [{"index": 0, "text": text}], **more}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def delta(text: str) -> bytes:
    """A chat's event."""
    body = {"id": "x", "choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def usage(prompt: int, completion: int) -> bytes:
    """The event with the counts."""
    body = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def sized(status: str, body: bytes, *more: str) -> bytes:
    """A whole answer with content-length."""
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *more))
    return head.encode() + b"\r\n" + body


def stream(*events: bytes) -> list[bytes]:
    """A whole chunked answer, a chunk and a write for each event."""
    return [HEAD, *map(chunk, events), END]


@dataclass
class Scripted:
    """What the server was asked: heads and decoded bodies; `connections` counts those that were made."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    connections: int = 0
    #: How many requests were under way at once, at most.
    most: int = 0
    alive: int = 0

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def scripted(*scripts: Sequence[Piece], again: Sequence[Piece] | None = None) -> AsyncIterator[Scripted]:
    """Serves `scripts` in the order in which requests come, then `again` for ever."""
    told = Scripted()
    left = list(scripts)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.connections += 1
        try:
            while await _one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test's loop ends
        finally:
            writer.close()

    async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0] or 0)
        body = await reader.readexactly(length)
        told.heads.append(head)
        told.bodies.append(json.loads(body) if body else None)
        told.alive += 1
        told.most = max(told.most, told.alive)
        try:
            return await _play(left.pop(0) if left else again or [CLOSE], writer)
        finally:
            told.alive -= 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    told.port = server.sockets[0].getsockname()[1]
    try:
        yield told
    finally:
        server.close()


async def _play(script: Sequence[Piece], writer: asyncio.StreamWriter) -> bool:
    """Whether the connection goes on."""
    for piece in script:
        if isinstance(piece, bytes):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        elif isinstance(piece, asyncio.Event):
            await piece.wait()
        else:
            if piece == RESET:
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            return False
    return True
