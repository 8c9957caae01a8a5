"""Tools of a request, and what it may ask of them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fastfront.api.coerce import Problem, body_error
from fastfront.errors import RequestError, UnsupportedError

ToolChoice = str | dict[str, Any] | None
_USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'


class Function(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class Tool(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One tool; only functions exist."""

    type: Literal["function"] = "function"
    function: Function
    defer_loading: bool | None = None


def plain_tools(tools: list[Tool] | None) -> list[dict[str, Any]] | None:
    """Tools as plain JSON objects; what they hold is shared, not copied."""
    return None if tools is None else [_plain(tool) for tool in tools]


def _plain(tool: Tool) -> dict[str, Any]:
    function = tool.function
    return {
        "type": tool.type,
        "function": {
            "name": function.name,
            "description": function.description,
            "parameters": function.parameters,
            "strict": function.strict,
            "defer_loading": function.defer_loading,
        },
        "defer_loading": tool.defer_loading,
    }


def check_tools(tools: list[Tool] | None, choice: ToolChoice | msgspec.UnsetType, parser: str | None = None) -> None:
    """vLLM's rules on `tools` and `tool_choice`; UnsupportedError where calls would have to be parsed."""
    if tools == []:
        raise RequestError(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
            param="tools",
        )
    if choice is msgspec.UNSET:
        choice = "auto" if tools else "none"
    if choice is None or choice == "none":
        return
    if tools is None:
        raise RequestError("When using `tool_choice`, `tools` must be set.", param="tool_choice")
    if isinstance(choice, dict):
        name = _named(choice)
        if all(tool.function.name != name for tool in tools):
            raise RequestError(
                "The tool specified in `tool_choice` does not match any of the specified `tools`", param="tool_choice"
            )
        wish = f'function "{name}"'
    elif choice in ("auto", "required"):
        wish = f'"{choice}"'
    else:
        raise RequestError(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.',
            param="tool_choice",
        )
    if parser is not None:
        return
    raise UnsupportedError(
        f"tool_choice={wish} needs a tool call parser, and this server was started without one (--tool-call-parser "
        'auto, or the name of one). Start it with one, or send tool_choice "none".',
        param="tool_choice",
    )


def _named(choice: dict[str, Any]) -> str:
    kind = choice.get("type", "function")
    if kind != "function":
        problem = Problem("literal_error", ("body", "tool_choice", "type"), "Input should be 'function'", kind)
        raise body_error([problem])
    function = choice.get("function")
    if not isinstance(function, dict):
        raise RequestError(
            f"Invalid value for `function`: `{function}` in `tool_choice`! {_USAGE}", param="tool_choice.function"
        )
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(
            f"Invalid `name` in `function`: `{name}` in `tool_choice`! {_USAGE}", param="tool_choice.function.name"
        )
    return name
