"""From a chat completion request to its prompt."""

from __future__ import annotations

from typing import Any

import msgspec

from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.chat.validate import wanted_tokens
from fastfront.api.openai.tools import plain_tools
from fastfront.api.state import Chats, RenderState
from fastfront.errors import RequestError
from fastfront.flow import ChatInput, Prompt

_REUSED = "kv_transfer_params.prompt_token_ids"


class PromptPlan(msgspec.Struct):
    """Prompts to be made of conversations, or of ids that are there already."""

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
            return self.chats.ids(ids)
        except RequestError as error:
            error.param = _REUSED
            raise


def plan_prompt(state: RenderState, body: ChatRequest, reused_ids: Any) -> PromptPlan:
    """What prompts will be made of; RequestError for limits that no prompt can meet, and for ids that are none."""
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
    return PromptPlan(prompter.chats(chat, limits), _checked_ids(reused_ids))


def template_kwargs(body: ChatRequest) -> dict[str, Any]:
    """The client's template variables, and those that reasoning_effort stands for."""
    own = body.chat_template_kwargs or {}
    if body.reasoning_effort is None:
        return own
    kwargs = {**own, "reasoning_effort": body.reasoning_effort}
    kwargs.setdefault("enable_thinking", body.reasoning_effort != "none")
    return kwargs


def take_reused_ids(body: ChatRequest) -> Any:
    """What a prefill server hands on as the prompt's ids, None where nothing is; the engine does not get it."""
    params = body.kv_transfer_params
    if params is None or "prompt_token_ids" not in params:
        return None
    body.kv_transfer_params = {name: value for name, value in params.items() if name != "prompt_token_ids"}
    return None if body.echo else params["prompt_token_ids"]


def _checked_ids(ids: Any) -> list[int] | None:
    if ids is None:
        return None
    if not isinstance(ids, list) or not ids or any(type(item) is not int or item < 0 for item in ids):
        raise RequestError(
            "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.",
            param=_REUSED,
        )
    return ids
