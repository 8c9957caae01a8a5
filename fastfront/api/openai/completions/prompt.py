"""From a completion request to its prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastfront.api.openai.completions.request import CompletionRequest
from fastfront.api.state import RenderState
from fastfront.flow import Prompt

Split = list[str] | list[list[int]]

#: So many short prompts are tokenized in one go before others have their turn.
PROMPTS_A_TURN = 16


def prompt_limits(state: RenderState, body: CompletionRequest) -> Any:
    """The limits of the request's prompts; RequestError for some that no prompt can meet."""
    return state.pipeline.prompter.limits(
        max_tokens=body.max_tokens,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
    )


def prompts_now(state: RenderState, body: CompletionRequest, split: Split, limits: Any) -> list[Prompt] | None:
    """The prompts, or None where making them would hold the event loop; RequestError."""
    prompter = state.pipeline.prompter
    if len(split) > PROMPTS_A_TURN:
        return None
    prompts: list[Prompt] = []
    for prompt in split:
        made = (
            prompter.text_now(prompt, body.add_special_tokens, limits)
            if isinstance(prompt, str)
            else prompter.ids(prompt, limits)
        )
        if made is None:
            return None
        prompts.append(made)
    return prompts


async def make_prompts(
    state: RenderState, body: CompletionRequest, split: Sequence[str | list[int]], limits: Any
) -> list[Prompt]:
    """The prompts; RequestError."""
    prompter = state.pipeline.prompter
    prompts: list[Prompt] = []
    for at, prompt in enumerate(split):
        if isinstance(prompt, str):
            prompts.append(await prompter.text(prompt, body.add_special_tokens, limits))
        else:
            prompts.append(prompter.ids(prompt, limits))
        if at % PROMPTS_A_TURN == PROMPTS_A_TURN - 1:
            await asyncio.sleep(0)
    return prompts
