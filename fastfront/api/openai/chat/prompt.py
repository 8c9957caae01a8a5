"""From a chat completion request to its prompt."""

from __future__ import annotations

from typing import Any

import msgspec

from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.chat.validate import wanted_tokens
from fastfront.api.openai.tools import plain_tools
from fastfront.api.state import Chats, Prompter, RenderState
from fastfront.errors import RequestError
from fastfront.flow import ChatInput, Prompt

_REUSED = "kv_transfer_params.prompt_token_ids"


class PromptPlan(msgspec.Struct):
    """Prompts to be made of conversations, or of ids that are there already."""

    prompter: Prompter
    limits: Any
    chats: Chats
    ids: list[int] | None = None

    def now(self, messages: list[dict[str, Any]], source: bytes) -> Prompt | None:
        """The prompt, or None where making it would hold the event loop; RequestError. `source` is the body's JSON."""
        return self.chats.now(messages, source) if self.ids is None else self._of_ids(self.ids)

    async def made(self, messages: list[dict[str, Any]], source: bytes) -> Prompt:
        """The prompt; RequestError."""
        return await self.chats.made(messages, source) if self.ids is None else self._of_ids(self.ids)

    def _of_ids(self, ids: list[int]) -> Prompt:
        try:
            return self.prompter.ids(ids, self.limits)
        except RequestError as error:
            error.param = _REUSED
            raise


def plan_prompt(state: RenderState, body: ChatRequest) -> PromptPlan:
    """What prompts will be made of; RequestError for limits that no prompt can meet."""
    prompter = state.pipeline.prompter
    wanted, name = wanted_tokens(body)
    limits = prompter.limits(
        max_tokens=wanted,
        max_tokens_param=name,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
    )
    hidden = state.settings.exclude_tools_when_tool_choice_none and body.tool_choice == "none"
    chat = ChatInput(
        [],
        None if hidden else plain_tools(body.tools),
        body.documents,
        body.chat_template,
        template_kwargs(body),
        body.add_generation_prompt,
        body.continue_final_message,
        body.add_special_tokens,
        body.safe_user_text,
    )
    return PromptPlan(prompter, limits, prompter.chats(chat, limits), _reused_ids(body))


def template_kwargs(body: ChatRequest) -> dict[str, Any]:
    """The client's template variables, and those that reasoning_effort stands for."""
    own = body.chat_template_kwargs or {}
    if body.reasoning_effort is None:
        return own
    kwargs = {**own, "reasoning_effort": body.reasoning_effort}
    kwargs.setdefault("enable_thinking", body.reasoning_effort != "none")
    return kwargs


def _reused_ids(body: ChatRequest) -> list[int] | None:
    """The prompt's ids where a prefill server hands them on; they are taken out of what the engine gets."""
    params = body.kv_transfer_params
    if params is None or (ids := params.pop("prompt_token_ids", None)) is None or body.echo:
        return None
    if not isinstance(ids, list) or not ids or any(type(item) is not int or item < 0 for item in ids):
        raise RequestError(
            "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.",
            param=_REUSED,
        )
    return ids
