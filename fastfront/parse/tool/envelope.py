"""Formats whose calls are JSON objects: hermes and its like, Llama's, arrays behind a marker, Mistral's."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from functools import partial

from fastfront.parse.actions import bare, begin, end_wrapper
from fastfront.parse.json_calls import JsonArguments, JsonCalls
from fastfront.parse.machine import Machine
from fastfront.parse.peek import Peek
from fastfront.parse.tables import CONTENT, Do, Field, State, Table, strays

_ALPHANUMERIC = string.ascii_letters + string.digits


def enveloped(
    opening: Sequence[str],
    closing: Sequence[str] = (),
    *,
    absorbed: Sequence[str] = (),
    lost: bool = False,
    keyed: bool = False,
    at_start: str = "",
) -> Table:
    """Calls behind an `opening` marker, and, where the text starts with a character of `at_start`, without one."""
    opens = {marker: Do("json", opens=True, lost=lost) for marker in opening}
    ends = {marker: Do(CONTENT, end_wrapper, closes=True) for marker in closing}
    silent = strays(absorbed)
    states = {
        CONTENT: State(Field.CONTENT, {**opens, **silent}),
        "json": State(Field.HELD, reader=partial(JsonCalls, keyed=keyed), done="tail", failed="tail"),
        "tail": State(Field.CONTENT, {**opens, **silent, **ends}),
    }
    if not at_start:
        return Table(states)
    peek = partial(Peek, choices={**dict.fromkeys(at_start, "bare"), "": CONTENT})
    states["start"] = State(Field.HELD, opens, peek)
    states["bare"] = State(Field.HELD, reader=partial(JsonCalls, keyed=keyed), done="tail")
    return Table(states, entry="start")


def mistral() -> Table:
    """All three dialects: an array of objects, `NAME[ARGS]{...}` and `NAME{...}`, each behind [TOOL_CALLS]."""
    opens = {"[TOOL_CALLS]": Do("head", opens=True)}
    states = {
        CONTENT: State(Field.CONTENT, opens),
        "head": State(Field.HELD, reader=partial(Peek, choices={"[": "json", "{": "json", "": "name"})),
        "json": State(Field.HELD, reader=JsonCalls, done=CONTENT),
        "name": State(
            Field.HELD,
            {
                "[ARGS]": Do("arguments", _mistral_name),
                "[CALL_ID]": Do("name", keep=True),
                "{": Do("arguments", _mistral_name, again=True),
            },
            valid=_may_be_mistral_name,
        ),
        "arguments": State(Field.HELD, reader=JsonArguments, done=CONTENT),
    }
    return Table(states, make_id=mistral_id)


def mistral_id() -> str:
    """An id as Mistral's templates demand it: nine letters and digits."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))


def _may_be_mistral_name(text: str) -> bool:
    return len(text) < 256 and not any(char in text.strip() for char in " \n\t")


def _mistral_name(machine: Machine, held: str) -> str | None:
    name, _, call_id = held.partition("[CALL_ID]")
    return begin(machine, bare(name), call_id.strip() or None)
