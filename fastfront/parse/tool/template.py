"""The format that a tokenizer's `response_template` describes (version 1): regions of an answer and what is in them.

What markers can find is served: literal delimiters, and a pattern where it has a literal beginning (to open a region of
calls) or is literal as a whole. Other templates are refused when the process starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastfront.errors import ConfigError
from fastfront.parse.edges import WHITE
from fastfront.parse.machine import Machine
from fastfront.parse.schema import coerce, dump, load
from fastfront.parse.tables import CONTENT, Do, Field, State, Table, Think, strays

_FIELDS = {"thinking", "content", "tool_calls"}
_META = set(r".^$*+?{}[]|()")
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")


def template_think(template: Mapping[str, Any] | None) -> Think | None:
    """How the template's model writes its reasoning; None if it has none."""
    field = _fields(template).get("thinking")
    if field is None:
        return None
    start, end = _literals("thinking", field, "open"), _literals("thinking", field, "close")
    return Think(start, end, lead=WHITE, trail=WHITE, after=WHITE)


def template_table(template: Mapping[str, Any] | None) -> Table:
    """The template's calls, and the markers around its content."""
    fields = _fields(template)
    content = fields.get("content", {})
    around = [*_literals("content", content, "open"), *_literals("content", content, "close")]
    calls = fields.get("tool_calls")
    if calls is None:
        return Table({CONTENT: State(Field.CONTENT, strays(around))})
    opening, pattern = _opening(calls)
    closing = _literals("tool_calls", calls, "close")
    if not opening or not closing:
        raise ConfigError("response_template: tool_calls must have an opening and a closing delimiter")
    act = partial(_calls, field=calls, pattern=pattern)
    states = {
        CONTENT: State(
            Field.CONTENT, {**{marker: Do("call", opens=True, keep=True) for marker in opening}, **strays(around)}
        ),
        "call": State(Field.HELD, {marker: Do(CONTENT, act) for marker in closing}),
    }
    return Table(states)


def _fields(template: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if template is None:
        raise ConfigError("the parser hf needs a tokenizer with a response_template")
    fields = template.get("fields")
    if template.get("version", 1) != 1 or not isinstance(fields, Mapping):
        raise ConfigError("response_template: only version 1 with its fields is known")
    unknown = set(fields) - _FIELDS
    if unknown:
        raise ConfigError(f"response_template: nobody knows what the fields {sorted(unknown)} are in an answer")
    return fields


def _literals(name: str, field: Mapping[str, Any], side: str) -> tuple[str, ...]:
    said = field.get(side, ())
    found = [said] if isinstance(said, str) else list(said)
    pattern = field.get(f"{side}_pattern")
    if pattern is not None:
        literal, whole = _beginning(pattern)
        if not whole:
            raise ConfigError(
                f"response_template: {name}.{side}_pattern {pattern!r} is no literal and cannot be streamed"
            )
        found.append(literal)
    return tuple(found)


def _opening(field: Mapping[str, Any]) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Markers that open a region of calls, and what its beginning must match."""
    pattern = field.get("open_pattern")
    if pattern is None:
        markers = _literals("tool_calls", field, "open")
        return markers, re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))))
    literal, _ = _beginning(pattern)
    if not literal:
        raise ConfigError(f"response_template: tool_calls.open_pattern {pattern!r} has no literal beginning")
    try:
        return (literal,), re.compile(pattern, re.DOTALL)
    except re.error as wrong:
        raise ConfigError(f"response_template: tool_calls.open_pattern: {wrong}") from wrong


def _beginning(pattern: str) -> tuple[str, bool]:
    """The literal text that a pattern begins with, and whether that is all of it."""
    text = ""
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern) and not pattern[at + 1].isalnum():
            char = pattern[at + 1]
            length = 2
        elif char in _META or char == "\\":
            break
        else:
            length = 1
        if pattern[at + length : at + length + 1] in {"*", "+", "?", "{"}:
            break
        text += char
        at += length
    return ("" if "|" in pattern.replace("\\|", "") else text), at == len(pattern)


def _calls(machine: Machine, held: str, field: Mapping[str, Any], pattern: re.Pattern[str]) -> str | None:
    """The region's calls, all at once; what cannot be read is text."""
    opened = pattern.match(held)
    try:
        if opened is None:
            raise ValueError("the region does not begin as it must")
        captures = {key: value for key, value in opened.groupdict().items() if value is not None}
        found = [_call(value) for value in _values(field, held[opened.end() :], captures)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return machine.give_back()
    for name, arguments in found:
        machine.start_call(name)
        machine.arguments_text(_typed(machine, name, arguments))
        machine.end_call()
    return None


def _values(field: Mapping[str, Any], body: str, captures: Mapping[str, str]) -> list[Any]:
    value = _read(body, field.get("content", "text"), field.get("content_args") or {})
    transform = field.get("transform")
    if transform is None:
        return value if isinstance(value, list) else [value]
    if field.get("transform_each"):
        return [_fill(transform, {**captures, **item}) for item in value]
    filled = _fill(transform, {**captures, "content": value})
    return filled if isinstance(filled, list) else [filled]


def _call(value: Any) -> tuple[str, Any]:
    function = value.get("function", value)
    name = function["name"]
    if not isinstance(name, str) or not name:
        raise ValueError("a call has no name")
    return name, function.get("arguments", {})


def _typed(machine: Machine, name: str, arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments if load(arguments)[0] else dump(arguments)
    if isinstance(arguments, dict):
        arguments = {
            key: coerce(value, machine.schemas.types(name, key)) if isinstance(value, str) else value
            for key, value in arguments.items()
        }
    return dump(arguments)


def _read(text: str, name: str, how: Mapping[str, Any]) -> Any:
    """What a region's text says, read as its `content` says."""
    if name == "json":
        return _read_json(text, how)
    if name == "xml-inline":
        found = re.finditer(how["tag_pattern"], text, re.DOTALL)
        return {match["key"]: _read_inner(match["value"], how) for match in found}
    if name == "kv-lines":
        lines = (line.partition(how.get("kv_sep", ":")) for line in text.split(how.get("line_sep", "\n")))
        return {key.strip(): _read_inner(value.strip(), how) for key, mark, value in lines if mark}
    stripped = text.strip() if how.get("strip", True) else text
    if name == "int":
        return int(stripped)
    if name == "float":
        return float(stripped)
    return stripped.lower() in ("true", "1") if name == "bool" else stripped


def _read_inner(text: str, how: Mapping[str, Any]) -> Any:
    inner = how.get("value_parser")
    return text if inner is None else _read(text, inner.get("name", "text"), inner.get("args") or {})


def _read_json(text: str, how: Mapping[str, Any]) -> Any:
    """JSON, with the dialects that a template may allow: other marks around strings, and bare keys."""
    strings: list[str] = []
    parts = text
    for begin, end in how.get("string_delims", ()):
        pieces = re.split(f"{re.escape(begin)}(.*?){re.escape(end)}", parts, flags=re.DOTALL)
        for at in range(1, len(pieces), 2):
            strings.append(pieces[at])
            pieces[at] = f"\x01{len(strings) - 1}\x02"
        parts = "".join(pieces)
    if how.get("unquoted_keys"):
        parts = re.sub(r"(?<=[{,])\s*(\w+):", r'"\1":', parts)
    parts = re.sub("\x01(\\d+)\x02", lambda match: dump(strings[int(match[1])]), parts)
    fits, value = load(parts)
    if not fits:
        if how.get("allow_non_json"):
            return text.strip()
        raise ValueError("not JSON")
    return value


def _fill(transform: Any, scope: Mapping[str, Any]) -> Any:
    """The transform with its `{name.key}` placeholders replaced."""
    if isinstance(transform, Mapping):
        return {key: _fill(value, scope) for key, value in transform.items()}
    if isinstance(transform, list):
        return [_fill(value, scope) for value in transform]
    match = _PLACEHOLDER.fullmatch(transform) if isinstance(transform, str) else None
    if match is None:
        return transform
    value: Any = scope
    for key in match[1].split("."):
        value = value[key]
    return value
