"""Sampling parameters as vLLM's own GenerateRequest spells them in JSON.

They are those of the wire (flow.SamplingParams), but before an engine has seen them: its end tokens are not among the
stop ids yet, bad words are words, and stop strings are still there.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fastfront.api.openai.fields import GenerationFields
from fastfront.api.openai.recipe import Recipe
from fastfront.api.state import RenderState

GREEDY_BELOW = 1e-5
DELTA, FINAL_ONLY = 1, 2
DEFAULT_MAX_TOKENS = 16  # vLLM leaves it out
#: Every key of a constraint, in vLLM's order.
_CONSTRAINT = {
    "json": None,
    "regex": None,
    "choice": None,
    "grammar": None,
    "json_object": None,
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
    "whitespace_pattern": None,
    "structural_tag": None,
    "_backend": None,
    "_backend_was_auto": False,
}


class RenderedParams(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What has a default here is left out when it has that value, as vLLM does; the rest is always there."""

    n: int = 1
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    temperature: float
    watermarking: bool | None = None
    top_p: float | UnsetType = UNSET
    top_k: int = 0
    min_p: float | UnsetType = UNSET
    seed: int | None = None
    stop: list[str]
    stop_token_ids: list[int]
    ignore_eos: bool = False
    max_tokens: int = DEFAULT_MAX_TOKENS
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: int
    stream_interval: int | None = None
    skip_clone: bool
    output_text_buffer_length: int = 0
    structured_outputs: dict[str, Any] | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    bad_words: list[str]
    skip_reading_prefix_cache: bool
    thinking_token_budget: int | None = None
    repetition_detection: dict[str, Any] | None = None
    routed_experts_prompt_start: int = 0


def rendered_params(
    state: RenderState, fields: GenerationFields, made: Recipe, max_tokens: int, seed: int | None
) -> msgspec.Raw:
    """The parameters as JSON."""
    if not made.rendered:
        made.rendered = _around_seed_and_max_tokens(_params(state, fields, made))
    before, between, after = made.rendered
    chance = b"" if seed is None else b'"seed":%d,' % seed
    count = b"" if max_tokens == DEFAULT_MAX_TOKENS else b'"max_tokens":%d,' % max_tokens
    return msgspec.Raw(before + chance + between + count + after)


def _around_seed_and_max_tokens(params: RenderedParams) -> tuple[bytes, ...]:
    params.seed = params.max_tokens = 1
    # A quote inside a string has a backslash before it, so these are the keys; objects with such keys come after them.
    before, _, rest = msgspec.json.encode(params).partition(b'"seed":1,')
    between, _, after = rest.partition(b'"max_tokens":1,')
    return before, between, after


def _params(state: RenderState, fields: GenerationFields, made: Recipe) -> RenderedParams:
    wire = made.sampling
    greedy = wire.temperature < GREEDY_BELOW
    default_stop_ids: list[int] = state.pipeline.info.sampling_defaults.get("stop_token_ids", [])
    params = RenderedParams(
        presence_penalty=wire.presence_penalty,
        frequency_penalty=wire.frequency_penalty,
        repetition_penalty=wire.repetition_penalty,
        temperature=wire.temperature,
        watermarking=wire.watermarking,
        top_p=UNSET if greedy else wire.top_p,
        top_k=wire.top_k,
        min_p=UNSET if greedy else wire.min_p,
        stop=list(made.text.stop),
        stop_token_ids=list(dict.fromkeys((*(fields.stop_token_ids or ()), *default_stop_ids))),
        ignore_eos=fields.ignore_eos,
        min_tokens=wire.min_tokens,
        logprobs=wire.logprobs,
        prompt_logprobs=wire.prompt_logprobs,
        logprob_token_ids=wire.logprob_token_ids,
        skip_special_tokens=fields.skip_special_tokens,
        spaces_between_special_tokens=fields.spaces_between_special_tokens,
        include_stop_str_in_output=fields.include_stop_str_in_output,
        output_kind=DELTA if fields.stream else FINAL_ONLY,
        stream_interval=wire.stream_interval,
        skip_clone=True,
        logit_bias=wire.logit_bias,
        allowed_token_ids=wire.allowed_token_ids,
        extra_args=wire.extra_args,
        bad_words=list(dict.fromkeys(fields.bad_words)),
        skip_reading_prefix_cache=wire.prompt_logprobs is not None,
        thinking_token_budget=wire.thinking_token_budget,
        repetition_detection=wire.repetition_detection,
        routed_experts_prompt_start=wire.routed_experts_prompt_start,
    )
    params.n = getattr(fields, "n", None) or 1
    if made.text.stop and not fields.include_stop_str_in_output:
        params.output_text_buffer_length = max(map(len, made.text.stop)) - 1
    if wire.structured_outputs is not None:
        # Whoever takes the request chooses the backend.
        params.structured_outputs = {**_CONSTRAINT, **wire.structured_outputs, "_backend": None}
    return params
