"""From a checked request and its prompts to the generation that the pipeline runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from fastfront.api.openai.events import Wishes
from fastfront.api.openai.fields import GenerationFields
from fastfront.api.openai.identity import routing
from fastfront.api.openai.logprobs import LogprobWish
from fastfront.api.openai.recipe import Recipe
from fastfront.api.openai.sampling import check_tokens
from fastfront.api.state import RenderState
from fastfront.config import ApiConfig
from fastfront.errors import RequestError, UnsupportedError
from fastfront.flow import Generation, MakeCounter, MakeParser, Prompt, SamplingParams

#: An engine's seeds have 64 bits.
LAST_SEED = (1 << 63) - 1


class ReadBy(NamedTuple):
    """How the answers to one prompt are read, and what the engine is told of that (see flow.Generation)."""

    parser: MakeParser | None = None
    counter: MakeCounter | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: bytes | None = None


PLAIN = ReadBy()


class GenerationPlan(msgspec.Struct, frozen=True):
    """What requests alike ask of the engine. `wanted` tokens, None if that is left to the model and the room."""

    fields: GenerationFields
    n: int
    recipe: Recipe
    wanted: int | None
    seed: int | None
    constrained_by: str


def plan_generation(
    state: RenderState, fields: GenerationFields, n: int, recipe: Recipe, wanted: int | None, constrained_by: str
) -> GenerationPlan:
    """The plan of `n` choices for each prompt; RequestError for what is not served."""
    if recipe.sampling.thinking_token_budget is not None and not state.thinking_budgets:
        raise UnsupportedError(
            "`thinking_token_budget` needs --reasoning-parser with a parser of which the engine learns the marks of "
            "reasoning, or --reasoning-config; this server has neither.",
            param="thinking_token_budget",
        )
    return GenerationPlan(fields, n, recipe, wanted, _seed_for(n, fields), constrained_by)


def build_generation(
    state: RenderState,
    plan: GenerationPlan,
    headers: Mapping[str, str],
    request_id: str,
    prompts: list[Prompt],
    read: ReadBy = PLAIN,
) -> Generation:
    """What the pipeline runs; RequestError for prompts that leave too little room."""
    fields, recipe = plan.fields, plan.recipe
    priority, session_id, rank, trace_headers = routing(fields, headers)
    return Generation(
        request_id=request_id,
        prompts=prompts,
        sampling=recipe.sampling,
        max_tokens=room_for(state, recipe, prompts, plan.wanted),
        seed=plan.seed,
        text=recipe.text,
        n=plan.n,
        priority=priority,
        cache_salt=fields.cache_salt,
        session_id=session_id,
        data_parallel_rank=rank,
        trace_headers=trace_headers,
        stream_interval=recipe.stream_interval,
        constrained_by=plan.constrained_by,
        parser=read.parser,
        counter=read.counter,
        reasoning_ended=read.reasoning_ended,
        reasoning_parser_kwargs=read.reasoning_parser_kwargs,
    )


def seed(fields: GenerationFields) -> int | None:
    """The seed, None where chance is to have its way."""
    return None if fields.seed == -1 else fields.seed


def _seed_for(n: int, fields: GenerationFields) -> int | None:
    """The first choice's seed, of which the others' are the successors; RequestError if the last is none."""
    first = seed(fields)
    if first is not None and first > LAST_SEED - (n - 1):
        most = LAST_SEED - (n - 1)
        raise RequestError(
            f"seed must be at most {most} for {n} choices, got {first}.", param="seed", value=first, limit=most
        )
    return first


def check_spaces(state: RenderState, fields: GenerationFields) -> None:
    """UnsupportedError for special tokens side by side where the tokenizer's own way is to set them apart."""
    if fields.spaces_between_special_tokens or fields.skip_special_tokens:
        return
    if state.pipeline.prompter.tokenizer.spaces_special_tokens:
        raise UnsupportedError(
            "`spaces_between_special_tokens` false is not supported by fastfront: this model's tokenizer puts spaces "
            "between special tokens.",
            param="spaces_between_special_tokens",
        )


def room_for(state: RenderState, recipe: Recipe, prompts: Sequence[Prompt], wanted: int | None) -> int:
    """How many tokens may be generated for the shortest prompt; RequestError if a prompt leaves too little room."""
    if len(prompts) == 1:
        shortest = longest = len(prompts[0].token_ids)
    else:
        lengths = [len(prompt.token_ids) for prompt in prompts]
        shortest, longest = min(lengths), max(lengths)
    most = max_tokens(state, shortest, wanted)
    check_tokens(most, recipe.sampling.min_tokens)
    _check_room(shortest, longest, recipe.sampling, state.pipeline.info.max_model_len)
    return most


def max_tokens(state: RenderState, prompt_len: int, wanted: int | None) -> int:
    """What was asked for, else the model's default, else all the room; never more than a prompt of that many leaves."""
    info = state.pipeline.info
    if wanted is None:
        wanted = info.sampling_defaults.get("max_tokens")
    most = info.max_model_len - prompt_len
    if wanted is not None and wanted < most:
        most = wanted
    if state.max_new_tokens is not None and state.max_new_tokens < most:
        most = state.max_new_tokens
    return most


def _check_room(shortest: int, longest: int, sampling: SamplingParams, max_model_len: int) -> None:
    """RequestError if a prompt leaves no room, or less than min_tokens wants, or is shorter than the experts skip."""
    room = max_model_len - longest
    if room < 1:
        raise RequestError("max_tokens must be at least 1, got 0.", param="max_tokens", value=0, limit=1)
    if sampling.min_tokens > room:
        raise RequestError(
            f"min_tokens must be less than or equal to max_tokens={room}, got {sampling.min_tokens}.", limit=room
        )
    if sampling.routed_experts_prompt_start > shortest:
        raise RequestError(
            f"routed_experts_prompt_start must be between 0 and the prompt length ({shortest}), inclusive.",
            param="routed_experts_prompt_start",
            value=sampling.routed_experts_prompt_start,
            limit=shortest,
        )


def stream_wishes(fields: GenerationFields, settings: ApiConfig) -> Wishes:
    """Usage as `stream_options` or the server's flag wants it; every chunk only has it if the last one does."""
    options = fields.stream_options
    forced = settings.enable_force_include_usage
    asked = forced or (options is not None and options.include_usage is True)
    every = forced or (asked and options is not None and options.continuous_usage_stats is True)
    details, ids = settings.enable_prompt_tokens_details, bool(fields.return_token_ids)
    return Wishes(asked, every, details, ids, _logprob_wish(fields, settings))


def _logprob_wish(fields: GenerationFields, settings: ApiConfig) -> LogprobWish | None:
    top, _ = fields.logprobs_wanted()
    if top is None:
        return None
    as_ids = fields.return_tokens_as_token_ids
    as_ids = settings.return_tokens_as_token_ids if as_ids is None else as_ids
    return LogprobWish(-1 if fields.logprob_token_ids else top, as_ids)
