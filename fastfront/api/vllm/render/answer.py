"""The answer of the render routes: a request for vLLM's /inference/v1/generate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fastfront.api.openai.fields import GenerationFields
from fastfront.api.openai.generation import seed
from fastfront.api.openai.identity import priority
from fastfront.api.openai.recipe import Recipe
from fastfront.api.state import RenderState, Tokenizer
from fastfront.api.vllm.render.params import rendered_params
from fastfront.errors import RequestError
from fastfront.fast import json_ids
from fastfront.flow import Prompt

encode = msgspec.json.Encoder().encode
Offsets = list[tuple[int, int]]


class StreamOptions(msgspec.Struct):
    """With both keys, as vLLM writes them."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class GenerateRequest(msgspec.Struct, kw_only=True):
    """Every key that vLLM writes, in its order."""

    request_id: str
    token_ids: msgspec.Raw
    token_offsets: Offsets | None
    features: None = None
    content_parts: None = None
    sampling_params: msgspec.Raw
    model: str | None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: msgspec.Raw | None = None
    return_token_ids: bool | None = None
    output_mode: str = "tokens"
    stream: bool
    stream_options: StreamOptions | None
    cache_salt: str | None
    priority: int
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None


def rendered(
    state: RenderState,
    fields: GenerationFields,
    headers: Mapping[str, str],
    made: Recipe,
    request_id: str,
    prompt: Prompt,
    tokens: int,
    offsets: Offsets | None,
) -> GenerateRequest:
    """What the engine would be sent for one prompt; `tokens` may be generated."""
    return GenerateRequest(
        request_id=request_id,
        token_ids=msgspec.Raw(json_ids(prompt.token_ids)),
        token_offsets=offsets,
        sampling_params=rendered_params(state, fields, made, tokens, seed(fields)),
        model=fields.model,
        stream=fields.stream is True,
        stream_options=None if fields.stream_options is None else _stream_options(fields),
        cache_salt=fields.cache_salt,
        priority=priority(fields, headers),
    )


def check_renderable(fields: GenerationFields) -> None:
    """RequestError for what has no GenerateRequest."""
    if fields.use_beam_search:
        raise RequestError("Beam search is not supported by the render endpoint")


async def token_offsets(
    state: RenderState, fields: GenerationFields, prompts: list[Prompt], add_special_tokens: bool
) -> list[Offsets | None]:
    """If wanted, where each id's characters begin and end in its prompt's text; None without a text to point into."""
    if not fields.return_token_offsets:
        return [None] * len(prompts)
    prompter = state.pipeline.prompter

    def every() -> list[Offsets | None]:
        return [_offsets(prompter.tokenizer, prompt, add_special_tokens) for prompt in prompts]

    return await prompter.aside(every, size=sum(len(prompt.text or "") for prompt in prompts))


def _offsets(tokenizer: Tokenizer, prompt: Prompt, add_special_tokens: bool) -> Offsets | None:
    if prompt.text is None:
        return None
    offsets = tokenizer.offsets(prompt.text, add_special_tokens)
    own_ids, count = list(prompt.token_ids), len(prompt.token_ids)
    if count == len(offsets):
        return offsets
    ids = tokenizer.encode(prompt.text, add_special_tokens)
    if own_ids == ids[:count]:
        return offsets[:count]
    return offsets[-count:] if own_ids == ids[-count:] else None


def _stream_options(fields: GenerationFields) -> StreamOptions | None:
    options = fields.stream_options
    if options is None or not fields.stream:
        return None
    asked = StreamOptions()
    if options.include_usage is not msgspec.UNSET:
        asked.include_usage = options.include_usage
    if options.continuous_usage_stats is not msgspec.UNSET:
        asked.continuous_usage_stats = options.continuous_usage_stats
    return asked
