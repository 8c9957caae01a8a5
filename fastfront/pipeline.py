"""Joins the stages for one request: prompts to engine requests, engine steps to choices; and it owns the abort.

A generation opens one native stream for each choice and gives each to the engine. From then on the engine link feeds
the streams, and Python runs again only where `choice.py` says. Whoever awaits a generation and is cancelled (the client
left) aborts, by that, everything of it that an engine is still busy with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from fastfront.choice import Observer, OpenChoice
from fastfront.engine.constraints.checker import Checker, with_backend
from fastfront.engine.link import EngineLink
from fastfront.errors import RequestError
from fastfront.fast import Outbox, Router, Vocab
from fastfront.flow import Choice, EventFormat, Generation, ModelInfo
from fastfront.prompt.prompter import Prompter
from fastfront.text.logprobs import TokenTable

#: Choices of one generation, and how many are given to the engines in one turn of the loop.
MAX_CHOICES, CHOICES_A_TURN = 16384, 32


class Pipeline:
    """Runs generations on the engines behind `link`, whose router is `router`."""

    def __init__(
        self,
        info: ModelInfo,
        prompter: Prompter,
        vocab: Vocab,
        link: EngineLink,
        router: Router,
        observer: Observer | None = None,
        checker: Checker | None = None,
    ) -> None:
        self.info = info
        self.prompter = prompter
        self.vocab = vocab
        self.tokens = TokenTable(vocab)
        self.link = link
        self.router = router
        self.observer = observer
        self.checker = checker

    async def checked(self, g: Generation) -> Generation:
        """The generation with the backend of its constraint; RequestError if no backend takes that."""
        constraint = g.sampling.structured_outputs
        if constraint is None:
            return g
        if self.checker is None:
            constraint = with_backend(constraint)
        else:
            constraint = await self.checker.check(constraint, g.constrained_by)
        return g._replace(sampling=msgspec.structs.replace(g.sampling, structured_outputs=constraint))

    async def collect(self, g: Generation) -> list[Choice]:
        """All choices, whole. EngineError if an engine fails; RequestError for what an engine must not get."""
        return await _Job(self, g).run()

    async def stream(self, g: Generation, open: Callable[[], Outbox], format: EventFormat) -> list[Choice]:
        """Writes every event of every choice to the outbox that `open` gives once the engines have taken all requests.

        The choices, once all have ended, carry of their text what their last event did.
        """
        return await _Job(self, g, open, format).run()


class _Job:
    """One generation under way."""

    def __init__(
        self,
        pipeline: Pipeline,
        g: Generation,
        open: Callable[[], Outbox] | None = None,
        format: EventFormat | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.g = g
        self.open = open
        self.format = format
        self.outbox: Outbox | None = None
        self.arrival = time.monotonic()
        count = len(g.prompts) * g.n
        if count > MAX_CHOICES:
            raise RequestError(
                f"{len(g.prompts)} prompts with n={g.n} make {count} choices; one request may have {MAX_CHOICES}.",
                param="n", value=g.n, limit=MAX_CHOICES,
            )  # fmt: skip
        self.choices: list[OpenChoice] = []
        self.left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> list[Choice]:
        try:
            self.g = await self.pipeline.checked(self.g)
            await self.submit()
            if self.left:
                await self.done
            return [choice.result for choice in self.choices if choice.result is not None]
        finally:
            self.abort()
            for choice in self.choices:
                choice.stream.release()
            self.choices.clear()  # they know the job, too: without this circle nothing here waits for the collector

    async def submit(self) -> None:
        """Gives every choice to an engine. The answer is opened with the first, which shows what is wrong with all."""
        index = 0
        for prompt in self.g.prompts:
            for _ in range(self.g.n):
                choice = OpenChoice(self, index, prompt)
                self.choices.append(choice)
                choice.submit()
                if self.open is not None:
                    self.outbox = self.outbox or self.open()
                    choice.write_to(self.outbox)
                index += 1
                if index % CHOICES_A_TURN == 0:
                    await asyncio.sleep(0)
                    if self.done.done():  # one has failed meanwhile, and with it all
                        return

    def abort(self) -> None:
        """Ends what is still open."""
        still_open = [choice for choice in self.choices if choice.is_open]
        self.pipeline.link.abort([choice.request_id for choice in still_open])
        for choice in still_open:
            choice.is_open = False
            choice.observe("abort")

    def one_ended(self) -> None:
        self.left -= 1
        if self.left == 0 and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
