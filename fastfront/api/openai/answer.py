"""Runs one generation and sends its answer, whole or as a stream.

An answer under way needs no task: the engines' steps move it on, and the last of them ends it. Only what must be waited
for before (is this constraint one that the engine takes?) and a search with beams are coroutines.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from fastfront.api.errors import error_event
from fastfront.api.keep_alive import KeepAlive
from fastfront.api.openai.events import DONE, EVENT_STREAM, STREAM_HEADERS, StreamFormat
from fastfront.api.openai.request_log import RequestLog
from fastfront.api.state import ApiState
from fastfront.beams import BeamOptions, search
from fastfront.fast import Outbox
from fastfront.flow import Choice, Generation, Reply, Running, Work

#: Makes a whole answer, or a whole stream but for its end.
MakeBody = Callable[[Sequence[Choice]], bytes]


def send_whole(
    state: ApiState, reply: Reply, generation: Generation, body: MakeBody, *, stream: bool = False
) -> Work | Running:
    """Sends `body` of all choices, as one piece or as a stream that comes at once."""
    return _begin(_Whole(state, reply, generation, body, stream))


def send_stream(state: ApiState, reply: Reply, generation: Generation, format: StreamFormat) -> Work | Running:
    """Streams. A failure before the answer has started is raised, a later one becomes its last event."""
    return _begin(_Streamed(state, reply, generation, format))


async def send_best(
    state: ApiState, reply: Reply, generation: Generation, beams: BeamOptions, body: MakeBody, *, stream: bool = False
) -> None:
    """As `send_whole`, of the choices that a search finds to be the best."""
    pipeline = state.pipeline
    log = RequestLog(state.settings, generation) if state.settings.log_requests else None
    decode = partial(pipeline.prompter.detokenize, skip_special_tokens=generation.text.skip_special_tokens)
    state.in_flight += 1
    try:
        choices = await search(generation, beams, pipeline.info.max_model_len, pipeline.collect, decode)
    except BaseException as error:
        if log is not None:
            log.failed(error)
        raise
    finally:
        state.in_flight -= 1
    if log is not None:
        log.finished(choices)
    _send(reply, body(choices), stream)


def _send(reply: Reply, body: bytes, stream: bool) -> None:
    if stream:
        reply.open_stream(200, EVENT_STREAM, STREAM_HEADERS).append(body + DONE)
        reply.close_stream()
    else:
        reply.send(200, body)


def _begin(answer: _Answer) -> Work | Running:
    if answer.generation.sampling.structured_outputs is None:
        answer.begin()
        return answer
    return _checked(answer)


async def _checked(answer: _Answer) -> Running:
    answer.generation = await answer.state.pipeline.checked(answer.generation)
    answer.begin()
    return answer


class _Answer(ABC):
    """One answer under way: a flow.Running for its reply, a flow.Waiting for the pipeline."""

    streams = False
    log: RequestLog | None = None
    _job: Running | None = None

    def __init__(self, state: ApiState, reply: Reply, generation: Generation) -> None:
        self.state = state
        self.reply = reply
        self.generation = generation

    def begin(self) -> None:
        """Raises what the pipeline raises, unless the answer has begun."""
        state = self.state
        if state.settings.log_requests:
            self.log = RequestLog(state.settings, self.generation)
        state.in_flight += 1
        try:
            self._job = self.start()
        except Exception as error:
            self._over()
            if self.log is not None:
                self.log.failed(error)
            if not self.fail(error):
                raise
            self.reply.end()

    def finished(self, choices: list[Choice]) -> None:
        self._over()
        try:
            if self.log is not None:
                self.log.finished(choices, streamed=self.streams)
            self.finish(choices)
        except Exception as error:
            self.reply.end(error)
        else:
            self.reply.end()

    def failed(self, error: Exception) -> None:
        self._over()
        if self.log is not None:
            self.log.failed(error)
        self.reply.end(None if self.fail(error) else error)

    def cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._over()
            if self.log is not None:
                self.log.failed(asyncio.CancelledError())

    def _over(self) -> None:
        self._job = None
        self.state.in_flight -= 1

    @abstractmethod
    def start(self) -> Running:
        """Gives the generation to the pipeline."""

    @abstractmethod
    def finish(self, choices: list[Choice]) -> None:
        """Sends the answer, or its end."""

    def fail(self, error: Exception) -> bool:
        """Ends an answer that has begun; False if it has not."""
        return False


class _Whole(_Answer):
    def __init__(self, state: ApiState, reply: Reply, generation: Generation, body: MakeBody, stream: bool) -> None:
        super().__init__(state, reply, generation)
        self._body = body
        self._stream = stream

    def start(self) -> Running:
        return self.state.pipeline.start(self.generation, self)

    def finish(self, choices: list[Choice]) -> None:
        _send(self.reply, self._body(choices), self._stream)


class _Streamed(_Answer):
    streams = True
    _outbox: Outbox | None = None
    _comments: KeepAlive | None = None

    def __init__(self, state: ApiState, reply: Reply, generation: Generation, format: StreamFormat) -> None:
        super().__init__(state, reply, generation)
        self._format = format

    def start(self) -> Running:
        if self.log is not None:
            self.generation, self._format = self.log.overhear(self.generation, self._format)
        return self.state.pipeline.start(self.generation, self, self._open, self._format)

    def _open(self) -> Outbox:
        self._outbox = outbox = self.reply.open_stream(200, EVENT_STREAM, STREAM_HEADERS)
        interval = self.state.settings.sse_keep_alive_interval
        if interval:
            self._comments = KeepAlive(interval)
            self._comments.start(outbox)
        return outbox

    def finish(self, choices: list[Choice]) -> None:
        self._end(self._outbox or self._open(), self._format.usage_event(choices))

    def fail(self, error: Exception) -> bool:
        if self._outbox is None:
            return False
        self._end(self._outbox, error_event(error))
        return True

    def _end(self, outbox: Outbox, last: bytes) -> None:
        outbox.append(last + DONE)
        self.reply.close_stream()

    def _over(self) -> None:
        super()._over()
        if self._comments is not None:
            self._comments.stop()
