"""Mistral's chat formats, all versions of them, as mistral-common writes them: token ids; text is only text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastfront.errors import ConfigError, RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.formats.kwargs import check_ending, template_kwargs
from fastfront.prompt.messages import Message, conversation, tool_definitions
from fastfront.prompt.mistral import MistralTokenizer

ID_LENGTH = 9  # of tool calls; longer ids are cut at the left, as in vLLM


class MistralFormat:
    """Renders conversations to token ids."""

    makes_ids = True

    def __init__(
        self,
        tokenizer: MistralTokenizer,
        *,
        default_kwargs: Mapping[str, Any] | None = None,
        model: str = "the model",
    ) -> None:
        self._tokenizer = tokenizer.mistral
        inner = self._tokenizer.instruct_tokenizer.tokenizer
        self._has_effort = int("".join(filter(str.isdigit, inner.version.value.split("m")[0]))) >= 15
        self._defaults = dict(default_kwargs or {})
        self._model = model
        unknown = sorted(set(self._defaults) - {"reasoning_effort"})
        if unknown:
            raise ConfigError(f"--default-chat-template-kwargs: Mistral's format has no {', '.join(unknown)}")

    def render(self, chat: ChatInput) -> list[int]:
        """The prompt's ids; raises RequestError with the library's words where it refuses the conversation."""
        from mistral_common.protocol.instruct.request import ChatCompletionRequest

        check_ending(chat.messages, chat.add_generation_prompt, chat.continue_final_message)
        effort = self._effort(chat.chat_template_kwargs)
        conversation(chat.messages, "string", self._model)  # its errors name the field
        tools = tool_definitions(chat.tools)
        try:
            request = ChatCompletionRequest.from_openai(
                messages=[_message(message) for message in chat.messages],
                tools=tools and [_tool(tool) for tool in tools],
                continue_final_message=chat.continue_final_message,
                **({"reasoning_effort": effort} if self._has_effort else {}),
            )
            ids: list[int] = self._tokenizer.encode_chat_completion(request).tokens
        except Exception as error:  # the library refuses with errors of many kinds, assertions among them
            raise RequestError(str(error) or type(error).__name__, param="messages") from error
        return ids

    def _effort(self, asked: Mapping[str, Any]) -> str | None:
        from mistral_common.protocol.instruct.request import ReasoningEffort

        kwargs = template_kwargs(self._defaults, asked)
        # The API adds enable_thinking where a request says reasoning_effort.
        unknown = set(kwargs) - ({"reasoning_effort", "enable_thinking"} if "reasoning_effort" in kwargs else set())
        if unknown:
            raise RequestError(
                f"chat_template_kwargs is not supported for Mistral tokenizers: {', '.join(sorted(unknown))}.",
                param="chat_template_kwargs",
            )
        effort: str | None = kwargs.get("reasoning_effort")
        known = [item.value for item in ReasoningEffort]
        if effort is not None and effort not in known:
            raise RequestError(
                f"reasoning_effort={effort} is not supported by Mistral models. Supported values are: {known}.",
                param="reasoning_effort",
            )
        return effort


def _message(message: Message) -> Message:
    calls = message.get("tool_calls")
    if message.get("role") == "assistant":
        return {**message, "tool_calls": [{**call, "id": _short(call.get("id"))} for call in calls or []]}
    if "tool_call_id" in message:
        return {**message, "tool_call_id": _short(message["tool_call_id"])}
    return message


def _tool(tool: Message) -> Message:
    """Without what is null: the library wants it left out."""
    function = {key: value for key, value in tool["function"].items() if value is not None}
    return {**tool, "function": {"parameters": {}, **function}}


def _short(call_id: Any) -> Any:
    return call_id[-ID_LENGTH:] if isinstance(call_id, str) else call_id
