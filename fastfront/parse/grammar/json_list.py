"""What parsers without a grammar of their own are held to: calls as plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastfront.errors import RequestError
from fastfront.parse.grammar.formats import Call

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def call_list(calls: Sequence[Call], single: bool) -> dict[str, Any]:
    """The schema of an array of calls, each with a name and parameters; definitions of all tools are put together."""
    shared: dict[str, Any] = {}
    kinds = []
    for call in calls:
        parameters = dict(call.parameters) if call.parameters is not None else None
        definitions = parameters.pop("$defs", {}) if parameters is not None else {}
        if not isinstance(definitions, dict):
            raise RequestError(f"`$defs` in the parameters of tool '{call.name}' must be an object.", param="tools")
        for name, definition in definitions.items():
            if shared.setdefault(name, definition) != definition:
                raise RequestError(
                    f"Tool definition '{name}' has multiple schemas, which is not supported.", param="tools"
                )
        kinds.append(_kind(call.name, "parameters", parameters or _NOTHING))
    made = _array(kinds)
    if single:
        made["maxItems"] = 1
    if shared:
        made["$defs"] = shared
    return made


def arguments(call: Call) -> dict[str, Any]:
    """The schema of one function's arguments alone."""
    return call.parameters or _NOTHING


def mistral(calls: Sequence[Call], forced: bool) -> dict[str, Any]:
    """As `call_list`, with the key that Mistral's models write."""
    kinds = [
        {"type": "object", **_kind(call.name, "arguments", call.parameters or {"type": "object"})} for call in calls
    ]
    return {**_array(kinds), **({"maxItems": 1} if forced else {})}


def _kind(name: str, key: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"name": {"type": "string", "enum": [name]}, key: parameters}, "required": ["name", key]}


def _array(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": {"type": "object", "anyOf": kinds}}
