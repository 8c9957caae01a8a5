"""JSON Schema keywords that xgrammar reads and does not hold the output to; vLLM does not use it for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_FORMATS = frozenset(
    (
        "email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "uri-reference",
        "uri-template", "json-pointer", "relative-json-pointer",
    )
)  # fmt: skip
_OF_ARRAYS = frozenset(("uniqueItems", "contains", "minContains", "maxContains"))
_LENGTHS = frozenset(("minLength", "maxLength"))
_TEXTS = frozenset(("pattern", "format"))


def has(document: Any, keyword: str) -> bool:
    """Whether any object in the document has this key."""
    return any(keyword in node for node in _objects(document))


def unsupported(schema: Any) -> bool:
    """Whether any part of the schema asks for what xgrammar does not do."""
    return any(_asks(node) for node in _objects(schema))


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    """Every object that is reached through objects, and through arrays right inside of them."""
    waiting = [document] if isinstance(document, dict) else []
    while waiting:
        node = waiting.pop()
        yield node
        for value in node.values():
            if isinstance(value, dict):
                waiting.append(value)
            elif isinstance(value, list):
                waiting += [item for item in value if isinstance(item, dict)]


def _asks(node: dict[str, Any]) -> bool:
    kind = node.get("type")
    types = (
        {kind}
        if isinstance(kind, str)
        else {name for name in kind if isinstance(name, str)}
        if isinstance(kind, list)
        else set()
    )
    keys = node.keys()
    all_of = node.get("allOf")
    return (
        (not types.isdisjoint(("integer", "number")) and "multipleOf" in keys)
        or ("array" in types and not _OF_ARRAYS.isdisjoint(keys))
        or ("string" in types and ("format" in keys and not _is_known(node["format"])))
        or ("string" in types and _has_text_and_length(node))
        or ("object" in types and _asks_of_names(node))
        or (isinstance(all_of, list) and len(all_of) > 1)
    )


def _asks_of_names(node: dict[str, Any]) -> bool:
    if "propertyNames" in node:
        names = node["propertyNames"]
        if isinstance(names, dict) and _has_text_and_length(names):
            return True
        if "patternProperties" in node or "properties" in node or node.get("unevaluatedProperties", True) is not True:
            return True
    patterns = node.get("patternProperties")
    return isinstance(patterns, dict) and ("properties" in node or len(patterns) > 1)


def _is_known(format: Any) -> bool:
    return isinstance(format, str) and format in _FORMATS


def _has_text_and_length(node: dict[str, Any]) -> bool:
    return not _TEXTS.isdisjoint(node.keys()) and not _LENGTHS.isdisjoint(node.keys())
