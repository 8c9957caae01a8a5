"""One run: the server is ready, warm, and then asked on time; or, in conversations, when it has answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from itertools import cycle
from time import perf_counter
from typing import Any, NamedTuple

from fastfront.errors import StartError
from fastfront.load.arrivals import due_times
from fastfront.load.body import Bodies
from fastfront.load.client import Client
from fastfront.load.lanes import Job, Lanes
from fastfront.load.options import Load, Turns
from fastfront.load.progress import Progress
from fastfront.load.record import Record
from fastfront.load.sample import Conversation, Messages, Sample

#: Seconds between two tries of a server that is not ready.
RETRY = 0.5
Say = Callable[[str], None]


class Run(NamedTuple):
    """What came of it. `began` is of time.perf_counter, `duration` seconds from there to the last answer's end."""

    records: list[Record]
    began: float
    duration: float


class Runner:
    """Runs samples or conversations against one target; `say` is told what happens before and after."""

    def __init__(self, load: Load, client: Client, progress: Progress, say: Say) -> None:
        self.load = load
        self._client = client
        self._progress = progress
        self._say = say
        self._bodies = Bodies(load.target, load.asking)
        self._rng = random.Random(load.seed)
        self._names = cycle(load.target.names)
        self._asked = 0

    async def samples(self, samples: Sequence[Sample]) -> Run:
        """Sends each sample when it is due, and no more than `max_concurrency` at once: the others wait their turn."""
        traffic = self.load.traffic
        await self._prepare(samples[0])
        dues = due_times(traffic, len(samples), self.load.seed)
        if traffic.self_timed:
            dues = [sample.due or 0.0 for sample in samples]
        records: list[Record] = []
        async with self._progress, self._profiled():
            began = perf_counter()
            jobs = self._jobs(zip(samples, dues, strict=True), began, records)
            await Lanes(jobs, self._sample, traffic.max_concurrency).run()
        return Run(records, began, perf_counter() - began)

    async def conversations(self, talks: Sequence[Conversation], turns: Turns) -> Run:
        """Holds all conversations, `turns.concurrency` at once; one ends with its last turn or its first error."""
        first = Sample(self._opening(talks[0]), 0, talks[0].output_tokens[0])
        await self._prepare(first)
        limit = turns.concurrency or self.load.traffic.max_concurrency
        gate = asyncio.Semaphore(limit) if limit else None
        records: list[Record] = []
        async with self._progress, self._profiled(), asyncio.TaskGroup() as group:
            began = perf_counter()
            for talk in talks:
                if gate is not None:
                    await gate.acquire()
                group.create_task(self._talk(talk, turns.delay, records, gate))
        return Run(records, began, perf_counter() - began)

    def _opening(self, talk: Conversation) -> str | Messages:
        question = talk.questions[0]
        return [{"role": "user", "content": question}] if self.load.target.chat else question

    async def _talk(
        self, talk: Conversation, delay: float, records: list[Record], gate: asyncio.Semaphore | None
    ) -> None:
        """One conversation: every question comes with all that went before."""
        model = self._model()
        so_far: Any = [] if self.load.target.chat else ""
        try:
            for turn, (question, output) in enumerate(zip(talk.questions, talk.output_tokens, strict=True)):
                if turn and delay:
                    await asyncio.sleep(delay)
                so_far = so_far + ([{"role": "user", "content": question}] if self.load.target.chat else question)
                record = Record(0, perf_counter(), keep_text=True, turn=turn)
                records.append(record)
                await self._one(Sample(so_far, 0, output), record, model)
                if record.error:
                    break
                answer = record.text
                so_far = so_far + ([{"role": "assistant", "content": answer}] if self.load.target.chat else answer)
        finally:
            if gate is not None:
                gate.release()

    def _jobs(self, timed: Iterable[tuple[Sample, float]], began: float, records: list[Record]) -> Iterator[Job]:
        """A record for each sample, made (and put into `records`) when its turn comes."""
        for sample, due in timed:
            record = Record(sample.prompt_tokens, began + due, self.load.wanted.detailed)
            records.append(record)
            yield sample, record

    async def _sample(self, sample: Sample, record: Record) -> None:
        await self._one(sample, record, self._model())

    async def _one(self, sample: Sample, record: Record, model: str) -> None:
        prefix = self.load.target.request_id_prefix
        request_id = f"{prefix}{self._asked}" if prefix else ""
        self._asked += 1
        await self._client.stream(self._bodies.write(sample, model), record, request_id)
        self._progress.count(record.error)

    def _model(self) -> str:
        """The model's name for the next request: its only one, or one of the adapters'."""
        if self.load.target.pick_names == "random":
            return self._rng.choice(self.load.target.names)
        return next(self._names)

    async def _prepare(self, sample: Sample) -> None:
        traffic = self.load.traffic
        if traffic.reset_prefix_cache:
            await self._client.ask("POST", "/reset_prefix_cache")
        if traffic.ready_timeout > 0:
            await self._ready(sample)
        if traffic.warmups:
            self._say(f"Warming up with {traffic.warmups} requests...")
            gate = asyncio.Semaphore(traffic.max_concurrency or traffic.warmups)
            await asyncio.gather(*(self._try(sample, gate) for _ in range(traffic.warmups)))

    async def _try(self, sample: Sample, gate: asyncio.Semaphore | None = None) -> Record:
        """A request outside of the measurement."""
        record = Record()
        async with gate or nullcontext():
            await self._client.stream(self._bodies.write(sample, self._model()), record)
        return record

    async def _ready(self, sample: Sample) -> None:
        """Returns when the server has answered once; raises StartError when the time for that is up."""
        end = perf_counter() + self.load.traffic.ready_timeout
        self._say(f"Waiting for {self.load.target.base_url} for up to {self.load.traffic.ready_timeout:.0f} s...")
        while error := (await self._try(sample)).error:
            if perf_counter() + RETRY > end:
                raise StartError(f"{self.load.target.base_url} is not ready: {error}")
            await asyncio.sleep(RETRY)

    @asynccontextmanager
    async def _profiled(self) -> AsyncIterator[None]:
        """The server's profiler runs within, where that is asked for."""
        if self.load.traffic.profile:
            await self._client.ask("POST", "/start_profile")
            self._say("Profiler started")
        yield
        if self.load.traffic.profile:
            await self._client.ask("POST", "/stop_profile")
            self._say("Profiler stopped")
