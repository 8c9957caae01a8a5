"""MiniMax M3's format: parameters are elements named after the argument, which may nest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastfront.parse.actions import bare, begin, end_call, end_wrapper, may_be_name, no_call
from fastfront.parse.machine import Machine
from fastfront.parse.schema import coerce, dump, types_of
from fastfront.parse.tables import CONTENT, Do, Field, State, Table

MARK = "]<]minimax[>["
_DEPTH = 128


def elements() -> Table:
    """The arguments of a call go out when all of it is there."""
    wrap, unwrap = f"{MARK}<tool_call>", f"{MARK}</tool_call>"
    call, end = f"{MARK}<invoke name=", f"{MARK}</invoke>"
    wraps = {wrap: Do("wrapped", opens=True)}
    calls = {call: Do("name", opens=True)}
    states = {
        CONTENT: State(Field.CONTENT, {**wraps, **calls}),
        "wrapped": State(Field.MARKUP, {call: Do("name"), unwrap: Do(CONTENT, no_call)}),
        "name": State(Field.HELD, {">": Do("body", _take_name)}, valid=may_be_name),
        "body": State(Field.HELD, {end: Do("between", _arguments), unwrap: Do(CONTENT, _arguments)}),
        "between": State(Field.CONTENT, {**wraps, **calls, unwrap: Do(CONTENT, end_wrapper, closes=True)}),
    }
    return Table(states)


def _take_name(machine: Machine, held: str) -> str | None:
    return begin(machine, bare(held))


def _arguments(machine: Machine, held: str) -> None:
    name = machine.pending_name()
    schema = machine.schemas.parameters(name)
    at = 0
    found: list[tuple[str, Any]] = []
    while (element := _parse(held, at, 0)) is not None:
        key, value, at = element
        found.append((key, value))
    if found:
        machine.arguments_text(dump(_object(found, schema, schema)))
    end_call(machine, held)


def _parse(text: str, at: int, depth: int) -> tuple[str, Any, int] | None:
    """(name, value, end) of the element at `at`, None if there is none or it is not whole."""
    while at < len(text) and text[at].isspace():
        at += 1
    opening = f"{MARK}<"
    if depth > _DEPTH or not text.startswith(opening, at) or text.startswith("/", at + len(opening)):
        return None
    name_end = text.find(">", at + len(opening))
    name = text[at + len(opening) : name_end]
    if name_end < 0 or not name.strip():
        return None
    closing = f"{MARK}</{name}>"
    at = name_end + 1
    parts: list[str] = []
    children: list[tuple[str, Any]] = []
    while (mark := text.find(MARK, at)) >= 0:
        parts.append(text[at:mark])
        if text.startswith(closing, mark):
            body = "".join(parts)
            if not children:
                return name, body, mark + len(closing)
            if body.strip():
                children.append(("$text", body))
            return name, children, mark + len(closing)
        child = _parse(text, mark, depth + 1)
        if child is None:
            return None
        children.append(child[:2])
        at = child[2]
    return None


def _object(children: list[tuple[str, Any]], schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Children of the same name become a list."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    result: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for name, child in children:
        value = _value(child, properties.get(name) if isinstance(properties, Mapping) else None, root)
        counts[name] = counts.get(name, 0) + 1
        if counts[name] == 1:
            result[name] = value
        elif counts[name] == 2:
            result[name] = [result[name], value]
        else:
            result[name].append(value)
    return result


def _value(child: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    types = types_of(schema, root)
    if isinstance(child, str):
        if not child.strip() and "string" not in types and types & {"array", "object"}:
            return [] if "array" in types else {}
        return coerce(child, types or frozenset({"string"}))
    if "array" in types:
        items = schema.get("items") if isinstance(schema, Mapping) else None
        return [_value(value, items, root) for _, value in child]
    return _object(child, schema, root)
