"""Formats whose calls are written as Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastfront.parse.actions import end_wrapper
from fastfront.parse.peek import Peek
from fastfront.parse.python_calls import PythonCalls
from fastfront.parse.tables import CONTENT, Do, Field, State, Table


def pythonic(
    opening: Sequence[str] = (), closing: Sequence[str] = (), *, at_start: bool = False, bracketed: bool = True
) -> Table:
    """A list of calls behind a marker, or (`at_start`) where the text starts with its bracket."""
    opens = {marker: Do("list", opens=True) for marker in opening}
    ends = {marker: Do(CONTENT, end_wrapper, closes=True) for marker in closing}
    states = {
        CONTENT: State(Field.CONTENT, opens),
        "list": State(Field.HELD, reader=partial(PythonCalls, bracketed=bracketed), done="tail", failed="tail"),
        "tail": State(Field.CONTENT, {**opens, **ends}),
    }
    if not at_start:
        return Table(states)
    states["start"] = State(Field.HELD, opens, partial(Peek, choices={"[": "bare", "": CONTENT}))
    states["bare"] = State(Field.HELD, reader=PythonCalls, done="tail")
    return Table(states, entry="start")
