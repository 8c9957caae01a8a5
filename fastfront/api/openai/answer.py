"""Runs one generation and sends its answer, whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastfront.api.errors import error_event
from fastfront.api.openai.events import DONE, EVENT_STREAM, STREAM_HEADERS, StreamFormat
from fastfront.api.state import ApiState
from fastfront.fast import Outbox
from fastfront.flow import Choice, Generation, Reply


async def send_whole(
    state: ApiState, reply: Reply, generation: Generation, body: Callable[[Sequence[Choice]], bytes]
) -> None:
    """Waits for every choice and sends `body` of them. Raises what the pipeline raises."""
    choices = await _collect(state, generation)
    reply.send(200, body(choices))


async def send_stream(state: ApiState, reply: Reply, generation: Generation, format: StreamFormat) -> None:
    """Streams. Raises only before the answer has started; a later failure becomes its last event."""
    opened: list[Outbox] = []

    def open_stream() -> Outbox:
        opened.append(reply.open_stream(200, EVENT_STREAM, STREAM_HEADERS))
        return opened[0]

    state.in_flight += 1
    try:
        choices = await state.pipeline.stream(generation, open_stream, format)
        last = format.usage_event(choices)
    except Exception as error:
        if not opened:
            raise
        last = error_event(error)
    finally:
        state.in_flight -= 1
    outbox = opened[0] if opened else open_stream()
    outbox.append(last + DONE)
    reply.close_stream()


async def send_collected(
    state: ApiState, reply: Reply, generation: Generation, events: Callable[[Sequence[Choice]], bytes]
) -> None:
    """Waits for every choice and sends the whole stream at once. Raises what the pipeline raises."""
    choices = await _collect(state, generation)
    reply.open_stream(200, EVENT_STREAM, STREAM_HEADERS).append(events(choices) + DONE)
    reply.close_stream()


async def _collect(state: ApiState, generation: Generation) -> list[Choice]:
    state.in_flight += 1
    try:
        return await state.pipeline.collect(generation)
    finally:
        state.in_flight -= 1
