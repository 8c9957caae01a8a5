"""What of a request decides its sampling parameters, and those that it decides: made once for requests alike.

Clients send the same few settings again and again. Only settings that are plain values count as alike; those with lists
or objects (stop lists, logit bias, constraints ...) are worked out each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter

import msgspec

from fastfront.api.openai.fields import GenerationFields
from fastfront.api.openai.sampling import check_logprobs, sampling_params, stop_strings
from fastfront.api.state import RenderState
from fastfront.flow import SamplingParams

#: Fields that no parameter depends on; any other is taken to decide. `bad_words` are looked at apart.
_ELSEWHERE = frozenset(
    (
        "model", "messages", "prompt", "suffix", "prompt_embeds", "documents", "user", "request_id", "session_id",
        "priority", "cache_salt", "max_tokens", "max_completion_tokens", "bad_words", "stream_options", "tools",
        "tool_choice", "parallel_tool_calls", "reasoning_effort", "include_reasoning", "add_generation_prompt",
        "continue_final_message", "add_special_tokens", "chat_template", "chat_template_kwargs", "safe_user_text",
        "media_io_kwargs", "mm_processor_kwargs", "mm_payload", "truncate_prompt_tokens", "truncation_side",
        "return_prompt_text", "return_token_ids", "return_tokens_as_token_ids", "return_token_offsets",
        "return_mm_kwargs",
    )
)  # fmt: skip
_KEPT = 256


@cache
def _deciding(kind: type[GenerationFields]) -> Callable[[GenerationFields], tuple[object, ...]]:
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in _ELSEWHERE))


class Recipe(msgspec.Struct):
    """Shared by requests: nothing of it may be changed. `sampling` has no max_tokens yet."""

    sampling: SamplingParams
    stop: tuple[str, ...]
    #: The parameters as the render routes write them, around max_tokens; empty until one has.
    rendered: tuple[bytes, bytes] = (b"", b"")


def recipe(state: RenderState, fields: GenerationFields, n: int) -> Recipe:
    """The recipe of a request for `n` choices of each prompt; RequestError for parameters out of their range."""
    if fields.bad_words or fields.thinking_token_budget is not None:
        return _make(state, fields, n)
    kind = type(fields)
    key = (kind, _deciding(kind)(fields))
    try:
        known: Recipe | None = state.recipes.get(key)
    except TypeError:  # a list or an object is among them
        return _make(state, fields, n)
    if known is None:
        if len(state.recipes) >= _KEPT:
            state.recipes.clear()
        known = state.recipes[key] = _make(state, fields, n)
    return known


def _make(state: RenderState, fields: GenerationFields, n: int) -> Recipe:
    stop = stop_strings(fields.stop)
    pipeline = state.pipeline
    sampling = sampling_params(fields, n, None, pipeline.info, pipeline.prompter.tokenizer, state.limits)
    check_logprobs(sampling, state.settings.max_logprobs, pipeline.info.vocab_size)
    return Recipe(sampling, stop)
