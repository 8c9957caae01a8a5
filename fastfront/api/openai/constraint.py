"""Guided decoding: `structured_outputs` and `response_format` to the wire's StructuredOutputsParams (wire d.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from fastfront.api.coerce import Problem, body_error, literal_problem, read
from fastfront.api.openai.fields import StructuredOutputs
from fastfront.api.openai.integers import check_64_bits
from fastfront.errors import RequestError

KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
FORMATS = ("text", "json_object", "json_schema", "structural_tag")
OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")

MAX_NESTING = 64
#: A structural tag wraps schemas in some levels of its own.
TAG_NESTING = 16


class JsonSchema(msgspec.Struct, kw_only=True):
    """`response_format.json_schema`."""

    name: str
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


def constraint(structured: StructuredOutputs | None, response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    """The wire's map with exactly one constraint, still without a backend; RequestError or BodyError if it is none."""
    wanted: dict[str, Any] = {}
    if structured is not None:
        wanted = {kind: value for kind in KINDS if (value := getattr(structured, kind)) is not None}
        if len(wanted) > 1:
            raise RequestError(
                f"Only one kind of structured outputs can be asked for, not {' and '.join(wanted)}.",
                param="structured_outputs",
            )
    override = _of_format(response_format) if response_format is not None else {}
    if structured is None and not override:
        return None
    wanted.update(override)
    if len(wanted) != 1:
        raise RequestError(
            "structured_outputs needs exactly one of " + ", ".join(KINDS) + f"; this has {len(wanted)}.",
            param="response_format" if override else "structured_outputs",
        )
    check(wanted, "response_format" if override else "structured_outputs")
    result: dict[str, Any] = dict(wanted)
    if structured is not None:
        result.update({name: option for name in OPTIONS if (option := getattr(structured, name))})
    return result


def constrained_by(response_format: dict[str, Any] | None) -> str:
    """The field that a request's constraint is in."""
    return "structured_outputs" if (response_format or {}).get("type", "text") == "text" else "response_format"


def _of_format(response_format: dict[str, Any]) -> dict[str, Any]:
    kind = response_format.get("type")
    if kind == "structural_tag":
        return {"structural_tag": _tag(response_format)}
    loc = ("body", "response_format", "type")
    if "type" not in response_format:
        raise body_error([Problem("missing", loc, "Field required", response_format)])
    if kind not in FORMATS:
        raise body_error([literal_problem(FORMATS, kind, loc)])
    schema = _schema(response_format.get("json_schema"))
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json_object": True}
    if schema is None:
        raise RequestError(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided, with a schema.",
            param="response_format",
        )
    return {"json": schema}


def _schema(json_schema: object) -> dict[str, Any] | None:
    """The schema in `json_schema`, whose types are checked."""
    if json_schema is None:
        return None
    known = read(JsonSchema, json_schema, ("body", "response_format", "json_schema"))
    schema: dict[str, Any] | None = known.get("schema")
    return schema


def _tag(response_format: dict[str, Any]) -> str:
    structures, triggers = response_format.get("structures"), response_format.get("triggers")
    legacy = (
        isinstance(structures, list)
        and all(
            isinstance(part, dict) and isinstance(part.get("begin"), str) and isinstance(part.get("end"), str)
            for part in structures
        )
        and isinstance(triggers, list)
        and all(isinstance(trigger, str) for trigger in triggers)
    )
    if not legacy and not isinstance(response_format.get("format"), dict):
        raise RequestError("Invalid response_format structural_tag specification.", param="response_format")
    _check_json("structural_tag", response_format, "response_format")
    return json.dumps(response_format)


def check(constraint: Mapping[str, Any], field: str) -> None:
    """RequestError, with the `field` that the one constraint comes from, for what would only fail in the engine."""
    ((kind, value),) = constraint.items()
    if kind == "json_object" and value is False:
        raise _bad(field, "json_object must be true if it is set")
    if kind == "choice" and not value:
        raise _bad(field, "choice cannot be an empty list")
    if kind in ("grammar", "json", "structural_tag") and isinstance(value, str) and not value.strip():
        raise _bad(field, f"{kind} cannot be an empty string")
    if kind == "regex" and "\0" in value:
        raise _bad(field, "regex cannot have a NUL character")
    if kind in ("json", "structural_tag"):
        _check_json(kind, value, field)


def _check_json(kind: str, value: str | dict[str, Any], field: str) -> None:
    try:
        document = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise _bad(field, f"{kind} is not valid JSON") from None
    except RecursionError:
        raise too_deep(field, kind) from None
    if _depth_exceeds(document, _nesting(kind)):
        raise too_deep(field, kind)
    check_64_bits(document, field)


def too_deep(field: str, kind: str) -> RequestError:
    """The error for a constraint that nests further than the engine's compilers can follow."""
    what = f"the {kind} that holds the calls" if field == "tools" else kind
    limit = _nesting(kind)
    message = f"{field}: {what} is nested too deeply: objects and arrays may nest at most {limit} levels."
    return RequestError(message, param=field, limit=limit)


def _nesting(kind: str) -> int:
    return MAX_NESTING + (TAG_NESTING if kind == "structural_tag" else 0)


def _depth_exceeds(document: Any, limit: int) -> bool:
    level = [document]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _bad(field: str, what: str) -> RequestError:
    return RequestError(f"{field}: {what}.", param=field)
