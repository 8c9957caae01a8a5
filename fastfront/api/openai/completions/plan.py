"""What a completion request says beside its prompt, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from fastfront.api.alike import Alike
from fastfront.api.body import BodyReader
from fastfront.api.openai.beams import beam_options
from fastfront.api.openai.completions.prompt import prompt_limits
from fastfront.api.openai.completions.request import CompletionRequest
from fastfront.api.openai.completions.validate import check_completion
from fastfront.api.openai.constraint import constrained_by
from fastfront.api.openai.events import Wishes
from fastfront.api.openai.generation import GenerationPlan, plan_generation, stream_wishes
from fastfront.api.openai.recipe import Recipe, recipe
from fastfront.api.state import RenderState
from fastfront.beams import BeamOptions


class CompletionPlan:
    """Shared by requests alike, and only to be read. Each part is made when it is first wanted; RequestError if it
    cannot be. The body lacks its prompt.
    """

    def __init__(self, state: RenderState, body: CompletionRequest) -> None:
        check_completion(body, state.settings, state.limits)
        self.body = body
        #: How many tokens are asked for; with an echo alone the engine still has to run, for one that nobody sees.
        self.wanted = 16 if body.max_tokens is None else max(body.max_tokens, 1)
        self.constrained_by = constrained_by(body.response_format)
        self._state = state

    @cached_property
    def beams(self) -> BeamOptions | None:
        """How to search, if that is what is wanted."""
        return beam_options(self._state, self.body, self.body.n, self.constrained_by)

    @cached_property
    def limits(self) -> Any:
        """The limits of prompts."""
        return prompt_limits(self._state, self.body)

    @cached_property
    def recipe(self) -> Recipe:
        """The sampling parameters."""
        return recipe(self._state, self.body, 1 if self.beams is not None else self.body.n)

    @cached_property
    def generation(self) -> GenerationPlan:
        """What the engine is asked for."""
        n = 1 if self.beams is not None else self.body.n
        return plan_generation(self._state, self.body, n, self.recipe, self.wanted, self.constrained_by)

    @cached_property
    def wishes(self) -> Wishes:
        """What a stream carries."""
        return stream_wishes(self.body, self._state.settings)


def completion_plans(
    state: RenderState, plan: Callable[[CompletionRequest], CompletionPlan]
) -> Alike[CompletionRequest, CompletionPlan]:
    """The plans of an endpoint."""
    reader = BodyReader(CompletionRequest, state.settings.strict_request_fields)
    return Alike(reader, "prompt", plan, lambda prompt: None)
