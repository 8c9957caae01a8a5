"""What a tool's JSON schema says about its arguments, and raw text made into values of these types."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

_ALIASES = {
    "string": ("str", "text", "varchar", "char", "enum"),
    "integer": ("int", "int32", "int64", "uint", "uint32", "uint64", "long", "short", "unsigned"),
    "number": ("float", "float32", "float64", "double"),
    "boolean": ("bool", "binary"),
    "object": ("dict", "map"),
    "array": ("arr", "list", "sequence"),
}
_NAMES = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}
_ORDER = ("null", "integer", "number", "boolean", "object", "array", "string")
_OF_VALUES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_STRING = frozenset({"string"})


class Schemas:
    """The parameters of a request's tools; a tool is OpenAI's, `{"function": {...}}`, or the inner object alone."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._parameters: dict[str, Mapping[str, Any]] = {}
        for tool in tools:
            function = tool.get("function", tool)
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                parameters = function.get("parameters")
                self._parameters[function["name"]] = parameters if isinstance(parameters, Mapping) else {}

    def parameters(self, function: str) -> Mapping[str, Any]:
        """The schema of all arguments of a function; empty if it is not known."""
        return self._parameters.get(function, {})

    def of(self, function: str, key: str) -> Mapping[str, Any] | None:
        """The schema of one argument; None if the function or the argument is not known."""
        parameters = self._parameters.get(function)
        properties = parameters.get("properties") if parameters is not None else None
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        return schema if isinstance(schema, Mapping) else None

    def types(self, function: str, key: str) -> frozenset[str]:
        """The JSON types that an argument may have; a string where nothing is known."""
        schema = self.of(function, key)
        if schema is None:
            return _STRING
        return types_of(schema, self._parameters[function]) or _STRING


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types that a schema allows, empty if it does not say."""
    if not isinstance(schema, Mapping) or depth > 16:
        return frozenset()
    found: set[str] = set()
    said = schema.get("type")
    for name in said if isinstance(said, list) else [said]:
        if isinstance(name, str):
            name = name.strip().lower()
            found.add(_NAMES.get(name, name))
    values = schema.get("enum")
    if isinstance(values, list):
        found.update(_OF_VALUES.get(type(value), "string") for value in values)
    if schema.get("nullable") is True:
        found.add("null")
    for keyword in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(keyword)
        for choice in choices if isinstance(choices, list) else ():
            found |= types_of(choice, root, depth + 1)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = target.get(step) if isinstance(target, Mapping) else None
        found |= types_of(target, root, depth + 1)
    return frozenset(found)


def coerce(text: str, types: frozenset[str]) -> Any:
    """The value of `text` as the first of `types` that fits; if none does, as JSON; else the text."""
    for name in _ORDER:
        if name in types:
            fits, value = _as(name, text)
            if fits:
                return value
    fits, value = load(text)
    return value if fits else text


def load(text: str) -> tuple[bool, Any]:
    """Whether `text` is JSON with finite numbers, and its value."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False, None
    return is_finite(value), value


def is_finite(value: Any) -> bool:
    """Whether a value holds no number that JSON cannot write."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, (list, tuple)):
        return all(map(is_finite, value))
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return True


def dump(value: Any) -> str:
    """JSON as the models' templates and vLLM write it: with a blank after commas and colons, and plain Unicode."""
    return json.dumps(value, ensure_ascii=False)


def _as(name: str, text: str) -> tuple[bool, Any]:
    stripped = text.strip()
    if name == "string":
        return True, text
    if name == "null":
        return stripped.lower() == "null", None
    if name == "boolean":
        lower = stripped.lower()
        return lower in ("true", "1", "false", "0"), lower in ("true", "1")
    if name in ("object", "array"):
        fits, value = load(text)
        return fits, value
    try:
        if name == "integer":
            return True, int(stripped)
        number = float(stripped)
        if not math.isfinite(number):
            return False, None
        return True, int(number) if number.is_integer() else number
    except (ValueError, OverflowError):
        return False, None
