"""Function tools as the TypeScript that gpt-oss models read: one type per function, its parameters an object type.

Layout and oddities (indentation, where comments go) are those of openai-harmony's renderer: a model is used to them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def namespace(name: str, functions: Iterable[Json]) -> str:
    """`functions` (name, description, parameters) as a TypeScript namespace."""
    lines = [f"namespace {name} {{", ""]
    for function in functions:
        lines += [f"// {line}" for line in _lines(function.get("description") or "")]
        parameters = function.get("parameters")
        taken = "" if parameters is None else f"_: {_type(parameters, '')}"
        lines += [f"type {function['name']} = ({taken}) => any;", ""]
    return "\n".join([*lines, f"}} // namespace {name}"])


def _type(schema: Any, indent: str) -> str:
    """A JSON schema as a TypeScript type; `indent` is that of the line that it stands in."""
    if not isinstance(schema, dict):
        return "any"
    variants = schema.get("oneOf")
    if isinstance(variants, list):
        return _variants(variants, indent)
    kind = schema.get("type")
    if isinstance(kind, list):
        names = [_simple_name(name) for name in kind if isinstance(name, str)]
        return " | ".join(names) or "any"
    if kind == "object":
        return _object(schema, indent)
    if kind == "string":
        return _enum(schema) or "string"
    if kind in ("number", "integer"):
        return "number"
    if kind == "boolean":
        return "boolean"
    if kind == "array":
        return f"{_type(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
    return "any"


def _object(schema: Json, indent: str) -> str:
    description = schema.get("description")
    out = [f"{indent}// {description}\n" if isinstance(description, str) else "", "{\n"]
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    properties = schema.get("properties")
    for name, value in (properties if isinstance(properties, dict) else {}).items():
        out += [f"{indent}{line}\n" for line in _property(name + ("" if name in required else "?"), value, indent)]
    out.append(f"{indent}}}")
    return "".join(out)


def _property(name: str, schema: Any, indent: str) -> list[str]:
    """Lines of one property, comments first. Only the first line of a comment's text is marked as one."""
    fields = schema if isinstance(schema, dict) else {}
    title, description, examples = (fields.get(key) for key in ("title", "description", "examples"))
    variants = fields.get("oneOf")
    about = [f"// {description}"] if isinstance(description, str) else []
    shown = []
    if isinstance(examples, list) and examples:
        shown = ["// Examples:", *(f'// - "{example}"' for example in examples if isinstance(example, str))]
    lines = [f"// {title}", "//"] if isinstance(title, str) else []
    default = f"// default: {_default(fields)}" if "default" in fields else ""
    if "oneOf" not in fields:
        text = _nullable(fields, _type(schema, indent + "    "))
        return [*lines, *about, *shown, f"{name}: {text},{default and ' ' + default}"]
    if not isinstance(variants, list):
        return [*lines, *shown, f"{name}: {_nullable(fields, _type(schema, indent + '    '))},"]
    if variants and isinstance(variants[0], dict) and variants[0].get("description") == description:
        about = []
    head = [*lines, *shown, *about, *([default] if default else [])]
    return [*head, f"{name}:{_variants(variants, indent, fields)}", ","]


def _variants(schemas: list[Any], indent: str, owner: Json | None = None) -> str:
    """The alternatives of a oneOf, one a line; `owner` is the property that they are the type of."""
    out = []
    said = owner.get("description") if owner is not None else None
    for i, schema in enumerate(schemas):
        fields = schema if isinstance(schema, dict) else {}
        notes = []
        description = fields.get("description")
        if isinstance(description, str) and not (isinstance(said, str) and (i == 0 or description == said)):
            notes.append(description)
        if "default" in fields:
            notes.append(f"default: {_default(fields, quoted=owner is None)}")
        text = _nullable(fields, _type(schema, indent + "   "))
        out.append(f"\n{indent} | {text}{' // ' if notes else ''}{' '.join(notes)}")
    return "".join(out)


def _nullable(schema: Json, text: str) -> str:
    return f"{text} | null" if schema.get("nullable") is True and "null" not in text else text


def _default(schema: Json, quoted: bool = False) -> str:
    value = schema["default"]
    chosen = isinstance(schema.get("enum"), list) and schema["enum"]
    if isinstance(value, str) and not (chosen and quoted):
        return value if chosen else f'"{value}"'
    return _json(value)


def _json(value: Any) -> str:
    """JSON with numbers as the reference writes them: 1e-6, and whole numbers above 64 bits as floats."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(key)}:{_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if type(value) is int and not -(2**63) <= value < 2**64:
        value = float(value)
    if isinstance(value, float):
        return re.sub(r"(e[+-])0", r"\1", repr(value))
    return json.dumps(value, ensure_ascii=False)


def _enum(schema: Json) -> str:
    values = schema.get("enum")
    return " | ".join(f'"{value}"' for value in values if isinstance(value, str)) if isinstance(values, list) else ""


def _simple_name(kind: str) -> str:
    return "number" if kind == "integer" else kind


def _lines(text: Any) -> list[str]:
    if not isinstance(text, str):
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
