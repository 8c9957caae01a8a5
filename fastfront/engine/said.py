"""What a child writes to its standard error: passed on as it comes, but for the one line that says why it ends."""

from __future__ import annotations

from collections import deque

#: An engine of ours that cannot go on writes this and the reason, on one line.
REASON = b"fastfront engine: error: "
#: Lines that are kept, and the bytes of one.
TAIL_LINES, TAIL_LINE_BYTES = 20, 2000


class Said:
    """Takes the bytes of a child and gives those to pass on."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        #: What stood behind REASON.
        self.reason: str | None = None
        self._line = b""  # of the unfinished line the end that matters
        self._passed = 0  # bytes of it that were passed on

    def feed(self, data: bytes) -> bytes:
        """The bytes of `data`, and of what was held back, that are to be passed on now."""
        out: list[bytes] = []
        *lines, rest = (self._line + data).split(b"\n")
        for line in lines:
            self._end(line, out)
        self._line = rest
        if not REASON.startswith(rest[: len(REASON)]):
            out.append(rest[self._passed :])
            self._passed = len(rest)
            if len(rest) > TAIL_LINE_BYTES:
                self._line = rest[-TAIL_LINE_BYTES:]
                self._passed = TAIL_LINE_BYTES
        return b"".join(out)

    def finish(self) -> bytes:
        """The child's standard error has ended: the rest."""
        out: list[bytes] = []
        if self._line:
            line, self._line = self._line, b""
            self._end(line, out, b"")
        return b"".join(out)

    def _end(self, line: bytes, out: list[bytes], newline: bytes = b"\n") -> None:
        passed, self._passed = self._passed, 0
        if line.startswith(REASON) and not passed:
            self.reason = _text(line[len(REASON) :])
            return
        out.append(line[passed:] + newline)
        line = line.rpartition(b"\r")[2]  # what a bar has left of its line
        if line.strip():
            self.tail.append(_text(line))


def _text(line: bytes) -> str:
    return line[-TAIL_LINE_BYTES:].decode("utf-8", "replace").rstrip()
