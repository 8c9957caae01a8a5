"""A link with fake engines, and an owner that keeps what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastfront.engine.link import EngineLink, Waves
from fastfront.engine.wire import EngineCoreOutput
from fastfront.fast import Flusher, Patterns, Router, Stream, Vocab
from fastfront.flow import EngineRequest, SamplingParams
from tests.engine.engines import FakeEngine, adopted, listeners

LETTERS = Vocab([bytes([n]) for n in range(256)])


class Caller:
    """The owner of one stream, as the pipeline will be; `done` holds its text or its error."""

    def __init__(self, stop: str | None = None) -> None:
        self.text = ""
        self.steps: list[Any] = []
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.stream = Stream(self, LETTERS, stop=Patterns([stop]) if stop else None)
        self.request_id = ""

    def on_step(self, step: Any) -> None:
        self.steps.append(step)
        self.text += step.text
        if step.finish_reason >= 0:
            self.done.set_result(self.text)

    def on_error(self, error: Exception) -> None:
        self.done.set_exception(error)


class Bench:
    """A started link, its engines, and what it said of death and life."""

    def __init__(self, link: EngineLink, router: Router, addresses: list[str]) -> None:
        self.link = link
        self.router = router
        self.addresses = addresses
        self.engines: list[FakeEngine] = []
        self.events: list[str] = []
        self._changed = asyncio.Event()
        link.on_dead = lambda error: self._note(f"dead: {error}")
        link.on_alive = lambda: self._note("alive")

    def _note(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, there: Callable[[], bool]) -> None:
        """Waits for a death or a return."""
        while not there():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)

    def engine(self, rank: int, reconnect_ms: int = 10) -> FakeEngine:
        """Starts one more fake engine; it never connects again with -1."""
        self.engines.append(FakeEngine(rank, self.addresses, reconnect_ms))
        return self.engines[-1]

    def open_requests(self) -> list[str]:
        """The ids of all requests that the link holds an engine to be busy with."""
        return [request_id for rank in self.link._engines for request_id in self.link._outstanding.of(rank)]

    def submit(self, name: str = "cmpl", *, stop: str | None = None, **fields: Any) -> Caller:
        """Opens a stream and gives its request to the link."""
        caller = Caller(stop)
        caller.request_id = self.router.open(caller.stream, name)
        prompt = fields.pop("prompt", [1, 2, 3])
        fields = {"sampling": SamplingParams(), "max_tokens": 10, **fields}
        request = EngineRequest(request_id=caller.request_id, prompt_token_ids=prompt, arrival_time=1.5, **fields)
        self.link.submit(request)
        return caller


def said(request_id: str, text: str, finish: int | None = None) -> EngineCoreOutput:
    """An output with the letters of `text` as its tokens."""
    return EngineCoreOutput(request_id, list(text.encode()), finish_reason=finish)


@asynccontextmanager
async def bench(
    folder: Path,
    ranks: Iterable[int] = (0,),
    family: str = "ipc",
    waves: Waves | None = None,
    reconnect_ms: int = 10,
    **options: Any,
) -> AsyncIterator[Bench]:
    """A link with registered engines of these ranks."""
    sockets, addresses = listeners(family, folder)
    ranks = list(ranks)
    router = Router()
    options = {"vocab_size": 256, "start": ranks[0], "count": len(ranks), **options}
    link = EngineLink(router, Flusher(), waves=waves, **options)
    made = Bench(link, router, addresses)
    try:
        for rank in ranks:
            made.engine(rank, reconnect_ms).register()
        await link.start(adopted(sockets[0]), adopted(sockets[1]))
        await link.wait_ready(20)
        yield made
    finally:
        link.close()
        for engine in made.engines:
            engine.context.destroy(linger=0)
        await asyncio.sleep(0)
