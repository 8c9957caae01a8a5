"""What of a request decides its sampling parameters, and all that these decide: made once for requests alike.

Clients send the same few settings again and again. Only settings that are plain values count as alike; those with lists
or objects (stop lists, logit bias, constraints ...) are worked out each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import itemgetter

import msgspec
from msgspec.structs import astuple

from fastfront.api.openai.fields import GenerationFields
from fastfront.api.openai.sampling import check_logprobs, sampling_params, stop_strings
from fastfront.api.state import RenderState
from fastfront.flow import SamplingParams, TextOptions

#: Fields that no part of a recipe depends on; any other is taken to decide. `bad_words` are looked at apart.
_ELSEWHERE = frozenset(
    (
        "model", "messages", "prompt", "suffix", "prompt_embeds", "documents", "user", "request_id", "session_id",
        "priority", "cache_salt", "max_tokens", "max_completion_tokens", "seed", "bad_words", "stream_options", "tools",
        "tool_choice", "parallel_tool_calls", "reasoning_effort", "include_reasoning", "add_generation_prompt",
        "continue_final_message", "add_special_tokens", "chat_template", "chat_template_kwargs", "safe_user_text",
        "media_io_kwargs", "mm_processor_kwargs", "mm_payload", "truncate_prompt_tokens", "truncation_side",
        "return_prompt_text", "return_tokens_as_token_ids", "return_token_offsets", "return_mm_kwargs",
    )
)  # fmt: skip
#: Recipes that are kept, and how long a stop string of theirs may be.
_KEPT, _KEPT_CHARS = 256, 256


@cache
def _deciding(kind: type[GenerationFields]) -> Callable[[tuple[object, ...]], tuple[object, ...]]:
    names = kind.__struct_fields__
    return itemgetter(*(place for place, name in enumerate(names) if name not in _ELSEWHERE))


class Recipe(msgspec.Struct):
    """Shared by requests: nothing of it may be changed."""

    sampling: SamplingParams
    text: TextOptions
    #: In tokens, as the request and the server want it.
    stream_interval: int
    #: The parameters as the render routes write them, around seed and max_tokens; empty until one has.
    rendered: tuple[bytes, ...] = ()


def recipe(state: RenderState, fields: GenerationFields, n: int) -> Recipe:
    """The recipe of a request for `n` choices of each prompt; RequestError for parameters out of their range."""
    large = isinstance(fields.stop, str) and len(fields.stop) > _KEPT_CHARS
    if large or fields.bad_words or fields.thinking_token_budget is not None:
        return _make(state, fields, n)
    kind = type(fields)
    key = (kind, _deciding(kind)(astuple(fields)))
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
    text = TextOptions(
        skip_special_tokens=fields.skip_special_tokens,
        stop=stop_strings(fields.stop),
        include_stop_str_in_output=fields.include_stop_str_in_output,
        ignore_eos=fields.ignore_eos,
        return_token_ids=bool(fields.return_token_ids),
    )
    pipeline = state.pipeline
    sampling = sampling_params(fields, n, pipeline.info, pipeline.prompter.tokenizer, state.limits)
    check_logprobs(sampling, state.settings.max_logprobs, pipeline.info.vocab_size)
    interval = max(state.settings.stream_interval, sampling.stream_interval or 1) if fields.stream else 1
    return Recipe(sampling, text, interval)
