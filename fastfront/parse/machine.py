"""Runs a table over a text that comes in pieces.

The scanner looks through the text for the markers of the current state; what is certain flows into the state's field.
From a marker that may open a call until the call's first argument all text is kept: if it turns out to be no call, it
is text of the state where it began, so nothing is lost. White space: the content before, between and after calls is
dropped if it is nothing else; other content keeps all of it. For the edges of reasoning the table has a rule.

Once a state's text has begun it may go by: from there to the next marker it needs no machine (`stretch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from fastfront import fast
from fastfront.flow import CallArguments, CallEnd, CallStart, Content, Event, Reasoning, TextEvent
from fastfront.parse.arguments import Writer
from fastfront.parse.edges import WHITE, Blank, Edge, Prefix
from fastfront.parse.schema import Schemas
from fastfront.parse.tables import CONTENT, REASONING, Field, Reader, Table, Think, blank

_NO_THINK = Think()


class Machine:
    """One answer. `tools` are the request's; `in_reasoning`: what the prompt or the request says, None for neither."""

    def __init__(
        self,
        table: Table,
        tools: Sequence[Mapping[str, Any]] = (),
        in_reasoning: bool | None = None,
    ) -> None:
        self.table = table
        self._tools = tools
        #: The marker that is being acted on.
        self.marker = ""
        #: How many calls have begun.
        self.calls = 0
        #: Whether any text was, or may have been, reasoning.
        self.has_reasoned = False
        #: Goes before the next text of a field.
        self.separators = {Field.CONTENT: "", Field.REASONING: ""}
        #: The fields that have text.
        self.told: set[Field] = set()
        think = table.think or _NO_THINK
        self._think = think
        self._events: list[Event] = []
        self._scanners: dict[str, fast.Scanner] = {}
        self._reasoning_edge = Edge(think.lead, think.trail)
        self._prefix = Prefix(think.prefix)
        self._content_edge = Edge()
        self._blank = Blank()
        self._held: list[str] = []
        # An attempt: all text since the marker that opened it, and where that was.
        self._raw: list[str] | None = None
        self._lost = 0
        self._origin = CONTENT
        self._pending: tuple[str, str | None] | None = None
        self._in_reasoning = False
        self._open = False
        self._said = False
        #: What reads the current state's text, if more than markers must.
        self.reader: Reader | None = None
        if think.prepended:
            self._content(think.prepended)
        if in_reasoning is None:
            in_reasoning = think.begins
        self._enter(REASONING if in_reasoning and REASONING in table.states else table.entry)

    @cached_property
    def schemas(self) -> Schemas:
        """What the tools' schemas say."""
        return Schemas(self._tools)

    @cached_property
    def writer(self) -> Writer:
        """Writes the arguments of formats that are no JSON; without it nothing here needs the collector."""
        return Writer(self)

    def feed(self, text: str) -> list[Event]:
        """What is certain after this piece."""
        self._run(text)
        events, self._events = self._events, []
        return events

    def finish(self) -> list[Event]:
        """The rest, at the end of the text."""
        while self._scanner is not None and (held := self._scanner.finish()):
            left = None if self._is_cut_end(held) else self._flow(held)
            if left is None:
                break
            self._run(left)
        if self.reader is not None:
            self.reader.finish()
        elif self._state.field is Field.VALUE:
            self.writer.cut()
        elif self._state.field is Field.HELD and self._open and self._raw is None:
            self.writer.cut_key(self.take_held())
        if self._state.silent:
            self._raw = None
        elif self.reader is not None or self._raw is not None:
            self.give_back()
        if self._in_reasoning:
            self._event(Reasoning(self._prefix.held() + self._reasoning_edge.held()))
        if not self.calls:
            self._event(Content(self._blank.held()))
        events, self._events = self._events, []
        return events

    def stretch(self) -> tuple[TextEvent, fast.Stretch] | None:
        """The stretch of plain text that begins here, and the event, without text, that all of it makes.

        None where each piece must be fed. What is held is the stretch's beginning and is forgotten: what of the text
        does not go out is to be fed again.
        """
        if self._raw is not None or self._pending is not None:
            return None
        arguments = CallArguments(self.calls - 1, "")
        if self.reader is not None:
            nest = self.reader.nest if self._scanner is None else None
            return (arguments, fast.Stretch(nest=nest)) if nest is not None else None
        field = self._state.field
        if field is Field.CONTENT and not self._blank.is_blank and not self.separators[field]:
            return self._stretch(Content(""), self._content_edge)
        if field is Field.REASONING and self._prefix.is_past and field in self.told and not self.separators[field]:
            return self._stretch(Reasoning(""), self._reasoning_edge)
        if field is Field.ARGUMENTS and self._said:
            return self._stretch(arguments, self._arguments_edge)
        if field is Field.VALUE and self.writer.streams:
            return self._stretch(arguments, self.writer.edge, quoted=True)
        return None

    def _stretch(self, event: TextEvent, edge: Edge, quoted: bool = False) -> tuple[TextEvent, fast.Stretch] | None:
        if not edge.is_past:
            return None
        begin = edge.let_go() + (self._scanner.finish() if self._scanner is not None else "")
        markers = self.table.patterns.get(self._name)
        return event, fast.Stretch(begin, markers, edge.trail, edge.once, quoted=quoted)

    def _is_cut_end(self, held: str) -> bool:
        """Whether the text that the scanner held is of a marker that would have told nothing."""
        if self._raw is not None:
            return False
        if self._state.field is Field.MARKUP:
            return True
        return self._blank.is_blank and any(
            do.closes and marker.startswith(held) for marker, do in self._state.on.items()
        )

    # --- what actions and readers call -------------------------------------------------------------------------------

    def take_held(self) -> str:
        """What the HELD states have gathered; it is forgotten."""
        held = "".join(self._held)
        self._held = []
        return held

    def text(self, text: str) -> None:
        """Text of the current state's field."""
        if self._in_reasoning:
            self._reasoning(text)
        else:
            self._content(text)

    def leave_reasoning(self) -> None:
        """What follows is no reasoning; what was held back at its end is markup."""
        if not self._in_reasoning:
            return
        self._in_reasoning = False
        self._event(Reasoning(self._prefix.held()))
        self._reasoning_edge.held()
        self._content_edge = Edge(self._think.after)

    def confirm(self) -> None:
        """What was kept since a marker was markup."""
        self._raw = None
        self.leave_reasoning()

    def drop_blank(self) -> None:
        """White space that was held back is markup."""
        self._blank.held()

    def pend(self, name: str, call_id: str | None = None) -> None:
        """A call's name is known. The call begins with its first argument, or with its end."""
        if self._pending is not None:
            self.end_call()
        self._pending = (name, call_id)

    def pending_name(self) -> str:
        """The name of the call that is about to begin."""
        return self._pending[0] if self._pending is not None else ""

    def start_call(self, name: str, call_id: str | None = None) -> None:
        """A call begins: what was held back for it is markup."""
        self._pending = None
        self._raw = None
        self.end_call()
        self.leave_reasoning()
        self.drop_blank()
        self._said = False
        self._open = True
        index = self.calls
        self.calls += 1
        self._event(CallStart(index, call_id or self.table.make_id(), name))

    def arguments_text(self, text: str) -> None:
        """A piece of the open or pending call's arguments."""
        if not text:
            return
        if self._pending is not None:
            self.start_call(*self._pending)
        self._said = True
        self._event(CallArguments(self.calls - 1, text))

    def end_call(self) -> None:
        """The open or pending call is complete; without any arguments they are `{}`."""
        if self._pending is not None:
            self.start_call(*self._pending)
        if self._open:
            self._open = False
            if not self._said:
                self._event(CallArguments(self.calls - 1, "{}"))
            self._event(CallEnd(self.calls - 1))
            self.drop_blank()

    def give_back(self) -> str:
        """What looked like a call is none: it is text of the state where it began, whose name this returns."""
        origin = self._origin if self._raw is not None else self._state.failed
        raw = "".join(self._raw or ())
        if self.reader is not None:
            raw += self.reader.given_back()
        if self._raw is not None and self._lost:
            body = raw[self._lost :].lstrip()
            raw = body if body.startswith(("{", "[")) else raw
        self._raw = None
        self._pending = None
        self._held = []
        self._enter(origin)
        if raw:
            self.text(raw)
        return origin

    # --- the run -----------------------------------------------------------------------------------------------------

    def _run(self, text: str) -> None:
        while text:
            scanner, markers = self._scanner, self._markers
            if scanner is None:
                certain, found, rest = text, -1, ""
            else:
                certain, found, rest = scanner.feed(text)
            left = self._flow(certain) if certain else None
            if left is not None:
                # The state was left in the middle of `certain`: all behind that point belongs to the next one.
                behind = markers[found] + rest if found >= 0 else scanner.finish() if scanner is not None else ""
                text = left + behind
            elif found >= 0:
                text = self._mark(markers[found]) + rest
            else:
                return

    def _mark(self, marker: str) -> str:
        """Does what a marker says; the text that the next state begins with."""
        do = self._state.on[marker]
        self.marker = marker
        if self._state.field is Field.MARKUP and self._raw is None:
            self.drop_blank()
        if do.opens:
            if self._raw is not None:
                self.give_back()
            is_text = self._state.field in (Field.CONTENT, Field.REASONING)
            self._origin = self._name if is_text else self._state.done
            self._lost = len(marker) if do.lost and not self._in_reasoning else 0
            self._raw = []
            self._held = []
        if self._raw is not None and not do.again:
            self._raw.append(marker)
        if do.keep:
            self._held.append(marker)
        to = do.act(self, "" if do.keep else self.take_held()) if do.act is not None else None
        self._enter(to or do.to)
        return marker if do.again else ""

    def _enter(self, name: str) -> None:
        state = self.table.states[name]
        self._name = name
        self._state = state
        self._markers = state.markers
        self._scanner: fast.Scanner | None = None
        if state.on:
            scanner = self._scanners.get(name)
            if scanner is None:
                scanner = self._scanners[name] = fast.Scanner(self.table.patterns[name])
            self._scanner = scanner
        if state.opens and self._raw is None:
            self._origin = state.failed
            self._lost = 0
            self._raw = []
            self._held = []
        self.reader = state.reader(self) if state.reader is not None else None
        if state.field is Field.REASONING:
            self._in_reasoning = self.has_reasoned = True
        elif state.field is Field.CONTENT:
            self.leave_reasoning()
        elif state.field is Field.ARGUMENTS:
            self._arguments_edge = Edge(WHITE, WHITE + state.trim)

    def _flow(self, text: str) -> str | None:
        """Takes plain text of the current state; what belongs to the next state, if it was left."""
        state = self._state
        if self.reader is not None:
            left = self.reader.feed(text)
            if left is None:
                return None
            if self.reader.failed:
                self.give_back()
            else:
                self._enter(self.reader.to or state.done)
            return left
        if self._raw is not None:
            wrong = self._first_wrong(text)
            if wrong >= 0:
                self._raw.append(text[:wrong])
                self.give_back()
                return text[wrong:]
            self._raw.append(text)
        if state.field is Field.CONTENT:
            self._content(text)
        elif state.field is Field.REASONING:
            self._reasoning(text)
        elif state.field is Field.ARGUMENTS:
            self.arguments_text(self._arguments_edge.feed(text))
        elif state.field is Field.VALUE:
            self.writer.value(text)
        elif state.field is Field.HELD:
            self._held.append(text)
        elif state.field is Field.MARKUP and self._raw is None:
            self._content(text)
        return None

    def _first_wrong(self, text: str) -> int:
        """Where in an attempt's text it becomes certain that it is no call; -1 if it still may be one."""
        if self._state.field is Field.MARKUP:
            return -1 if blank(text) else len(text) - len(text.lstrip(WHITE))
        valid = self._state.valid
        if self._state.field is not Field.HELD or valid is None:
            return -1
        held = "".join(self._held)
        if valid(held + text):
            return -1
        return next(at for at in range(len(text)) if not valid(held + text[: at + 1]))

    def _content(self, text: str) -> None:
        self._event(Content(self._blank.feed(self._content_edge.feed(text))))

    def _reasoning(self, text: str) -> None:
        self._event(Reasoning(self._reasoning_edge.feed(self._prefix.feed(text))))

    def _event(self, event: Event) -> None:
        """Adds an event, to the one before it if both are of one text."""
        if isinstance(event, (Reasoning, Content)):
            if not event.text:
                return
            field = Field.CONTENT if isinstance(event, Content) else Field.REASONING
            if self.separators[field]:
                event = type(event)(self.separators[field] + event.text)
                self.separators[field] = ""
            self.told.add(field)
        last = self._events[-1] if self._events else None
        if isinstance(event, Content) and isinstance(last, Content):
            self._events[-1] = Content(last.text + event.text)
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            self._events[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments) and last.index == event.index:
            self._events[-1] = CallArguments(event.index, last.text + event.text)
        else:
            self._events.append(event)
