"""What a parser made of an answer, as OpenAI's chat objects write it: reasoning, content and tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from fastfront.api.openai.events import encode
from fastfront.fast import escape
from fastfront.flow import CallArguments, CallEnd, CallStart, Content, Event, Reasoning, TextEvent


class CalledFunction(msgspec.Struct):
    """The function of a call; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, kw_only=True):
    """A call in a whole answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ParsedMessage(NamedTuple):
    """A whole answer; content is None where there is nothing but reasoning or calls."""

    reasoning: str | None
    content: str | None
    calls: list[ToolCall]


class CallRules(NamedTuple):
    """How the request wants what was parsed: reasoning left out, one call at most, and what calls end with."""

    include_reasoning: bool = True
    parallel: bool = True
    #: Named calls end with "stop", as OpenAI's do.
    reason: str = "tool_calls"

    def keep(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events that the client is to see."""
        if self.include_reasoning and self.parallel:
            return events
        return [event for event in events if self.shows(event)]

    def finish_reason(self, reason: str, called: bool) -> str:
        """An answer that calls ends for its calls, unless something else cut it."""
        return self.reason if called and reason == "stop" else reason

    def shows(self, event: Event) -> bool:
        """Whether the client is to see it."""
        if isinstance(event, Reasoning):
            return self.include_reasoning
        return isinstance(event, Content) or self.parallel or event.index == 0


def whole_message(events: Sequence[Event]) -> ParsedMessage:
    """Everything of one choice."""
    reasoning = "".join([event.text for event in events if isinstance(event, Reasoning)])
    content = "".join([event.text for event in events if isinstance(event, Content)])
    begun = [event for event in events if isinstance(event, CallStart)]
    calls = [ToolCall(id=event.id, function=CalledFunction(event.name, "")) for event in begun]
    for event in events:
        if isinstance(event, CallArguments):
            calls[event.index].function.arguments += event.text
    nothing_else = not reasoning and not calls
    return ParsedMessage(reasoning or None, content if content or nothing_else else None, calls)


def deltas(events: Sequence[Event]) -> Iterator[bytes]:
    """The inside of the `delta` object of each chunk: one field a chunk, a call's name with its first arguments."""
    begun: CallStart | None = None
    for event in events:
        if begun is not None:
            arguments = event.text if isinstance(event, CallArguments) else ""
            yield _first_piece(begun, arguments)
            begun = None
            if arguments:
                continue
        if isinstance(event, CallStart):
            begun = event
        elif not isinstance(event, CallEnd):
            before, after = around(event)
            yield before + escape(event.text) + after
    if begun is not None:
        yield _first_piece(begun, "")


def around(event: TextEvent) -> tuple[bytes, bytes]:
    """What goes around the escaped text of an event, inside the `delta` object."""
    if isinstance(event, CallArguments):
        return b'"tool_calls":[{"index":%d,"function":{"arguments":"' % event.index, b'"}}]'
    return b'"reasoning":"' if isinstance(event, Reasoning) else b'"content":"', b'"'


def _first_piece(call: CallStart, arguments: str) -> bytes:
    return b'"tool_calls":[{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":"%b"}}]' % (
        call.index,
        encode(call.id),
        encode(call.name),
        escape(arguments),
    )
