"""What follows from a request but its messages or its prompt, and serves all requests alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Generic, TypeVar

from fastfront.api.openai.beams import beam_options
from fastfront.api.openai.events import Wishes
from fastfront.api.openai.fields import GenerationFields
from fastfront.api.openai.generation import GenerationPlan, check_spaces, plan_generation, stream_wishes
from fastfront.api.openai.recipe import Recipe, recipe
from fastfront.api.state import RenderState
from fastfront.beams import BeamOptions

Body = TypeVar("Body", bound=GenerationFields)


class RequestPlan(ABC, Generic[Body]):
    """Only to be read, like all that it holds. Parts are made when they are first wanted; RequestError if they cannot.

    `n` choices are asked for, of `wanted` tokens each, None if that is left open. `body` lacks its messages or prompt.
    """

    def __init__(self, state: RenderState, body: Body, n: int, wanted: int | None) -> None:
        self.body = body
        self.wanted = wanted
        self._state = state
        self._n = n

    def check(self) -> None:
        """Tells what is wrong beside the prompt, before that is looked at."""
        _ = self.constrained_by, self.beams

    @property
    @abstractmethod
    def constrained_by(self) -> str:
        """The field that the answer's constraint comes from."""

    @cached_property
    def beams(self) -> BeamOptions | None:
        """How to search, if that is what is wanted."""
        return beam_options(self._state, self.body, self._n, self.constrained_by)

    @cached_property
    def recipe(self) -> Recipe:
        """The sampling parameters."""
        return recipe(self._state, self.body, self._sampled)

    @cached_property
    def generation(self) -> GenerationPlan:
        """What the engine is asked for."""
        check_spaces(self._state, self.body)
        return plan_generation(self._state, self.body, self._sampled, self.recipe, self.wanted, self.constrained_by)

    @cached_property
    def wishes(self) -> Wishes:
        """What a stream carries."""
        return stream_wishes(self.body, self._state.settings)

    @property
    def _sampled(self) -> int:
        """How many choices the engine makes of each prompt: a search makes its own."""
        return 1 if self.beams is not None else self._n
