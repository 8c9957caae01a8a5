"""What a completion request says beside its prompt, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from fastfront.api.alike import Alike
from fastfront.api.body import BodyReader
from fastfront.api.openai.completions.prompt import prompt_limits
from fastfront.api.openai.completions.request import CompletionRequest
from fastfront.api.openai.completions.validate import check_completion
from fastfront.api.openai.constraint import constrained_by
from fastfront.api.openai.plan import RequestPlan
from fastfront.api.state import RenderState


class CompletionPlan(RequestPlan[CompletionRequest]):
    """The plan of completions. RequestError or BodyError for a body that is wrong in itself."""

    def __init__(self, state: RenderState, body: CompletionRequest) -> None:
        check_completion(body, state.settings, state.limits)
        # with an echo alone the engine still has to run, for one token that nobody sees
        wanted = 16 if body.max_tokens is None else max(body.max_tokens, 1)
        super().__init__(state, body, body.n, wanted)

    @cached_property
    def constrained_by(self) -> str:
        """The field that the answer's constraint comes from."""
        return constrained_by(self.body.response_format)

    @cached_property
    def limits(self) -> Any:
        """The limits of prompts."""
        return prompt_limits(self._state, self.body)


def completion_plans(
    state: RenderState, plan: Callable[[CompletionRequest], CompletionPlan]
) -> Alike[CompletionRequest, CompletionPlan]:
    """The plans of an endpoint."""
    reader = BodyReader(CompletionRequest, state.settings.strict_request_fields)
    return Alike(reader, "prompt", plan, lambda prompt: None)
