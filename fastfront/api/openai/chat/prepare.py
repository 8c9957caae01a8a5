"""What parsers change about a chat request before the engine gets it."""

from __future__ import annotations

import msgspec

from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.constraint import check, constrained_by, constraint, too_deep
from fastfront.api.openai.events import encode
from fastfront.api.openai.fields import StructuredOutputs
from fastfront.api.openai.tools import plain_tools
from fastfront.api.state import Preparation, RenderState

#: vLLM's servers add it to every template's variables.
_SERVER_KWARGS = {"cohere_format": "cmd4"}


def prepare(state: RenderState, body: ChatRequest) -> str:
    """Changes the request as the parsers want it; RequestError for a constraint that is wrong or cannot be held.

    The field that the answer's constraint, if there is one, comes from.
    """
    preparation = state.preparation
    field = constrained_by(body.response_format)
    if preparation is None:
        return field
    choice = wanted_calls(body)
    if preparation.keeps_special_tokens(choice is not None):
        body.skip_special_tokens = False
    if choice is not None or body.structured_outputs is not None or body.response_format is not None:
        return _hold(preparation, body, choice, field)
    return field


def wanted_calls(body: ChatRequest) -> str | None:
    """Which calls are wanted: auto, required or forced; None for none."""
    choice = body.tool_choice
    if not body.tools or choice is None or choice == "none":
        return None
    if choice is msgspec.UNSET:
        return "auto"
    return choice if isinstance(choice, str) else "forced"


def named_function(body: ChatRequest) -> str:
    """The name in tool_choice, "" where there is none."""
    return str(body.tool_choice["function"]["name"]) if isinstance(body.tool_choice, dict) else ""


def _hold(preparation: Preparation, body: ChatRequest, choice: str | None, field: str) -> str:
    """Puts the constraint on calls, or that on the answer as the format needs it, in the place of the request's."""
    answer = constraint(body.structured_outputs, body.response_format)
    held = preparation.held_answer(answer) if answer is not None else None
    if choice is not None:
        name = named_function(body)
        tools = [tool for tool in body.tools or () if not name or tool.function.name == name]
        single = body.parallel_tool_calls is False
        try:
            calls = preparation.held_calls(plain_tools(tools) or [], choice, single, held or answer)
        except RecursionError:
            raise too_deep("tools", "structural_tag") from None
        if calls is not None:
            held, field = calls, "tools"
    if held is not None:
        check(held, field)
        body.structured_outputs = StructuredOutputs(**held)
        body.response_format = None
    return field


def parser_kwargs(state: RenderState, body: ChatRequest) -> tuple[bytes, bool]:
    """The template's variables as JSON, for the parser beside the engine, and whether the model reasons at all."""
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
    made = (encode({"chat_template_kwargs": kwargs}), bool(kwargs.get("enable_thinking", True)))
    if plain:
        state.parser_kwargs[key] = made
    return made
