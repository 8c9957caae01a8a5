"""What of a request decides its sampling parameters, and those that it decides: made once for requests alike.

Clients send the same few settings again and again. Only settings that are plain values count as alike; those with lists
or objects (stop lists, logit bias, constraints ...) are worked out each time.
"""

from __future__ import annotations

from operator import attrgetter

import msgspec

from fastfront.api.openai.fields import GenerationFields
from fastfront.api.openai.sampling import sampling_params, stop_strings
from fastfront.api.state import RenderState
from fastfront.flow import SamplingParams

_DECIDING = attrgetter(
    "n", "stream", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
    "repetition_penalty", "logit_bias", "seed", "watermarking", "stop", "stop_token_ids", "include_stop_str_in_output",
    "ignore_eos", "min_tokens", "allowed_token_ids", "repetition_detection", "thinking_token_budget",
    "structured_outputs", "response_format", "skip_special_tokens", "spaces_between_special_tokens", "logprobs",
    "prompt_logprobs", "logprob_token_ids", "routed_experts_prompt_start", "kv_transfer_params", "ec_transfer_params",
    "vllm_xargs", "stream_interval",
)  # fmt: skip
_KEPT = 256


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
    key = _DECIDING(fields)
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
    return Recipe(sampling_params(fields, n, None, pipeline.info, pipeline.prompter.tokenizer, state.limits), stop)
