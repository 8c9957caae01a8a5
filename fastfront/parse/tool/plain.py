"""Calls that the engine was held to write as plain JSON, whatever the model's own format is.

An answer that is none after all is read in the model's format.
"""

from __future__ import annotations

from functools import partial

from fastfront.parse.json_calls import JsonArguments, JsonCalls
from fastfront.parse.machine import Machine
from fastfront.parse.peek import Peek
from fastfront.parse.tables import CONTENT, Field, State, Table

_START, _JSON = "plain start", "plain json"


def plain_list(native: Table) -> Table:
    """An array of objects with names and parameters."""
    choices = {"[": _JSON, "": native.entry}
    states = {
        **native.states,
        _START: State(Field.HELD, reader=partial(Peek, choices=choices)),
        _JSON: State(Field.HELD, reader=JsonCalls, done=CONTENT),
    }
    return Table(states, _START, make_id=native.make_id)


def plain_arguments(native: Table, name: str) -> Table:
    """The arguments of the function `name`, and nothing else."""
    states = {
        **native.states,
        _START: State(Field.HELD, reader=partial(Peek, choices={"{": _JSON, "": native.entry})),
        _JSON: State(Field.HELD, reader=partial(_arguments_of, name=name), done=CONTENT),
    }
    return Table(states, _START, make_id=native.make_id)


def _arguments_of(host: Machine, name: str) -> JsonArguments:
    host.pend(name)
    return JsonArguments(host)
