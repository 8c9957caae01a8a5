"""Runs a table over a text that comes in pieces.

The scanner looks through the text for the markers of the current state; what is certain flows into the state's field.
From a marker that may open a call until the call's first argument all text is kept: if it turns out to be no call, it
is text of the state where it began, so nothing is lost. White space: the content before, between and after calls is
dropped if it is nothing else; other content keeps all of it. For the edges of reasoning the table has a rule.

Text that is an event as it is may go by: up to the next marker it needs no machine (`stretch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from fastfront import fast
from fastfront.flow import CallArguments, CallEnd, CallStart, Content, Event, Reasoning, TextEvent
from fastfront.parse.arguments import Writer
from fastfront.parse.edges import BLANK, WHITE, Blank, Edge, Prefix
from fastfront.parse.schema import Schemas
from fastfront.parse.tables import CONTENT, REASONING, Field, Reader, Table, Think, blank

_NO_THINK = Think()
_CONTENT, _REASONING = Content(""), Reasoning("")


class Machine:
    """One answer. `tools` are the request's; `in_reasoning`: what the prompt or the request says, None for neither."""

    #: The marker that is being acted on.
    marker = ""
    #: How many calls have begun.
    calls = 0
    #: Whether any text was, or may have been, reasoning.
    has_reasoned = False
    #: What reads the current state's text, if more than markers must.
    reader: Reader | None = None
    # An attempt: all text since the marker that opened it, and where that was.
    _raw: list[str] | None = None
    _lost = 0
    _origin = CONTENT
    _pending: tuple[str, str | None] | None = None
    _in_reasoning = False
    _open = False
    _said = False
    # These two drop nothing and so hold nothing, and that they have begun decides nothing: all answers share them.
    _prefix = Prefix("")
    _content_edge = Edge()

    def __init__(
        self,
        table: Table,
        tools: Sequence[Mapping[str, Any]] = (),
        in_reasoning: bool | None = None,
    ) -> None:
        self.table = table
        self._tools = tools
        #: Of the kinds of text that were told: what goes before the next of it.
        self.before: dict[type[Content | Reasoning], str] = {}
        self._think = think = table.think or _NO_THINK
        self._events: list[Event] = []
        self._reasoning_edge = Edge(think.lead, think.trail)
        self._blank = Blank()
        self._held: list[str] = []
        if think.prefix:
            self._prefix = Prefix(think.prefix)
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
            self._tell(Reasoning, self._prefix.held() + self._reasoning_edge.held())
        if not self.calls:
            self._tell(Content, self._blank.held())
        events, self._events = self._events, []
        return events

    def stretch(self) -> tuple[TextEvent, fast.Stretch] | None:
        """The stretch of plain text that begins here, and the event, without text, that all of it makes.

        None where each piece must be fed. What is held is the stretch's beginning and is forgotten: what of the text
        does not go out is to be fed again.
        """
        if self._raw is not None or self._pending is not None or self._events:
            return None
        if self.reader is not None:
            nest = self.reader.nest if self._scanner is None else None
            return (CallArguments(self.calls - 1, ""), fast.Stretch(nest=nest)) if nest is not None else None
        field = self._state.field
        if field is Field.CONTENT and not self.before.get(Content):
            if self._blank.holds and not self._content_edge.is_past:
                return None  # what is held is past the edge before, what follows is not yet past this one
            return _CONTENT, self._text_stretch(self._content_edge, self._blank)
        if field is Field.REASONING and self._prefix.is_past and not self.before.get(Reasoning):
            return _REASONING, self._text_stretch(self._reasoning_edge)
        if field is Field.ARGUMENTS and self._said:
            edge, quoted = self._arguments_edge, False
        elif field is Field.VALUE and self.writer.streams and self.writer.edge.is_past:
            edge, quoted = self.writer.edge, True
        else:
            return None
        begin = edge.let_go() + self._scanned()
        stretch = fast.Stretch(begin, self._patterns, edge.trail, edge.once, quoted=quoted)
        return CallArguments(self.calls - 1, ""), stretch

    def _text_stretch(self, edge: Edge, blank: Blank | None = None) -> fast.Stretch:
        """Of content or reasoning: it may be the beginning of that, with all that is dropped or held there."""
        begin, white = edge.let_go() + self._scanned(), ""
        if blank is not None and blank.is_blank:
            begin, white = blank.let_go() + begin, BLANK
        lead = "" if edge.is_past else edge.lead
        return fast.Stretch(begin, self._patterns, edge.trail, lead=lead, blank=white, began=self._stretch_began)

    def _stretch_began(self) -> None:
        """Some of the stretch's text has gone out."""
        if self._in_reasoning:
            self.before[Reasoning] = ""
            self._reasoning_edge.begin()
        else:
            self.before[Content] = ""
            self._content_edge.begin()
            self._blank.is_blank = False

    def _scanned(self) -> str:
        """What the scanner holds; it is forgotten."""
        return self._scanner.finish() if self._scanner is not None else ""

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
        self._tell(Reasoning, self._prefix.held())
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
        self._events.append(CallStart(index, call_id or self.table.make_id(), name))

    def arguments_text(self, text: str) -> None:
        """A piece of the open or pending call's arguments."""
        if not text:
            return
        if self._pending is not None:
            self.start_call(*self._pending)
        self._said = True
        last = self._events[-1] if self._events else None
        if isinstance(last, CallArguments) and last.index == self.calls - 1:
            self._events[-1] = CallArguments(last.index, last.text + text)
        else:
            self._events.append(CallArguments(self.calls - 1, text))

    def end_call(self) -> None:
        """The open or pending call is complete; without any arguments they are `{}`."""
        if self._pending is not None:
            self.start_call(*self._pending)
        if self._open:
            self._open = False
            if not self._said:
                self._events.append(CallArguments(self.calls - 1, "{}"))
            self._events.append(CallEnd(self.calls - 1))
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
            scanner = self._scanner
            if scanner is None:
                text = self._flow(text) or ""
                continue
            certain, found, rest = scanner.feed(text)
            marker = scanner.patterns.patterns[found] if found >= 0 else ""
            left = self._flow(certain) if certain else None
            if left is not None:
                # The state was left in the middle of `certain`: all behind that point belongs to the next one.
                text = left + (marker + rest if marker else scanner.finish())
            elif marker:
                text = self._mark(marker) + rest
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
        self._patterns = patterns = self.table.patterns.get(name)
        self._scanner = fast.Scanner(patterns) if patterns is not None else None
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
        self._tell(Content, self._blank.feed(self._content_edge.feed(text)))

    def _reasoning(self, text: str) -> None:
        self._tell(Reasoning, self._reasoning_edge.feed(self._prefix.feed(text)))

    def _tell(self, kind: type[Content | Reasoning], text: str) -> None:
        """Text of the answer or of its reasoning; an event of this kind that is there already goes on with it."""
        if not text:
            return
        text = self.before.get(kind, "") + text
        self.before[kind] = ""
        last = self._events[-1] if self._events else None
        if isinstance(last, kind):
            self._events[-1] = kind(last.text + text)
        else:
            self._events.append(kind(text))
