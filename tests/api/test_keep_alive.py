"""Comments in silent streams, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from fastfront.api.keep_alive import COMMENT, KeepAlive
from fastfront.fast import Flusher, Outbox


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time goes on only by `pass_time`."""

    now = 0.0

    def time(self) -> float:
        """Seconds."""
        return self.now

    async def pass_time(self, seconds: float) -> None:
        """In steps of an eighth of a second; whatever is due runs."""
        for _ in range(round(seconds * 8)):
            self.now += 0.125
            await asyncio.sleep(0)
            await asyncio.sleep(0)


class Owner:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.overflows = 0

    def outbox_blocked(self, data: bytes) -> None:
        self.written += data

    def outbox_overflow(self) -> None:
        self.overflows += 1

    def outbox_error(self, error: OSError) -> None:
        raise error


class Body:
    """A stream's body and its comments."""

    def __init__(self, clock: Clock, seconds: float, limit: int = 1000) -> None:
        self.clock = clock
        self.owner = Owner()
        self.flusher = Flusher()
        self.outbox = Outbox(self.flusher, self.owner, -1, limit, False)
        self.comments = KeepAlive(seconds)
        self.comments.start(self.outbox)

    def add(self, data: bytes) -> None:
        """An event of the answer."""
        self.outbox.append(data)
        self.flusher.flush()

    @property
    def written(self) -> bytes:
        """All so far."""
        return self.owner.written


@pytest.fixture
def clock() -> Clock:
    """The loop."""
    return Clock()


def run(clock: Clock, work: Coroutine[Any, Any, None]) -> None:
    """Runs the test's part."""
    try:
        clock.run_until_complete(work)
    finally:
        clock.close()


def test_every_interval_of_silence_from_the_start_on(clock: Clock) -> None:
    async def work() -> None:
        body = Body(clock, 2)
        for count in range(4):
            assert body.written == COMMENT * count
            await clock.pass_time(2)
        body.comments.stop()
        await clock.pass_time(10)
        assert body.written == COMMENT * 4

    run(clock, work())


def test_an_answer_that_flows_has_none(clock: Clock) -> None:
    async def work() -> None:
        body = Body(clock, 2)
        for _ in range(20):
            await clock.pass_time(1)
            body.add(b"x")
        assert body.written == b"x" * 20
        await clock.pass_time(2)
        assert body.written == b"x" * 20 + COMMENT
        await clock.pass_time(1.5)
        body.add(b"y")
        await clock.pass_time(1.25)
        assert body.written == b"x" * 20 + COMMENT + b"y"
        body.comments.stop()

    run(clock, work())


def test_none_without_an_interval(clock: Clock) -> None:
    async def work() -> None:
        body = Body(clock, 0)
        await clock.pass_time(100)
        assert body.written == b""

    run(clock, work())


def test_a_client_that_does_not_read_gets_no_more(clock: Clock) -> None:
    async def work() -> None:
        body = Body(clock, 1)
        body.outbox.backlog = 5  # the transport has not got rid of what came before
        await clock.pass_time(5)
        assert body.written == b""
        body.outbox.backlog = 0
        await clock.pass_time(1)
        assert body.written == COMMENT
        body.comments.stop()

    run(clock, work())


def test_the_limit_of_what_is_pending_is_kept(clock: Clock) -> None:
    async def work() -> None:
        body = Body(clock, 1, limit=len(COMMENT) - 1)
        await clock.pass_time(3)
        assert (body.written, body.owner.overflows, body.outbox.closed) == (b"", 1, True)

    run(clock, work())
