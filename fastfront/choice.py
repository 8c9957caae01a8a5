"""One choice under way: owns a native stream, gives its request to an engine, makes events and an answer of its steps.

Python runs here for a choice's beginning and for its end, and for every output where events carry more than text or
where a parser must read it. Everything else the stream does by itself.
"""

from __future__ import annotations

import functools
import time
from typing import Protocol

from fastfront.engine.extras import Extras, PrefillStats, read_extras, read_rows
from fastfront.engine.link import EngineLink
from fastfront.errors import EngineRequestError
from fastfront.fast import Outbox, Patterns, Router, Step, Stream, Vocab, escape
from fastfront.flow import (
    FINISH_REASONS,
    Choice,
    Delta,
    EngineRequest,
    EventFormat,
    Generation,
    ModelInfo,
    Parser,
    Prompt,
    StretchFormat,
    StretchParser,
)
from fastfront.text.gathered import Gathered, wants_logprobs
from fastfront.text.logprobs import TokenTable

#: So many ids before an answer decide how it begins (an unfinished character, a leading space).
CONTEXT = 64
#: Stop strings that are kept compiled: clients send the same few again and again. Longer ones are not worth the memory.
_KEPT_STOPS, _KEPT_CHARS = 256, 256


class Observer(Protocol):
    """Who counts what happens to requests (metrics). Times are in seconds."""

    def observe_first_token(self, engine: int, seconds: float) -> None:
        """A choice's first output came `seconds` after its request arrived."""

    def observe_finished(
        self, engine: int, finish_reason: str, prompt_tokens: int, generated_tokens: int, seconds: float
    ) -> None:
        """A choice ended `seconds` after its request arrived."""


class Engines(Protocol):
    """What all choices of a server share."""

    info: ModelInfo
    vocab: Vocab
    tokens: TokenTable
    link: EngineLink
    router: Router
    observer: Observer | None


class Job(Protocol):
    """The generation that a choice is of. `arrival` is a monotonic time in seconds."""

    g: Generation
    format: EventFormat | None
    outbox: Outbox | None
    arrival: float

    @property
    def pipeline(self) -> Engines:
        """What runs it."""

    def one_ended(self) -> None:
        """A choice has its result."""

    def fail(self, error: Exception) -> None:
        """A choice will have none, and with it all."""


def compiled(stop: tuple[str, ...]) -> Patterns:
    """The stop strings as patterns."""
    return _compiled(stop) if sum(map(len, stop)) <= _KEPT_CHARS else Patterns(stop)


@functools.lru_cache(_KEPT_STOPS)
def _compiled(stop: tuple[str, ...]) -> Patterns:
    return Patterns(stop)


def can_stretch(parser: Parser | None, format: EventFormat | None) -> bool:
    """Whether a parser may leave text to the stream (a StretchParser), and the format writes it (a StretchFormat)."""
    return hasattr(parser, "stretch") and hasattr(format, "frame")


class OpenChoice:
    """The owner of one native stream."""

    __slots__ = (
        "counter", "engine", "gathered", "index", "is_open", "job", "leaves_text", "parser", "prefill", "prompt",
        "read", "request_id", "result", "steps", "stream",
    )  # fmt: skip

    def __init__(self, job: Job, index: int, prompt: Prompt) -> None:
        self.job = job
        self.index = index
        self.prompt = prompt
        self.request_id = ""
        self.is_open = False
        self.engine: int | None = None  # the rank that has it
        self.prefill: PrefillStats | None = None
        self.result: Choice | None = None
        g, text = job.g, job.g.text
        #: Whether the stream hands everything over, so that events can carry more than text.
        self.parser = g.parser() if g.parser is not None else None
        self.counter = g.counter() if g.counter is not None else None
        streamed = job.format is not None
        details = wants_logprobs(g.sampling) or (streamed and text.return_token_ids)
        self.steps = details or (streamed and self.parser is not None)
        #: Whether plain text that the parser need not see may go out by itself.
        self.leaves_text = not details and g.sampling.prompt_logprobs is None and can_stretch(self.parser, job.format)
        self.read = 0  # steps, of those that the stream has given
        self.gathered: Gathered | None = None
        if self.steps or g.sampling.prompt_logprobs is not None:
            self.gathered = Gathered(job.pipeline.tokens, g.sampling, prompt.token_ids)
        self.stream = Stream(
            self,
            job.pipeline.vocab,
            skip_special=text.skip_special_tokens,
            prompt=prompt.token_ids[-CONTEXT:],
            stop=compiled(text.stop) if text.stop else None,
            include_stop=text.include_stop_str_in_output,
            min_tokens=g.sampling.min_tokens,
            keep_ids=details or text.return_token_ids or self.counter is not None,
            interval=g.stream_interval,
            steps=self.steps,
        )

    def submit(self) -> None:
        """Gives the request to an engine."""
        g, pipeline = self.job.g, self.job.pipeline
        ids = self.prompt.token_ids
        self.request_id = pipeline.router.open(self.stream, g.request_id)
        self.is_open = True
        self.engine = pipeline.link.submit(
            EngineRequest(
                request_id=self.request_id,
                external_req_id=g.request_id,
                prompt_token_ids=ids,
                sampling=g.sampling,
                max_tokens=min(g.max_tokens, pipeline.info.max_model_len - len(ids)),
                seed=None if g.seed is None else g.seed + self.index % g.n,
                arrival_time=time.time(),
                cache_salt=g.cache_salt,
                priority=g.priority,
                data_parallel_rank=g.data_parallel_rank,
                session_id=g.session_id,
                trace_headers=g.trace_headers,
                reasoning_ended=g.reasoning_ended,
                reasoning_parser_kwargs=g.reasoning_parser_kwargs,
            )
        )

    def write_to(self, outbox: Outbox) -> None:
        """Turns the stream's text into events."""
        format = self.job.format
        assert format is not None
        prompt_tokens = len(self.prompt.token_ids)
        tail = format.tail(self.index, prompt_tokens)
        if len(tail) > 1 and self.counter is not None:
            self.leaves_text = False  # each event says how much of the answer so far is reasoning
        self.stream.to_outbox(outbox, format.opening(self.index), format.head(self.index), tail, prompt_tokens)
        if self.leaves_text:
            self._leave_text()

    # --- what the engine link calls ---

    def on_step(self, step: Step) -> None:
        self.read += 1
        extras = read_extras(step.raw) if step.raw is not None else None
        if extras is not None:
            self.prefill = self.prefill or extras.prefill
        if self.gathered is not None:
            self._gather(self.gathered, step, extras)
        if step.finish_reason >= 0:
            self._finish(step, extras)
        elif step.due and self.gathered is not None:
            self._tell(self.gathered)
            if self.leaves_text and self.read == self.stream.given:
                self._leave_text()

    def _gather(self, gathered: Gathered, step: Step, extras: Extras | None) -> None:
        rows = None
        if extras is not None:
            frames = self.job.pipeline.link.frames
            if extras.prompt_logprobs is not None and gathered.prompt_logprobs is not None:
                gathered.add_prompt(read_rows(extras.prompt_logprobs, frames))
            if extras.logprobs is not None and gathered.wants_logprobs:
                rows = read_rows(extras.logprobs, frames)
        if self.steps:
            gathered.add(step, rows)
            if self.counter is not None:
                self.counter.feed(step.token_ids)

    def on_error(self, error: Exception) -> None:
        self.is_open = False
        self.job.fail(error)

    def _finish(self, step: Step, extras: Extras | None) -> None:
        self.is_open = False
        job, stream, gathered = self.job, self.stream, self.gathered
        reason = FINISH_REASONS[step.finish_reason]
        self.observe(reason)
        if reason == "error":
            if self.steps and gathered is not None and (gathered or self.parser is not None):
                self._tell(gathered, ending=True)
            elif step.text and job.outbox is not None:
                job.outbox.append(self._event(step.text))
            job.fail(EngineRequestError("the engine ended the request with an error"))
            return
        text, ids, logprobs = (
            gathered.take() if self.steps and gathered is not None else (step.text, stream.token_ids, None)
        )
        if self.counter is not None and not self.steps:
            self.counter.feed(stream.token_ids or ())
        self.result = Choice(
            self.index,
            text,
            reason,
            step.stop_reason,
            len(self.prompt.token_ids),
            stream.tokens,
            self.prefill.num_cached_tokens if self.prefill is not None else None,
            ids,
            extras.kv_transfer_params if extras is not None else None,
            extras.ec_transfer_params if extras is not None else None,
            self.prefill.num_cache_creation_tokens if self.prefill is not None else None,
            logprobs,
            gathered.take_prompt() if gathered is not None else None,
            self.parser.feed(text) + self.parser.finish() if self.parser is not None else None,
            self._reasoning_tokens(),
        )
        if job.outbox is not None and job.format is not None:
            job.outbox.append(job.format.last(self.result))
        job.one_ended()

    def _tell(self, gathered: Gathered, ending: bool = False) -> None:
        """Writes an event of what has come since the last; at an `ending` also what the parser has held back."""
        outbox, format = self.job.outbox, self.job.format
        if outbox is None or format is None:
            return
        text, ids, logprobs = gathered.take()
        events = self.parser.feed(text) if self.parser is not None else None
        if self.parser is not None and events is not None and ending:
            events += self.parser.finish()
        prompt_tokens, tokens = len(self.prompt.token_ids), self.stream.tokens
        of_prompt, reasoning = gathered.take_prompt(), self._reasoning_tokens()
        outbox.append(
            format.delta(Delta(self.index, text, prompt_tokens, tokens, ids, logprobs, of_prompt, events, reasoning))
        )

    def _reasoning_tokens(self) -> int | None:
        return self.counter.count if self.counter is not None else None

    def _leave_text(self) -> None:
        """Leaves to the stream the plain text that begins here, if it does."""
        parser: StretchParser = self.parser  # type: ignore[assignment]
        format: StretchFormat = self.job.format  # type: ignore[assignment]
        begun = parser.stretch()
        if begun is not None:
            event, stretch = begun
            self.stream.begin_stretch(stretch, format.frame(self.index, len(self.prompt.token_ids), event))

    def _event(self, text: str) -> bytes:
        """An event like those that the stream writes itself."""
        format, prompt_tokens = self.job.format, len(self.prompt.token_ids)
        assert format is not None
        first, *counted = format.tail(self.index, prompt_tokens)
        event = format.head(self.index) + escape(text) + first
        for count, piece in zip((prompt_tokens + self.stream.tokens, self.stream.tokens), counted, strict=False):
            event += b"%d%b" % (count, piece)
        return event

    def observe(self, reason: str) -> None:
        """Tells the metrics that the choice has ended; one that never reached an engine did not begin either."""
        observer, stream, arrival = self.job.pipeline.observer, self.stream, self.job.arrival
        if observer is None or self.engine is None:
            return
        if stream.tokens:
            observer.observe_first_token(self.engine, stream.first_at - arrival)
        seconds = (stream.last_at if reason != "abort" else time.monotonic()) - arrival
        observer.observe_finished(self.engine, reason, len(self.prompt.token_ids), stream.tokens, seconds)
