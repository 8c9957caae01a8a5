"""The format of models that bring a Jinja chat template."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from fastfront.errors import ConfigError, RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.content_format import ContentFormat
from fastfront.prompt.fast_template import speed_up
from fastfront.prompt.formats.kwargs import check_some, check_wishes, template_kwargs
from fastfront.prompt.messages import Message, conversation, developer_as_system, tool_definitions
from fastfront.prompt.template import ChatTemplate, FastRenderer

#: Arguments of transformers' apply_chat_template and of its render call: never variables of a template.
_NOT_VARIABLES = frozenset(
    (
        "chat_template", "conversation", "continue_final_message", "tokenize", "padding", "truncation", "max_length",
        "return_tensors", "return_dict", "tokenizer_kwargs", "add_generation_prompt", "tools", "documents", "messages",
    )
)  # fmt: skip
# With a space at its end, so that a template that trims the message shows in the prompt.
_CUT = "CONTINUE_FINAL_MESSAGE_TAG "

LIGHT_FAST, LIGHT_JINJA2 = 16384, 8192


class JinjaFormat:
    """Chat templates by name, and what every rendering of them gets."""

    makes_ids = False

    def __init__(
        self,
        templates: Mapping[str, ChatTemplate],
        *,
        special_tokens: Mapping[str, str] | None = None,
        default_kwargs: Mapping[str, Any] | None = None,
        content_format: str = "auto",
        model: str = "the model",
    ) -> None:
        if content_format not in ("auto", "string", "openai"):
            raise ConfigError(f"--chat-template-content-format must be auto, string or openai, not {content_format!r}")
        self.templates = dict(templates)
        self.special_tokens = dict(special_tokens or {})
        self.default_kwargs = dict(default_kwargs or {})
        self.content_format = content_format
        self.model = model

    @property
    def light(self) -> int:
        """The weight (messages.weight) up to which any conversation renders in well under 2 ms."""
        fast = all(template.fast is not None for template in self.templates.values())
        return LIGHT_FAST if fast else LIGHT_JINJA2

    def render(self, chat: ChatInput) -> str:
        """The prompt text; raises RequestError for what the format or the template refuses."""
        common = self.common(chat)
        if chat.continue_final_message:
            return _render_open_ended(common.template, common.variables(chat.messages))
        return common.render(chat.messages, chat.source)

    def common(self, chat: ChatInput) -> Common:
        """What conversations that share all but their messages have in common; RequestError for what is refused."""
        if chat.continue_final_message:
            check_wishes(chat.add_generation_prompt, True)
        kwargs = template_kwargs(self.default_kwargs, chat.chat_template_kwargs)
        tools = kwargs.get("tools")
        if tools is not None:
            tools = _list_of_objects(tools, "tools")
        elif chat.tools is not None:
            tools = tool_definitions(chat.tools)
        documents = chat.documents if chat.documents is not None else kwargs.get("documents")
        if documents is not None:
            documents = _list_of_objects(documents, "documents")
        template = self.choose(chat.chat_template, tools is not None)
        around = {
            **self.special_tokens,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": chat.add_generation_prompt,
        }
        if kwargs:
            around |= {name: value for name, value in kwargs.items() if name not in _NOT_VARIABLES}
        return Common(template, around, self.format_of(template), self.model)

    def choose(self, name: str | None, with_tools: bool) -> ChatTemplate:
        """The template of that name, else the one for a conversation with or without tools."""
        if name is not None:
            if name in self.templates:
                return self.templates[name]
            raise RequestError(f"The model has no chat template named {name!r}.", param="chat_template")
        template = self.templates.get("tool_use") if with_tools else None
        template = template or self.templates.get("default")
        if template is not None:
            return template
        if self.templates:
            raise RequestError(
                "This model has several chat templates and none of them is the default. Name one in "
                f"`chat_template`: {', '.join(sorted(self.templates))}.",
                param="chat_template",
            )
        raise RequestError(
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template "
            "if the tokenizer does not define one.",
            param="chat_template",
        )

    def speed_up(self) -> None:
        """Gives each template a faster renderer where one is proved to write the same text (see fast_template)."""
        for name, template in self.templates.items():
            alone = self.with_template(template)
            alone.default_kwargs = {}
            speed_up(template, name, self.special_tokens, alone.variables)

    def variables(self, chat: ChatInput) -> dict[str, Any]:
        """What the template is rendered with; raises RequestError for what the format refuses."""
        return self.common(chat).variables(chat.messages)

    def format_of(self, template: ChatTemplate) -> ContentFormat:
        """The content format in force for a template: the one that was forced, else the template's own."""
        if self.content_format == "string" or self.content_format == "openai":
            return self.content_format  # type: ignore[return-value]
        return template.content_format

    def with_template(self, template: ChatTemplate) -> JinjaFormat:
        """The same format with one other template."""
        other = copy(self)
        other.templates = {"default": template}
        return other


class Common:
    """A template and its variables but the messages; it may render many conversations, all in one thread."""

    def __init__(
        self, template: ChatTemplate, around: dict[str, Any], content_format: ContentFormat, model: str
    ) -> None:
        self.template = template
        self._around = around
        self._content_format = content_format
        self._model = model
        self._fast: FastRenderer | None = None
        self._taken: dict[str, Any] | None = None  # by `_fast`

    def variables(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """All that the template is rendered with; RequestError for messages that the format refuses."""
        return {**self._around, "messages": self._conversation(messages)}

    def render(self, messages: list[dict[str, Any]], source: bytes) -> str:
        """The prompt text; RequestError. `source` is JSON that holds the client's part of the variables, or empty."""
        shown = self._conversation(messages)
        fast = self.template.fast
        if fast is None or not source:
            return self.template.render({**self._around, "messages": shown})
        if fast is not self._fast:
            self._fast, self._taken = fast, fast.take(self._around)
        if self._taken is not None:
            text = fast.render(self._taken, shown, source)
            if text is not None:
                return text
        return self.template.render_exactly({**self._around, "messages": shown})

    def _conversation(self, given: list[dict[str, Any]]) -> list[Message]:
        messages = conversation(given, self._content_format, self._model)
        check_some(messages)
        if not self.template.knows_developer:
            for message in messages:
                if message["role"] == "developer":
                    return developer_as_system(messages)
        return messages


def _list_of_objects(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RequestError(f"{name} must be a list of objects.", param=name, value=type(value).__name__)
    return value


def _render_open_ended(template: ChatTemplate, variables: dict[str, Any]) -> str:
    """The prompt up to the end of the last message's text, as transformers cuts it."""
    if "content" not in template.source:
        raise RequestError(
            "continue_final_message is set, but the chat template does not use `content`.",
            param="continue_final_message",
        )
    messages: list[Message] = variables["messages"]
    last = dict(messages[-1])
    content = last["content"]
    if isinstance(content, list):
        for i in range(len(content) - 1, -1, -1):
            if "text" in content[i]:
                final = content[i]["text"]
                marked = {**content[i], "text": final + _CUT}
                last["content"] = [*content[:i], marked, *content[i + 1 :]]
                break
        else:
            raise RequestError(
                "continue_final_message is set, but the final message has no text to continue.",
                param="continue_final_message",
            )
    else:
        final = content
        last["content"] = content + _CUT
    text = template.render({**variables, "messages": [*messages[:-1], last]})
    end = text.rfind(_CUT.strip())
    if end < 0 or final.strip() not in text:
        raise RequestError(
            "continue_final_message is set, but the final message does not appear in the prompt: the chat template "
            "changes or drops it.",
            param="continue_final_message",
        )
    kept = text[:end]
    # Where the space is gone the template trims the message, so its own trailing white space goes too.
    return kept if text.startswith(_CUT, end) else kept.rstrip()
