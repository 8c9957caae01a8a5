"""Names in those parts of a request that are plain JSON here. Where a template may look at any, none is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.unknown import Location, unknown_names

#: Also those that only an answer's message has: clients send these back as they came.
_MESSAGE = frozenset(
    (
        "role", "content", "name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content", "refusal",
        "annotations", "audio", "function_call", "task", "tools",
    )
)  # fmt: skip
_TOOL_CHOICE = frozenset(("type", "function"))
_FUNCTION = frozenset(("name",))
_FORMATS = {
    "text": frozenset(("type",)),
    "json_object": frozenset(("type",)),
    "json_schema": frozenset(("type", "json_schema")),
}
_SCHEMA = frozenset(("name", "description", "schema", "strict"))


def unknown_in_chat(body: ChatRequest) -> Iterator[Location]:
    """Those of messages, tool_choice and response_format."""
    yield from unknown_in_messages(body.messages)
    if isinstance(body.tool_choice, dict):
        yield from unknown_names(body.tool_choice, _TOOL_CHOICE, ("tool_choice",))
        yield from unknown_names(body.tool_choice.get("function"), _FUNCTION, ("tool_choice", "function"))
    yield from unknown_in_format(body.response_format)


def unknown_in_messages(messages: list[dict[str, Any]]) -> Iterator[Location]:
    """Those of messages."""
    for at, message in enumerate(messages):
        if len(message) > 2:
            yield from unknown_names(message, _MESSAGE, ("messages", at))


def unknown_in_format(response_format: dict[str, Any] | None) -> Iterator[Location]:
    """Those of response_format."""
    if response_format is None:
        return
    known = _FORMATS.get(str(response_format.get("type")))
    if known is not None:
        yield from unknown_names(response_format, known, ("response_format",))
        if "json_schema" in known:
            yield from unknown_names(response_format.get("json_schema"), _SCHEMA, ("response_format", "json_schema"))
