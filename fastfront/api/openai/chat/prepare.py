"""What parsers change about a chat request before the engine gets it."""

from __future__ import annotations

import msgspec

from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.events import encode
from fastfront.api.openai.fields import StructuredOutputs
from fastfront.api.openai.rules import unsupported
from fastfront.api.openai.tools import plain_tools
from fastfront.api.state import Preparation, RenderState

#: vLLM's servers add it to every template's variables.
_SERVER_KWARGS = {"cohere_format": "cmd4"}


def prepare(state: RenderState, body: ChatRequest) -> None:
    """Changes the request as the parsers want it; UnsupportedError for a constraint on calls that is not served."""
    preparation = state.preparation
    if preparation is None:
        return
    choice = wanted_calls(body)
    if preparation.keeps_special_tokens(choice is not None):
        body.skip_special_tokens = False
    if choice is not None:
        _hold_calls(preparation, body, choice)


def wanted_calls(body: ChatRequest) -> str | None:
    """Which calls are wanted: auto, required or forced; None for none."""
    choice = body.tool_choice
    if not body.tools or choice is None or choice == "none":
        return None
    if choice is msgspec.UNSET:
        return "auto"
    return choice if isinstance(choice, str) else "forced"


def _hold_calls(preparation: Preparation, body: ChatRequest, choice: str) -> None:
    tools = body.tools or []
    free = choice == "auto" and not any(tool.function.strict for tool in tools)
    constrained = body.structured_outputs is not None or (body.response_format or {}).get("type", "text") != "text"
    single = body.parallel_tool_calls is False and not (choice == "auto" and constrained)
    if free and not single:
        return
    if choice == "auto" and constrained:
        raise unsupported("strict tools together with response_format or structured_outputs")
    if isinstance(body.tool_choice, dict):
        named = body.tool_choice["function"]["name"]
        tools = [tool for tool in tools if tool.function.name == named]
    grammar = preparation.call_grammar(plain_tools(tools) or [], choice, single)
    if grammar is not None:
        body.structured_outputs = StructuredOutputs(structural_tag=grammar)
        body.response_format = None


def parser_kwargs(state: RenderState, body: ChatRequest) -> tuple[msgspec.Raw, bool]:
    """The template's variables, for the reasoning parser beside the engine, and whether the model reasons at all."""
    plain = not body.chat_template_kwargs and body.documents is None and body.reasoning_effort is None
    key = (body.add_generation_prompt, body.continue_final_message)
    known = state.parser_kwargs.get(key) if plain else None
    if known is not None:
        return known
    given = {
        **(body.chat_template_kwargs or {}),
        "add_generation_prompt": body.add_generation_prompt,
        "continue_final_message": body.continue_final_message,
        "documents": body.documents,
        "reasoning_effort": body.reasoning_effort,
    }
    if body.reasoning_effort is not None:
        given.setdefault("enable_thinking", body.reasoning_effort != "none")
    kwargs = {**_SERVER_KWARGS, **state.template_kwargs}
    kwargs.update((name, value) for name, value in given.items() if value is not None and value != "auto")
    made = (msgspec.Raw(encode({"chat_template_kwargs": kwargs})), bool(kwargs.get("enable_thinking", True)))
    if plain:
        state.parser_kwargs[key] = made
    return made
