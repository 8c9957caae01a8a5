"""A constraint on the answer's text as a format that can stand beside calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastfront.errors import RequestError, UnsupportedError
from fastfront.parse.grammar.formats import Format, const, regex, schema, tag


def as_format(constraint: Mapping[str, Any]) -> Format:
    """The format of the one constraint in `constraint` (as the engine gets it); RequestError if it has none."""
    if constraint.get("json_object"):
        return schema({"type": "object"})
    if (document := constraint.get("json")) is not None:
        return schema(_read(document))
    if (pattern := constraint.get("regex")) is not None:
        return regex(pattern)
    if (choice := constraint.get("choice")) is not None:
        return {"type": "or", "elements": [const(text) for text in choice]}
    if (grammar := constraint.get("grammar")) is not None:
        if "::=" not in grammar:
            raise UnsupportedError(
                "A Lark grammar together with tool calls that are held to one is not supported by fastfront; write "
                "the grammar as EBNF.",
                param="structured_outputs",
            )
        return {"type": "grammar", "grammar": grammar}
    return _of_tag(_read(constraint["structural_tag"]))


def _of_tag(document: Any) -> Format:
    """The inside of a structural tag, of the new form or the old."""
    try:
        if "structures" not in document:
            inside: Format = document["format"]
            return inside
        tags = [tag(part["begin"], schema(part["schema"]), part["end"]) for part in document["structures"]]
        triggers = list(document["triggers"])
    except (KeyError, TypeError):
        raise RequestError("Invalid structural_tag specification.", param="structured_outputs") from None
    return {
        "type": "triggered_tags",
        "triggers": triggers,
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": False,
        "excludes": [],
    }


def _read(document: Any) -> Any:
    """JSON that may be text."""
    if not isinstance(document, str):
        return document
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        raise RequestError("structured_outputs is not valid JSON.", param="structured_outputs") from None
