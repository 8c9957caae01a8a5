"""What a chat request says beside its messages, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from fastfront.api.alike import Alike
from fastfront.api.body import BodyReader
from fastfront.api.openai.chat.prepare import prepare
from fastfront.api.openai.chat.prompt import PromptPlan, plan_prompt, take_reused_ids
from fastfront.api.openai.chat.reading import Reading, call_rules
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.chat.response import Turn
from fastfront.api.openai.chat.validate import check_chat, check_messages, wanted_tokens
from fastfront.api.openai.names import unknown_in_messages
from fastfront.api.openai.plan import RequestPlan
from fastfront.api.state import RenderState
from fastfront.api.unknown import tell


class ChatPlan(RequestPlan[ChatRequest]):
    """The plan of chats. RequestError or BodyError for a body, with its messages, that is wrong in itself."""

    def __init__(self, state: RenderState, body: ChatRequest) -> None:
        check_chat(body, state.settings, state.limits)
        wanted, _ = wanted_tokens(body)
        super().__init__(state, body, 1 if body.n is None else body.n, wanted)
        self._reused_ids = take_reused_ids(body)

    @cached_property
    def constrained_by(self) -> str:
        """The field that the answer's constraint comes from; from then on the body is as the parsers want it."""
        return prepare(self._state, self.body)

    @cached_property
    def prompt(self) -> PromptPlan:
        """What prompts are made of."""
        return plan_prompt(self._state, self.body, self._reused_ids)

    @cached_property
    def reading(self) -> Reading:
        """How answers are read."""
        return Reading(self._state, self.body, counts=not self.body.stream or self.wishes.usage)

    @cached_property
    def _usual_turn(self) -> Turn:
        return Turn(self._state.settings.response_role, "", bool(self.body.return_prompt_text), call_rules(self.body))

    def turn(self, messages: list[dict[str, Any]]) -> Turn:
        """Who speaks: with no generation prompt the last message's role goes on."""
        usual, body = self._usual_turn, self.body
        if body.add_generation_prompt and not body.echo:
            return usual
        last = messages[-1]
        role = usual.role if body.add_generation_prompt else str(last.get("role"))
        echo = _plain_text(last.get("content")) if body.echo and last.get("role") == role else ""
        return usual._replace(role=role, echo=echo)


def chat_plans(state: RenderState, plan: Callable[[ChatRequest], ChatPlan]) -> Alike[ChatRequest, ChatPlan]:
    """The plans of an endpoint."""
    strict = state.settings.strict_request_fields

    def check(messages: list[dict[str, Any]]) -> None:
        check_messages(messages)
        tell(unknown_in_messages(messages), strict)

    return Alike(BodyReader(ChatRequest, strict), "messages", plan, check)


def _plain_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else str(part.get("text", "")) for part in content)
    return content or ""
