"""How many requests are under way at once, in which order they begin, and what waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter

import pytest

from fastfront.load.lanes import Job, Lanes
from fastfront.load.record import Record
from fastfront.load.sample import Sample


class Server:
    """Answers when a test says so; `sent` are the requests so far, `most` how many were under way at once."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.open: dict[int, asyncio.Future[None]] = {}
        self.most = 0

    async def send(self, sample: Sample, record: Record) -> None:
        number = sample.prompt_tokens
        self.sent.append(number)
        self.open[number] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.open))
        await self.open[number]
        del self.open[number]

    def answer(self, number: int) -> None:
        self.open[number].set_result(None)


def jobs(*ahead: float) -> list[Job]:
    """Requests 0, 1, 2 ..., each due so many seconds from now."""
    now = perf_counter()
    return [(Sample("", number, 1), Record(due=now + after)) for number, after in enumerate(ahead)]


async def turns(count: int = 20) -> None:
    """Lets the loop do what there is to do."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_one_follows_the_other_in_order() -> None:
    async def go() -> None:
        server = Server()
        task = asyncio.create_task(Lanes(jobs(*[0.0] * 5), server.send, 2).run())
        await turns()
        assert server.sent == [0, 1]
        server.answer(1)
        await turns()
        assert server.sent == [0, 1, 2]
        for number in (0, 2, 3, 4):
            server.answer(number)
            await turns()
        await task
        assert server.sent == [0, 1, 2, 3, 4]
        assert server.most == 2

    asyncio.run(go())


@pytest.mark.parametrize("limit", [1, 3, 40, None])
def test_every_request_is_sent_once(limit: int | None) -> None:
    async def go() -> Server:
        server = Server()
        task = asyncio.create_task(Lanes(jobs(*[0.0] * 40), server.send, limit).run())
        while not task.done():
            await turns(100)
            for number in list(server.open)[::-1]:
                server.answer(number)
        await task
        return server

    server = asyncio.run(go())
    assert server.sent == list(range(40))
    assert server.most == (limit or 40)


def test_what_is_due_at_once_begins_a_turn_of_the_loop_apart() -> None:
    async def go() -> None:
        server = Server()
        task = asyncio.create_task(Lanes(jobs(*[0.0] * 3), server.send, None).run())
        seen = []
        while len(server.sent) < 3:
            await asyncio.sleep(0)
            seen.append(len(server.sent))
        assert seen == sorted(seen)
        assert set(seen) >= {1, 2, 3}
        for number in range(3):
            server.answer(number)
        await task

    asyncio.run(go())


def test_only_one_lane_waits_for_a_time_to_come() -> None:
    taken = 0

    def watched() -> Iterator[Job]:
        nonlocal taken
        for job in jobs(0.0, 0.0, 3600.0, 3600.0):
            taken += 1
            yield job

    async def go() -> None:
        server = Server()
        task = asyncio.create_task(Lanes(watched(), server.send, None).run())
        await turns()
        assert (server.sent, taken) == ([0, 1], 3)
        server.answer(0)
        server.answer(1)
        await turns()
        assert (server.sent, taken) == ([0, 1], 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())


def test_none_begins_before_its_time() -> None:
    async def go() -> None:
        began: list[tuple[float, float]] = []

        async def send(_: Sample, record: Record) -> None:
            began.append((perf_counter(), record.due))

        await Lanes(jobs(0.0, 0.002, 0.004), send, 2).run()
        assert len(began) == 3
        assert all(now >= due for now, due in began)

    asyncio.run(go())


def test_nothing_to_send() -> None:
    asyncio.run(Lanes([], Server().send, 4).run())


def test_a_failure_ends_all() -> None:
    async def broken(sample: Sample, record: Record) -> None:
        if sample.prompt_tokens:
            raise ValueError("odd")
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(Lanes(jobs(0.0, 0.0, 0.0), broken, 2).run())
    assert [str(error) for error in caught.value.exceptions] == ["odd"]
