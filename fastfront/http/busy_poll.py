"""Keeps the loop awake a moment after an answer, where a client follows each answer with its next request at once.

Going to sleep and being woken takes longer than a small request itself, most of all on virtual machines. So the loop
looks for the next request before it sleeps, as long as that pays. With several clients it does not: while the loop
sleeps their requests gather, and many at once cost less.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

#: How long to look (s): about what a sleep costs, so looking in vain costs no more than a second one.
LOOK_S = 50e-6
#: From one answer to a client to the next (s), if the loop is to look: a sleep, the client's own work and ours.
NEAR_S = 250e-6
#: After looking in vain the next answers are passed over, twice as many each time, up to so many.
MOST_SKIPPED = 255


class BusyPoll:
    """Is told whenever a request has been answered at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._client = -1  # who had the last answer
        self._answered_at = 0.0  # and when (s)
        self._until = 0.0  # when to give up
        self._looking = False
        self._last_skip = self._to_skip = 0

    def answered(self, client: int) -> None:
        """A request was answered, and nothing is left to do; `client` is its connection's descriptor."""
        if client != self._client:
            self._client, self._answered_at = client, 0.0
            return
        now = perf_counter()
        near = now - self._answered_at < NEAR_S
        self._answered_at = now
        if not near:
            return
        if self._looking:  # it came while the loop was awake
            self._last_skip = 0
        elif self._to_skip:
            self._to_skip -= 1
            return
        else:
            self._looking = True
            self._loop.call_soon(self._look)
        self._until = now + LOOK_S

    def _look(self) -> None:
        if perf_counter() < self._until:
            self._loop.call_soon(self._look)
        else:
            self._looking = False
            self._to_skip = self._last_skip = min(2 * self._last_skip + 1, MOST_SKIPPED)
