"""Comments that keep a silent stream from being taken for a dead one by what lies between server and client."""

from __future__ import annotations

import asyncio

from fastfront.fast import Outbox

#: A line that clients of server-sent events pass over.
COMMENT = b": keep-alive\n\n"
#: Looks in one interval. Silence that began within one is told a little early rather than late.
_LOOKS = 4


class KeepAlive:
    """Adds a comment to a stream's body after each `seconds` in which nothing else came; 0: never.

    Events are added whole, so a comment is never within one; tokens cost nothing, as the body counts its additions. A
    client that has not read what is there is not sent more.
    """

    def __init__(self, seconds: float) -> None:
        self._pause = seconds / _LOOKS
        self._seen = 0
        self._quiet = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, outbox: Outbox) -> None:
        """The stream has begun."""
        if self._pause:
            self._seen = outbox.appended
            self._wait(outbox)

    def stop(self) -> None:
        """The stream ends: no more comments."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, outbox: Outbox) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._look, outbox)

    def _look(self, outbox: Outbox) -> None:
        if outbox.closed:
            return
        if outbox.appended != self._seen or outbox.pending():
            self._quiet = 1
        else:
            self._quiet += 1
        if self._quiet == _LOOKS:
            outbox.append(COMMENT)
            outbox.flush()
            self._quiet = 0
        self._seen = outbox.appended
        self._wait(outbox)
