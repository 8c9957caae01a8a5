"""What the chat formats of DeepSeek V3.2 and V4 share: control tokens, and tool calls as DSML, their mark-up."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.content_format import ContentFormat
from fastfront.prompt.formats.kwargs import check_ending, template_kwargs
from fastfront.prompt.messages import Message, conversation, tool_definitions

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, THOUGHT = "<think>", "</think>"
DSML = "｜DSML｜"


class DeepSeekFormat(ABC):
    """The frame of both formats. Subclasses write the messages down; `content_format` says how they want content."""

    makes_ids = False

    content_format: ContentFormat

    def __init__(self, *, default_kwargs: Mapping[str, Any] | None = None, model: str = "the model") -> None:
        self._defaults = dict(default_kwargs or {})
        self._model = model

    def render(self, chat: ChatInput) -> str:
        """The prompt text; raises RequestError."""
        check_ending(chat.messages, chat.add_generation_prompt, chat.continue_final_message)
        kwargs = template_kwargs(self._defaults, chat.chat_template_kwargs)
        tools = kwargs.get("tools") or tool_definitions(chat.tools)
        messages = conversation(chat.messages, self.content_format, self._model)
        text = self.write(messages, tools, kwargs, chat.add_generation_prompt)
        return text.removesuffix(EOS) if chat.continue_final_message else text

    @abstractmethod
    def write(
        self, messages: list[Message], tools: list[Message] | None, kwargs: Mapping[str, Any], generate: bool
    ) -> str:
        """The whole prompt; `generate` says whether the model's turn is opened at its end."""


def last_user(messages: list[Message]) -> int:
    """The index of the last message that asks something, -1 when there is none."""
    return max((i for i, message in enumerate(messages) if message["role"] in ("user", "developer")), default=-1)


def schemas(tools: Any, where: str = "tools") -> str:
    """The functions of `tools` as JSON, one a line."""
    try:
        return "\n".join(to_json(tool["function"]) for tool in tools)
    except (TypeError, KeyError):
        raise RequestError(f"{where} must be a list of objects with a function.", param=where) from None


def calls(message: Message, block: str) -> str:
    """The tool calls of a message as one DSML block of that name, "" when it has none."""
    written = []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        parameters = "\n".join(
            f'<{DSML}parameter name="{name}" string="{str(isinstance(value, str)).lower()}">'
            f"{value if isinstance(value, str) else to_json(value)}</{DSML}parameter>"
            for name, value in function["arguments"].items()
        )
        written.append(f'<{DSML}invoke name="{function.get("name")}">\n{parameters}\n</{DSML}invoke>')
    if not written:
        return ""
    body = "\n".join(written)
    return f"\n\n<{DSML}{block}>\n{body}\n</{DSML}{block}>"


def to_json(value: Any) -> str:
    """JSON as the models read it."""
    return json.dumps(value, ensure_ascii=False)


def refuse(index: int, problem: str) -> RequestError:
    """The error for one message of the conversation."""
    return RequestError(f"messages.{index} {problem}.", param=f"messages.{index}")
