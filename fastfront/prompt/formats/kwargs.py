"""What a request's chat_template_kwargs mean, whatever the chat format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastfront.errors import RequestError

#: Names that a template's renderer has already given away.
_TAKEN = frozenset(("messages", "conversation", "self"))


def template_kwargs(defaults: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Defaults of the server under what the request gives; null and "auto" leave a default as it is."""
    if not asked:
        return defaults
    for name, value in asked.items():
        if (name in _TAKEN and value is not None) or (name == "return_assistant_tokens_mask" and value):
            raise RequestError(f"`{name}` must not be in chat_template_kwargs.", param=f"chat_template_kwargs.{name}")
    given = {name: value for name, value in asked.items() if value is not None and value != "auto"}
    return {**defaults, **given}


def check_wishes(add_generation_prompt: bool, continue_final_message: bool) -> None:
    """Refuses two wishes that exclude each other."""
    if continue_final_message and add_generation_prompt:
        raise RequestError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")


def check_some(messages: list[Any]) -> None:
    """Refuses an empty conversation."""
    if not messages:
        raise RequestError(
            "Cannot apply chat template to an empty conversation. Provide at least one message.", param="messages"
        )


def check_ending(messages: list[Any], add_generation_prompt: bool, continue_final_message: bool) -> None:
    """Refuses an empty conversation, two wishes that exclude each other, and to go on with what nobody began."""
    check_wishes(add_generation_prompt, continue_final_message)
    check_some(messages)
    last = messages[-1]
    if continue_final_message and not (isinstance(last, dict) and last.get("role") == "assistant"):
        raise RequestError(
            "Cannot set `continue_final_message` to True when the last message is not from the assistant.",
            param="continue_final_message",
        )
