"""A format as a table of states, and the joining of a reasoning format with a tool call format into one table.

A state says which field plain text flows into and which markers end that: strings, each with the state that follows and
what is done. The machine runs any table, and text between two markers of a state needs no Python: only states that must
rewrite text (VALUE, or a reader) or gather it (HELD) do.

No marker of a state may lie inside another one of it, except at its end: which of the two is found would depend on how
the text is cut.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fastfront.parse.edges import WHITE

if TYPE_CHECKING:
    from fastfront.fast import Nest, Patterns
    from fastfront.parse.machine import Machine

#: The state in which text is content: every table has it. And the one in which it is reasoning.
CONTENT = "content"
REASONING = "reasoning"


class Field(Enum):
    """Where a state's plain text goes."""

    CONTENT = "content"
    REASONING = "reasoning"
    #: Into the open call's arguments as it is; white space around them is dropped.
    ARGUMENTS = "arguments"
    #: Into the open argument's value, rewritten as JSON.
    VALUE = "value"
    #: Kept for the action of the marker that follows, or read by the state's reader.
    HELD = "held"
    #: White space between the parts of a call is dropped; other text is a mistake of the model.
    MARKUP = "markup"
    #: Nowhere.
    DROPPED = "dropped"


class Reader(Protocol):
    """Reads what markers alone cannot take apart."""

    #: After `feed` gave text back: whether that is because what came is not what the reader reads.
    failed: bool
    #: The state that follows, or "" for the one that the table says.
    to: str

    @property
    def nest(self) -> Nest | None:
        """The JSON value that all text goes into as arguments until it ends; None while each piece must be read."""

    def feed(self, text: str) -> str | None:
        """None if all was taken; else the reader is done, and this is left over."""

    def given_back(self) -> str:
        """What was taken and told to nobody."""

    def finish(self) -> None:
        """The text ends here; what is certain now is told to the machine."""


#: Does what a marker stands for; the state that follows, or None for the one that the table says.
Action = Callable[["Machine", str], str | None]
MakeReader = Callable[["Machine"], Reader]


class Do(NamedTuple):
    """What follows a marker.

    `opens`: what follows may be a call; if it turns out to be none, all of it is text of the state where it began.
    `lost`: of an object that is no call the marker is not given back, as vLLM's frontends stream it. `again`: the
    marker's text is the first text of the next state. `keep`: the marker's text is part of what is held. `closes`: the
    marker ends what has been told already, so that of a text that is cut within it nothing is given back.
    """

    to: str
    act: Action | None = None
    opens: bool = False
    lost: bool = False
    again: bool = False
    keep: bool = False
    closes: bool = False


class State(NamedTuple):
    """One state. `done` is where a reader's end leads, `failed` where its failure does if no call was being opened.
    `done` is also where a call that fails leads back to, if it began in a state whose text is no text of the answer.

    `trim`: beside white space, characters that are markup at the end of arguments. `valid`: whether what is held may
    still become what is waited for. `opens`: as with a marker, for a text that begins in this state. `silent`: what is
    held when the text ends is markup.
    """

    field: Field
    on: Mapping[str, Do] = {}
    reader: MakeReader | None = None
    done: str = CONTENT
    failed: str = CONTENT
    trim: str = ""
    valid: Callable[[str], bool] | None = None
    opens: bool = False
    silent: bool = False


class Think(NamedTuple):
    """How a model writes its reasoning.

    `begins`: an answer starts inside reasoning, unless the prompt or the request says otherwise; `on_request`: only if
    the request asks for thinking; `always`: no switch ends it. `lead` and `trail` are the characters that are markup at
    the ends of reasoning, `after` those before the answer that follows it; `prefix` is a word that reasoning starts
    with. `absorbed` are markers without meaning in content. `prepended` goes before the whole answer.
    """

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    begins: bool = False
    on_request: bool = False
    always: bool = False
    lead: str = ""
    trail: str = ""
    after: str = ""
    prefix: str = ""
    absorbed: tuple[str, ...] = ()
    prepended: str = ""


def call_id() -> str:
    """An id for a tool call, as vLLM's Python frontend makes them."""
    return f"chatcmpl-tool-{secrets.token_hex(8)}"


class Table:
    """A format. `entry` is the state in which an answer begins when it does not begin inside reasoning."""

    def __init__(
        self,
        states: Mapping[str, State],
        entry: str = CONTENT,
        think: Think | None = None,
        make_id: Callable[[], str] = call_id,
        unified: bool = False,
    ) -> None:
        self.states = {CONTENT: State(Field.CONTENT), **states}
        self.entry = entry
        self.think = think
        self.make_id = make_id
        self.unified = unified
        check(self.states)

    @cached_property
    def patterns(self) -> dict[str, Patterns]:
        """Each state's markers, compiled."""
        from fastfront import fast

        return {name: fast.Patterns(tuple(state.on)) for name, state in self.states.items() if state.on}


def check(states: Mapping[str, State]) -> None:
    """ValueError if a table cannot work."""
    for name, state in states.items():
        for target in {do.to for do in state.on.values()} | {state.done, state.failed}:
            if target not in states:
                raise ValueError(f"state {name!r} leads to {target!r}, which does not exist")
        for marker in state.on:
            for other in state.on:
                if marker != other and clash(marker, other):
                    raise ValueError(f"state {name!r}: the marker {marker!r} lies inside {other!r}")


def clash(marker: str, other: str) -> bool:
    """Whether `marker` lies inside `other`, but not at its end alone."""
    at = other.find(marker)
    return 0 <= at < len(other) - len(marker) or marker == other


def join(think: Think | None, table: Table | None) -> Table:
    """One table for both; either may be missing. A unified table already is for both."""
    table = table or Table({})
    if table.unified or think is None:
        return table
    states = dict(table.states)
    opening = {marker: Do(REASONING) for marker in think.start}
    absorbed = dict.fromkeys(think.absorbed)
    for name, state in states.items():
        if state.field is Field.CONTENT:
            own = {
                **opening,
                **{marker: Do(name, _stray_end) for marker in think.end},
                **{marker: Do(name, _leave) for marker in absorbed},
            }
            states[name] = state._replace(on=dict(_first_wins(state.on, own)))
    closing = {
        **opening,
        **{marker: Do(table.entry, _leave) for marker in think.end},
    }
    calls = {marker: do for marker, do in states[CONTENT].on.items() if do.opens}
    states[REASONING] = State(Field.REASONING, dict(_first_wins(calls, closing)))
    if not states[REASONING].on:
        del states[REASONING]
    return Table(states, table.entry, think, table.make_id)


def _first_wins(*maps: Mapping[str, Do]) -> Iterator[tuple[str, Do]]:
    """Every marker once; of two that clash the one that is there first."""
    taken: list[str] = []
    for markers in maps:
        for marker, do in markers.items():
            if not any(clash(marker, other) or clash(other, marker) for other in taken):
                taken.append(marker)
                yield marker, do


def _leave(machine: Machine, held: str) -> None:
    machine.leave_reasoning()


def _stray_end(machine: Machine, held: str) -> None:
    """An end of reasoning outside of it: said twice if there was some, else text."""
    if not machine.has_reasoned:
        machine.text(machine.marker)


def strays(markers: Iterable[str], state: str = CONTENT) -> dict[str, Do]:
    """Markers without a meaning in a state of content: they are dropped."""
    return {marker: Do(state) for marker in markers}


def blank(text: str) -> bool:
    """Whether the text is nothing but white space."""
    return not text.strip(WHITE)
