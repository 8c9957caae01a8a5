"""Runs one generation and sends its answer, whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fastfront.api.errors import error_event
from fastfront.api.keep_alive import KeepAlive
from fastfront.api.openai.events import DONE, EVENT_STREAM, STREAM_HEADERS, StreamFormat
from fastfront.api.openai.request_log import RequestLog
from fastfront.api.state import ApiState
from fastfront.beams import BeamOptions, search
from fastfront.fast import Outbox
from fastfront.flow import Choice, Generation, Reply


async def send_whole(
    state: ApiState,
    reply: Reply,
    generation: Generation,
    body: Callable[[Sequence[Choice]], bytes],
    beams: BeamOptions | None = None,
) -> None:
    """Waits for every choice, or searches for the best, and sends `body` of them. Raises what the pipeline raises."""
    choices = await _collect(state, generation, beams)
    reply.send(200, body(choices))


async def send_stream(state: ApiState, reply: Reply, generation: Generation, format: StreamFormat) -> None:
    """Streams. Raises only before the answer has started; a later failure becomes its last event."""
    opened: list[Outbox] = []
    comments = KeepAlive(state.settings.sse_keep_alive_interval)

    def open_stream() -> Outbox:
        opened.append(reply.open_stream(200, EVENT_STREAM, STREAM_HEADERS))
        comments.start(opened[0])
        return opened[0]

    log = RequestLog(state.settings, generation)
    generation, format = log.overhear(generation, format)
    state.in_flight += 1
    try:
        choices = await state.pipeline.stream(generation, open_stream, format)
        log.finished(choices, streamed=True)
        last = format.usage_event(choices)
    except BaseException as error:
        log.failed(error)
        if not opened or not isinstance(error, Exception):
            raise
        last = error_event(error)
    finally:
        state.in_flight -= 1
        comments.stop()
    outbox = opened[0] if opened else open_stream()
    outbox.append(last + DONE)
    reply.close_stream()


async def send_collected(
    state: ApiState,
    reply: Reply,
    generation: Generation,
    events: Callable[[Sequence[Choice]], bytes],
    beams: BeamOptions | None = None,
) -> None:
    """As `send_whole`, as a stream that is sent at once."""
    choices = await _collect(state, generation, beams)
    reply.open_stream(200, EVENT_STREAM, STREAM_HEADERS).append(events(choices) + DONE)
    reply.close_stream()


async def _collect(state: ApiState, generation: Generation, beams: BeamOptions | None) -> list[Choice]:
    log = RequestLog(state.settings, generation)
    state.in_flight += 1
    try:
        choices = await _choices(state, generation, beams)
    except BaseException as error:
        log.failed(error)
        raise
    finally:
        state.in_flight -= 1
    log.finished(choices)
    return choices


async def _choices(state: ApiState, generation: Generation, beams: BeamOptions | None) -> list[Choice]:
    pipeline = state.pipeline
    if beams is None:
        return await pipeline.collect(generation)
    decode = partial(pipeline.prompter.detokenize, skip_special_tokens=generation.text.skip_special_tokens)
    return await search(generation, beams, pipeline.info.max_model_len, pipeline.collect, decode)
