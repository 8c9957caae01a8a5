"""What is certainly wrong with a JSON schema or a structural tag, for where xgrammar is not there to say so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastfront.engine.constraints.verdict import Judge

_TYPES = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))
#: Keywords whose value is a schema, a list of schemas, an object of schemas.
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames", "unevaluatedProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_BOUNDS = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))

#: Each format of a structural tag: fields that it must have, with what they are (other formats among them).
_FORMATS: dict[str, dict[str, str]] = {
    "any_text": {},
    "any_tokens": {},
    "exclude_token": {},
    "token": {"token": "token"},
    "const_string": {"value": "text"},
    "json_schema": {"json_schema": "schema"},
    "qwen_xml_parameter": {"json_schema": "schema"},
    "grammar": {"grammar": "grammar"},
    "regex": {"pattern": "regex"},
    "sequence": {"elements": "formats"},
    "or": {"elements": "formats"},
    "tag": {"begin": "edge", "content": "format", "end": "edges"},
    "triggered_tags": {"triggers": "texts", "tags": "formats"},
    "token_triggered_tags": {"trigger_tokens": "list", "tags": "formats"},
    "tags_with_separator": {"tags": "formats", "separator": "text"},
    "optional": {"content": "format"},
    "plus": {"content": "format"},
    "star": {"content": "format"},
    "repeat": {"min": "number", "max": "number", "content": "format"},
    "dispatch": {"rules": "list"},
    "token_dispatch": {"rules": "list"},
}
_STYLES = frozenset(
    (
        "json", "qwen_xml", "minimax_xml", "minimax_m3_xml", "deepseek_xml", "glm_xml", "cohere_xml", "kimi_k3_xml",
        "deepseek_v4_1_xml",
    )
)  # fmt: skip

#: What no backend's regexes have.
_UNKNOWN = re.compile(r"\(\?(?:[=!]|<[=!])|\\[bB1-9]")


def is_no_regex(pattern: str) -> bool:
    """Whether no engine would take this pattern; those that take it differ in what they make of odd escapes."""
    if _UNKNOWN.search(pattern):
        return True
    try:
        re.compile(pattern)
    except re.error as error:
        return not error.msg.startswith("bad escape \\") or pattern.endswith("\\")
    except (RecursionError, OverflowError):
        return True
    return False


def schema_problem(schema: Any, root: Any = None) -> str | None:
    """Why this is no JSON schema, of the document `root`; None if it may be one."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return "a schema must be an object"
    root = schema if root is None else root
    kind = schema.get("type")
    for name in kind if isinstance(kind, list) else [] if kind is None else [kind]:
        if name not in _TYPES:
            return f"Invalid type: {name}"
    for key, is_right in (("properties", dict), ("required", list), ("enum", list)):
        if key in schema and not isinstance(schema[key], is_right):
            return f"{key} must be {'an object' if is_right is dict else 'an array'}"
    if schema.get("enum") == []:
        return "enum must not be empty"
    pattern, reference = schema.get("pattern"), schema.get("$ref")
    if isinstance(pattern, str) and is_no_regex(pattern) and not _UNKNOWN.search(pattern):
        return f"the pattern {pattern!r} is no regular expression"
    if isinstance(reference, str) and (found := _problem(root, reference, set())) is not None:
        return found
    for low, high in _BOUNDS:
        least, most = schema.get(low), schema.get(high)
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            return f"{low} ({least}) is greater than {high} ({most})"
    parts = [schema[key] for key in _ONE if isinstance(schema.get(key), dict)]
    parts += [part for key in _LISTS if isinstance(schema.get(key), list) for part in schema[key]]
    parts += [part for key in _MAPS if isinstance(schema.get(key), dict) for part in schema[key].values()]
    return next((found for part in parts if (found := schema_problem(part, root)) is not None), None)


_NOWHERE = object()


#: Keys whose values are no schemas.
_VALUES = ("const", "enum", "default", "examples")


def circle(document: Any) -> str | None:
    """Why a reference in a schema says nothing, because it leads only to itself: no engine can begin with it."""
    pending = [document]
    good: set[str] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str) and (found := _problem(document, node["$ref"], good)) is not None:
                return found
            pending += [value for key, value in node.items() if key not in _VALUES]
        elif isinstance(node, list):
            pending += node
    return None


def _problem(root: Any, reference: str, good: set[str]) -> str | None:
    """Why a reference within a document leads to no schema; None for one that does, or that leads out of it.

    `good` has those that are known to lead somewhere; what is found out is added.
    """
    seen: set[str] = set()
    following: Any = reference
    while isinstance(following, str) and (following == "#" or following.startswith("#/")) and following not in good:
        if following in seen:
            return f"the reference {reference!r} leads only to itself"
        seen.add(following)
        target = _target(root, following)
        if target is _NOWHERE:
            return f"Pointer {following[1:]!r} does not exist"
        following = target.get("$ref") if isinstance(target, dict) else None
    good |= seen
    return None


def _target(root: Any, reference: str) -> Any:
    """What a reference within a document leads to."""
    target = root
    for step in reference.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and step in target:
            target = target[step]
        elif isinstance(target, list) and step.isdigit() and int(step) < len(target):
            target = target[int(step)]
        else:
            return _NOWHERE
    return target


def tag_problem(document: Any, judge: Judge) -> str | None:
    """Why this is no structural tag; None if it may be one. `judge` is asked about what it holds."""
    if not isinstance(document, dict):
        return "it must be an object"
    if "structures" not in document:
        return _format_problem(document.get("format"), judge)
    triggers, structures = document.get("triggers"), document["structures"]
    if not triggers or not structures:
        return "it must have triggers and structures"
    for part in structures:
        if not any(part["begin"].startswith(trigger) for trigger in triggers):
            return f"no trigger begins {part['begin']!r}"
        if (found := schema_problem(part["schema"])) is not None:
            return found
    return None


def _format_problem(format: Any, judge: Judge) -> str | None:
    if not isinstance(format, dict):
        return "format must be an object"
    kind = format.get("type")
    if kind is None and "value" in format:
        kind = "const_string"
    if kind not in _FORMATS:
        return f"there is no format of type {kind!r}"
    for field, what in _FORMATS[kind].items():
        found = f"{field} is missing" if field not in format else _field_problem(what, format[field], judge)
        if found is not None:
            return f"{kind}: {found}"
    if format.get("style", "json") not in _STYLES:
        return f"there is no style {format['style']!r}"
    if kind == "repeat" and 0 <= format["max"] < format["min"]:
        return "repeat: min is greater than max"
    if kind == "triggered_tags":
        return _triggers_problem(format)
    return None


def _triggers_problem(format: dict[str, Any]) -> str | None:
    if "" in format["triggers"]:
        return "triggered_tags: a trigger is empty"
    for tag in format["tags"]:
        begin = tag.get("begin")
        if isinstance(begin, str) and not any(begin.startswith(trigger) for trigger in format["triggers"]):
            return f"triggered_tags: no trigger begins {begin!r}"
    return None


def _field_problem(what: str, value: Any, judge: Judge) -> str | None:
    """Why a field is not what it must be."""
    if what == "format":
        return _format_problem(value, judge)
    if what in ("formats", "texts", "list"):
        if not isinstance(value, list) or not value:
            return "it must be a list that is not empty"
        if what == "texts":
            return None if all(isinstance(item, str) for item in value) else "it must be a list of strings"
        if what == "list":
            return None
        return next((found for item in value if (found := _format_problem(item, judge)) is not None), None)
    if what == "schema":
        return schema_problem(value)
    if what in ("text", "regex", "grammar"):
        if not isinstance(value, str):
            return "it must be a string"
        return judge(what, value).get("problem") if what != "text" else None
    if what == "number":
        return None if isinstance(value, int) else "it must be a number"
    if what == "edges" and isinstance(value, list):
        return None if value and all(isinstance(item, str) for item in value) else "it must be strings"
    return None if isinstance(value, str | dict | int) else f"a {type(value).__name__} is no {what}"
