"""Call formats that write each argument by its key, with strings as they are: GLM's, Hunyuan's and Kimi K3's."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fastfront.parse.grammar.envelopes import THINK
from fastfront.parse.grammar.formats import (
    Call,
    Choice,
    Format,
    any_text,
    const,
    either,
    optional,
    plus,
    regex,
    schema,
    separated,
    sequence,
    star,
    tag,
    triggered,
)

# --- GLM -------------------------------------------------------------------------------------------------------------

_GLM_START, _GLM_END = "<tool_call>", "</tool_call>"
_GLM_MARKS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
#: In this order vLLM sends them.
_GLM_VALUE_EXCLUDES = (*THINK, _GLM_START, _GLM_END, *_GLM_MARKS)
_GLM_TEXT_EXCLUDES = (*THINK, _GLM_END, *_GLM_MARKS)
_COMBINING = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")


def glm(calls: Sequence[Call], choice: Choice, single: bool) -> Format:
    """Strict tools by their whole schema, others by their keys and the plain types of their values."""
    tags = [_glm_call(call) for call in calls]
    strict = all(call.strict for call in calls)
    if choice == "auto" or (strict and choice == "required"):
        must = choice == "required"
        return triggered(_GLM_START, tags, excludes=_GLM_TEXT_EXCLUDES, at_least_one=must, single=single)
    return tags[0] if strict else separated(tags, single=single or choice == "forced")


def _glm_call(call: Call) -> Format:
    return tag(_GLM_START + call.name, _glm_arguments(call), _GLM_END)


def _glm_arguments(call: Call) -> Format:
    properties = None if call.strict else _plain_properties(call.parameters or {})
    if properties is None:
        return schema(call.schema, "glm_xml")
    pairs = [
        sequence(const(f"<arg_key>{key}</arg_key><arg_value>"), _glm_value(value), const("</arg_value>"))
        for key, value in properties.items()
    ]
    return star(either(pairs))


def _plain_properties(parameters: dict[str, Any]) -> dict[str, Any] | None:
    """The properties of a schema that says no more than those; None if it does."""
    properties = parameters.get("properties")
    if not isinstance(properties, dict) or not properties or parameters.get("additionalProperties") is True:
        return None
    return None if any(key in parameters for key in _COMBINING) else properties


def _glm_value(value: Any) -> Format:
    value = value if isinstance(value, dict) else {}
    if isinstance(value.get("enum"), list) and value["enum"]:
        return either([const(item if isinstance(item, str) else json.dumps(item)) for item in value["enum"]])
    kind = value.get("type")
    text = any_text(_GLM_VALUE_EXCLUDES)
    if isinstance(kind, list) and kind:
        rest = [schema({"type": name}) for name in kind if name != "string"]
        return either([*rest, text] if "string" in kind else rest)
    return schema({"type": kind}) if isinstance(kind, str) and kind != "string" else text


# --- Hunyuan ---------------------------------------------------------------------------------------------------------


def hy_v4(suffix: str) -> Callable[[Sequence[Call], Choice, bool], Format | None]:
    """Keys in the schema's order, values free; where calls may only come nothing is held."""

    def build(calls: Sequence[Call], choice: Choice, single: bool) -> Format | None:
        if choice == "auto":
            return None
        tags = [
            tag(f"<tool_call{suffix}>{call.name}", _hy_arguments(call, suffix), f"</tool_call{suffix}>")
            for call in calls
        ]
        inner = separated(tags, single=single or choice == "forced")
        return sequence(const(f"<tool_calls{suffix}>"), inner, const(f"</tool_calls{suffix}>"))

    return build


def _hy_arguments(call: Call, suffix: str) -> Format:
    def pair(key: str) -> Format:
        marks = [f"<{slash}{name}{suffix}>" for name in ("arg_key", "arg_value") for slash in ("", "/")]
        return sequence(const(marks[0]), const(key), const(marks[1]), const(marks[2]), any_text(), const(marks[3]))

    parameters = call.parameters or {}
    properties = parameters.get("properties")
    known = list(properties) if isinstance(properties, dict) else []
    listed = parameters.get("required")
    needed = [key for key in listed if isinstance(key, str)] if isinstance(listed, list) else []
    must = [key for key in known if key in needed] + [key for key in needed if key not in known]
    elements = [pair(key) for key in must]
    may = [pair(key) for key in known if key not in needed]
    if may:
        elements.append(star(either(may)))
    return sequence(*elements) if elements else any_text()


# --- Kimi K3 ---------------------------------------------------------------------------------------------------------

_OPEN, _CLOSE, _SEP = "<|open|>", "<|close|>", "<|sep|>"
_K3_TYPES = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
    "array": "array",
}
_K3_MOST_VALUES, _K3_MOST_CHARS = 256, 4096


def kimi_k3(calls: Sequence[Call], choice: Choice, single: bool) -> Format:
    """The channel of the response, then that of the calls, then the end of the message."""
    tools = tag(
        f"{_OPEN}tools{_SEP}",
        separated([_k3_call(call) for call in calls], single=single),
        f"{_CLOSE}tools{_SEP}",
    )
    return sequence(
        optional(const(f"{_OPEN}response{_SEP}")),
        tag("", any_text((_OPEN, _CLOSE, "<|end_of_msg|>")), f"{_CLOSE}response{_SEP}"),
        optional(tools) if choice == "auto" else tools,
        optional(const(f"{_CLOSE}message{_SEP}")),
    )


def _k3_call(call: Call) -> Format:
    content = sequence(regex("[0-9]+"), const(f'"{_SEP}'), _k3_arguments(call.schema))
    return tag(f'{_OPEN}call tool="{_k3_attribute(call.name)}" index="', content, f"{_CLOSE}call{_SEP}")


def _k3_attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _k3_arguments(parameters: dict[str, Any] | bool) -> Format:
    free = tag(
        f"{_OPEN}argument ",
        sequence(regex(r"[^<]*<\|sep\|>"), any_text((_CLOSE,))),
        f"{_CLOSE}argument{_SEP}",
    )
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    if not isinstance(parameters, dict) or not isinstance(properties, dict) or not properties:
        return star(free)
    shared = {key: parameters[key] for key in ("$defs", "definitions") if isinstance(parameters.get(key), dict)}
    content = either([_k3_argument(key, value, shared) or free for key, value in properties.items()])
    needed = parameters.get("required")
    return plus(content) if isinstance(needed, list) and needed else star(content)


def _k3_argument(key: str, value: Any, shared: dict[str, Any]) -> Format | None:
    """An argument of one known type; None for others."""
    value = value if isinstance(value, dict) else {}
    kind = value.get("type")
    name = _K3_TYPES.get(kind) if isinstance(kind, str) else None
    if name is None:
        return None
    content = _k3_string(value) if name == "string" else schema({**shared, **value} if shared else value)
    return tag(f'{_OPEN}argument key="{_k3_attribute(key)}" type="{name}"{_SEP}', content, f"{_CLOSE}argument{_SEP}")


def _k3_string(value: dict[str, Any]) -> Format:
    """A string as it is: one of a few, of a bounded length, or any without the closing mark."""
    values = value.get("enum")
    if values is None and isinstance(value.get("const"), str):
        values = [value["const"]]
    if isinstance(values, list) and 0 < len(values) <= _K3_MOST_VALUES:
        texts = [item for item in values if isinstance(item, str) and "<|" not in item]
        if len(texts) == len(values):
            return either([const(text) for text in texts])
    most, least = value.get("maxLength"), value.get("minLength", 0)
    if not isinstance(most, int) or not 0 <= most <= _K3_MOST_CHARS:
        return any_text((_CLOSE,))
    least = least if isinstance(least, int) and 0 <= least <= most else 0
    return regex(f"(?:[^<]|<[^|]){{{least},{most}}}")
