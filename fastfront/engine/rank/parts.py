"""One step's outputs, gathered for each client and made its message."""

from __future__ import annotations

import time

from fastfront.engine.rank.frames import DEFAULT_VERSION, NIL, Arrays, Layout, Message, array_header, pack


class Part:
    """One client's outputs of one step, as they come together; `done` are the requests that ended."""

    __slots__ = ("arrays", "count", "done", "pieces")

    def __init__(self, inline_below: int) -> None:
        self.count = 0
        self.pieces: list[bytes] = []
        self.arrays = Arrays(inline_below)
        self.done: list[str] = []


class Parts:
    """The parts of all clients that have one."""

    def __init__(self, index: int, layout: Layout, inline_below: int = 256) -> None:
        self._index = index
        self._layout = layout
        self._inline_below = inline_below
        self._parts: dict[int, Part] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def of(self, client: int) -> Part:
        """The part of one client."""
        part = self._parts.get(client)
        if part is None:
            part = self._parts[client] = Part(self._inline_below)
        return part

    def add(self, client: int, piece: bytes) -> None:
        """One packed output."""
        part = self.of(client)
        part.count += 1
        part.pieces.append(piece)

    def messages(
        self, stats: bytes = NIL, *, finished: bool = False, version: bytes = DEFAULT_VERSION
    ) -> list[Message]:
        """A message for each client, the first with the packed `stats`; `finished`: they name what has ended."""
        messages: list[Message] = []
        for client, part in self._parts.items():
            body = array_header(part.count) + b"".join(part.pieces)
            done = part.done if finished and part.done else None
            frame = self._layout.outputs(pack(self._index), body, stats, time.monotonic(), done, version)
            messages.append((client, [frame, *part.arrays.frames]))
            stats = NIL
        return messages
