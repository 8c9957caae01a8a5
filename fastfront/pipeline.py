"""Joins the stages for one request: prompts to engine requests, engine steps to choices; and it owns the abort.

A generation opens one native stream for each choice and gives each to the engine. From then on the engine link feeds
the streams, and Python runs again only where `choice.py` says; the last of that tells whoever waits for the generation.
No task is made for it. To cancel one (the client left) aborts everything of it that an engine is still busy with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec.structs import replace

from fastfront.choice import Observer, OpenChoice
from fastfront.engine.constraints.checker import Checker, with_backend
from fastfront.engine.link import EngineLink
from fastfront.errors import RequestError
from fastfront.fast import Outbox, Router, Vocab
from fastfront.flow import Choice, EventFormat, Generation, ModelInfo, Running, Waiting
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
        return replace(g, sampling=replace(g.sampling, structured_outputs=constraint))

    def start(
        self,
        g: Generation,
        waiting: Waiting,
        open: Callable[[], Outbox] | None = None,
        format: EventFormat | None = None,
    ) -> Running:
        """Gives a checked generation to the engines; its choices go to `waiting`, later, unless it is cancelled.

        With a `format` every event of every choice is written to the outbox that `open` gives as soon as an engine has
        taken the first. Raises RequestError for what an engine must not get, EngineError if there is none to take it.
        """
        job = _Job(self, g, waiting, open, format)
        job.start()
        return job

    async def collect(self, g: Generation) -> list[Choice]:
        """All choices, whole. EngineError if an engine fails; RequestError for what an engine must not get."""
        collected = _Collected()
        job = self.start(await self.checked(g), collected)
        try:
            return await collected.choices
        finally:
            job.cancel()


class _Collected:
    """Choices that a task waits for."""

    def __init__(self) -> None:
        self.choices: asyncio.Future[list[Choice]] = asyncio.get_running_loop().create_future()

    def finished(self, choices: list[Choice]) -> None:
        if not self.choices.done():
            self.choices.set_result(choices)

    def failed(self, error: Exception) -> None:
        if not self.choices.done():
            self.choices.set_exception(error)


class _Job:
    """One generation under way."""

    def __init__(
        self,
        pipeline: Pipeline,
        g: Generation,
        waiting: Waiting,
        open: Callable[[], Outbox] | None,
        format: EventFormat | None,
    ) -> None:
        self.pipeline = pipeline
        self.g = g
        self.waiting = waiting
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
        self.count = self.left = count
        self.over = False

    def start(self) -> None:
        """The answer is opened with the first choice, which shows what is wrong with all."""
        try:
            self._submit()
        except BaseException:
            self.cancel()
            raise

    def _submit(self) -> None:
        """Gives the next choices to an engine, and then others their turn of the loop."""
        g = self.g
        begun = len(self.choices)
        for index in range(begun, min(begun + CHOICES_A_TURN, self.count)):
            choice = OpenChoice(self, index, g.prompts[index // g.n])
            self.choices.append(choice)
            choice.submit()
            if self.open is not None:
                self.outbox = self.outbox or self.open()
                choice.write_to(self.outbox)
        if len(self.choices) < self.count:
            asyncio.get_running_loop().call_soon(self._submit_more)

    def _submit_more(self) -> None:
        if self.over:
            return
        try:
            self._submit()
        except Exception as error:
            self.fail(error)

    def one_ended(self) -> None:
        self.left -= 1
        if self.left == 0:
            choices = [choice.result for choice in self.choices if choice.result is not None]
            self.cancel()
            self.waiting.finished(choices)

    def fail(self, error: Exception) -> None:
        if not self.over:
            self.cancel()
            self.waiting.failed(error)

    def cancel(self) -> None:
        """Ends what is still open."""
        self.over = True
        still_open = [choice for choice in self.choices if choice.is_open]
        if still_open:
            self.pipeline.link.abort([choice.request_id for choice in still_open])
            for choice in still_open:
                choice.is_open = False
                choice.observe("abort")
        for choice in self.choices:
            choice.stream.release()
        self.choices.clear()  # they know the job, too: without this circle nothing here waits for the collector
