"""Which parser reads a chat's answers, and what it is told of the request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastfront.api.openai.chat.parsed import CallRules
from fastfront.api.openai.chat.prepare import named_function, parser_kwargs, wanted_calls
from fastfront.api.openai.chat.prompt import template_kwargs
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.generation import PLAIN, ReadBy
from fastfront.api.openai.tools import plain_tools
from fastfront.api.state import Format, RenderState
from fastfront.flow import MakeCounter, MakeParser, Prompt

#: Where in a prompt the marks of its last turn are looked for (characters, tokens).
_TAIL_CHARS, _TAIL_TOKENS = 4096, 64


def call_rules(body: ChatRequest) -> CallRules:
    """How the request wants its answers' parts."""
    named = isinstance(body.tool_choice, dict)
    return CallRules(body.include_reasoning, body.parallel_tool_calls is not False, "stop" if named else "tool_calls")


class Reading:
    """How the answers to requests alike are read; `counts`: whether they tell how much of them is reasoning."""

    def __init__(self, state: RenderState, body: ChatRequest, counts: bool) -> None:
        self._state = state
        self._counts = counts
        self._body = body
        self._shows_reasoning = body.include_reasoning
        self._thinking = _thinking(state, body)
        self._engine_parses = state.preparation is not None and state.settings.reasoning_parser is not None
        self._kwargs: bytes | None = None
        self._may_reason = True
        if self._engine_parses:
            self._kwargs, self._may_reason = parser_kwargs(state, body)
        self._made: dict[bool | None, tuple[MakeParser | None, MakeCounter | None]] = {}

    def of(self, prompt: Prompt) -> ReadBy:
        """The parser that the answers to a prompt need, and what the engine's own parser must know."""
        format = self._state.format
        if format is None:
            return PLAIN
        in_reasoning = format.reasoning_state(_tail(self._state, prompt), self._thinking)
        made = self._made.get(in_reasoning)
        if made is None:
            counting = self._state.counting if self._engine_parses and self._counts else None
            counter = counting.counter(in_reasoning) if counting is not None else None
            made = self._made[in_reasoning] = (_parser(self._state, format, self._body, in_reasoning), counter)
        return ReadBy(*made, *self.for_engine(prompt.token_ids))

    def for_engine(self, prompt: Sequence[int]) -> tuple[bool | None, bytes | None]:
        """For the reasoning parser beside the engine: whether no reasoning is open, and the variables as JSON."""
        if self._kwargs is None or self._state.preparation is None:
            return None, None
        ended = not self._shows_reasoning or self._state.preparation.reasoning_ended(prompt, self._may_reason)
        return ended, self._kwargs


def parser_after(state: RenderState, body: ChatRequest, tail: str) -> MakeParser | None:
    """What makes the parser of one choice whose prompt ends with `tail`; None where its text is content as it is."""
    format = state.format
    if format is None:
        return None
    return _parser(state, format, body, format.reasoning_state(tail, _thinking(state, body)))


def _parser(state: RenderState, format: Format, body: ChatRequest, in_reasoning: bool | None) -> MakeParser | None:
    choice = wanted_calls(body) if format.tool is not None else None
    if format.reasoning is None and choice is None:
        return None
    plain = None
    if choice is not None and state.preparation is not None:
        plain = state.preparation.plain_calls(choice, named_function(body))
    return partial(format.parser, plain_tools(body.tools) or (), in_reasoning, choice is not None, plain)


def _tail(state: RenderState, prompt: Prompt) -> str:
    if prompt.text is not None:
        return prompt.text[-_TAIL_CHARS:]
    return state.pipeline.prompter.tokenizer.decode(list(prompt.token_ids[-_TAIL_TOKENS:]), skip_special_tokens=False)


def _thinking(state: RenderState, body: ChatRequest) -> bool | None:
    """Whether the request or the server switches thinking on or off."""
    kwargs = {**state.template_kwargs, **template_kwargs(body)}
    switch = kwargs.get("enable_thinking", kwargs.get("thinking"))
    return switch if isinstance(switch, bool) else None
