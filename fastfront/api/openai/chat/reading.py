"""Which parser reads a chat's answers, and what it is told of the request."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec.structs import replace

from fastfront.api.openai.chat.parsed import CallRules
from fastfront.api.openai.chat.prepare import named_function, parser_kwargs, wanted_calls
from fastfront.api.openai.chat.prompt import template_kwargs
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.tools import plain_tools
from fastfront.api.state import Format, RenderState
from fastfront.flow import Generation, MakeParser, Prompt

#: Where in a prompt the marks of its last turn are looked for (characters, tokens).
_TAIL_CHARS, _TAIL_TOKENS = 4096, 64


def call_rules(body: ChatRequest) -> CallRules:
    """How the request wants its answers' parts."""
    named = isinstance(body.tool_choice, dict)
    return CallRules(body.include_reasoning, body.parallel_tool_calls is not False, "stop" if named else "tool_calls")


def read_by_parser(state: RenderState, body: ChatRequest, prompt: Prompt, generation: Generation) -> Generation:
    """The generation with the parser that its answers need, and with what the engine's own parser must know."""
    format = state.format
    if format is None:
        return generation
    tail = _tail(state, prompt)
    in_reasoning = format.reasoning_state(tail, _thinking(state, body))
    parser = _parser(state, format, body, in_reasoning)
    if state.preparation is None or state.settings.reasoning_parser is None:
        return replace(generation, parser=parser)
    if state.counting is not None:
        generation = replace(generation, counter=state.counting.counter(in_reasoning))
    kwargs, thinking = parser_kwargs(state, body)
    ended = not body.include_reasoning or state.preparation.reasoning_ended(prompt.token_ids, thinking)
    variables = msgspec.json.decode(kwargs)
    return replace(generation, parser=parser, reasoning_ended=ended, reasoning_parser_kwargs=variables)


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
    return state.pipeline.prompter.tokenizer.decode(prompt.token_ids[-_TAIL_TOKENS:], skip_special_tokens=False)


def _thinking(state: RenderState, body: ChatRequest) -> bool | None:
    """Whether the request or the server switches thinking on or off."""
    kwargs = {**state.template_kwargs, **template_kwargs(body)}
    switch = kwargs.get("enable_thinking", kwargs.get("thinking"))
    return switch if isinstance(switch, bool) else None
