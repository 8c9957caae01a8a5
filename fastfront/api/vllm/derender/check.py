"""What both derender routes refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import UnsetType

from fastfront.api.coerce import Problem, body_error
from fastfront.api.state import RenderState
from fastfront.api.vllm.derender.request import GenerateChunk, GeneratedChoice, GenerateResponse, StreamState
from fastfront.errors import RequestError

Part = TypeVar("Part")


def needed(part: Part | UnsetType, name: str, body: msgspec.Struct) -> Part:
    """The part of the body; BodyError if it is not there."""
    if isinstance(part, UnsetType):
        raise body_error([Problem("missing", ("body", name), "Field required", msgspec.to_builtins(body))])
    return part


def check_responses(state: RenderState, responses: Sequence[GenerateResponse]) -> None:
    """RequestError for more, or longer, choices than this server would ever make, or for ids that there are not."""
    most, longest = state.limits.sequences, state.pipeline.info.max_model_len
    if len(responses) > most:
        raise RequestError(
            f"generate_responses count ({len(responses)}) exceeds server maximum ({most}). "
            "Set VLLM_MAX_N_SEQUENCES to increase this limit."
        )
    for response in responses:
        if len(response.choices) > most:
            raise RequestError(
                f"choices count ({len(response.choices)}) in response '{response.request_id}' exceeds server maximum "
                f"({most})."
            )
        for choice in response.choices:
            _check_choice(state, choice)
        logprobs = response.prompt_logprobs
        if isinstance(logprobs, list) and len(logprobs) > longest:
            raise RequestError(
                f"prompt_logprobs length ({len(logprobs)}) in response '{response.request_id}' exceeds max_model_len "
                f"({longest})."
            )


def _check_choice(state: RenderState, choice: GeneratedChoice) -> None:
    longest, most = state.pipeline.info.max_model_len, state.settings.max_logprobs
    if choice.token_ids:
        count = len(choice.token_ids)
        if count > longest:
            raise RequestError(
                f"token_ids length ({count}) in choice {choice.index} exceeds max_model_len ({longest})."
            )
        check_ids(state, choice.token_ids, f"choice {choice.index}")
    if choice.logprobs is None or choice.logprobs.content is None:
        return
    if len(choice.logprobs.content) > longest:
        raise RequestError(
            f"logprobs.content length ({len(choice.logprobs.content)}) in choice {choice.index} exceeds max_model_len "
            f"({longest})."
        )
    for entry in choice.logprobs.content:
        count = len(entry.top_logprobs)
        if 0 <= most < count:
            raise RequestError(f"top_logprobs count ({count}) in choice {choice.index} exceeds max_logprobs ({most}).")


def check_prompt_ids(state: RenderState, lists: Iterable[list[int] | None]) -> None:
    """RequestError for a prompt that is longer than the context or has ids that there are not."""
    longest = state.pipeline.info.max_model_len
    for ids in lists:
        if ids is None:
            continue
        if len(ids) > longest:
            raise RequestError(f"prompt_token_ids length ({len(ids)}) exceeds max_model_len ({longest}).")
        check_ids(state, ids, "prompt_token_ids")


def check_ids(state: RenderState, ids: list[int], where: str) -> None:
    """RequestError for an id that neither the model nor the tokenizer has."""
    largest = state.pipeline.prompter.max_token_id
    if ids and max(ids) > largest:
        raise RequestError(f"{where}: token id {max(ids)} is out of vocabulary (ids go from 0 to {largest})")


def check_chunk(
    state: RenderState, chunk: GenerateChunk, carried: StreamState | None, prompt: list[int] | None
) -> None:
    """RequestError for a chunk of more than one choice, or together with what came before longer than the context."""
    if len(chunk.choices) > 1:
        raise RequestError(f"a streamed chunk has at most one choice (got {len(chunk.choices)}).")
    for choice in chunk.choices:
        _check_choice(state, choice)
    check_prompt_ids(state, (prompt, chunk.prompt_token_ids))
    if carried is not None:
        _check_carried(state, chunk, carried, prompt)


def _check_carried(
    state: RenderState, chunk: GenerateChunk, carried: StreamState, prompt: list[int] | None
) -> None:
    if sum(carried.output_chunk_lens) != len(carried.output_token_ids):
        raise RequestError(
            "stream_state: output_chunk_lens must sum to len(output_token_ids) (got "
            f"sum={sum(carried.output_chunk_lens)}, len(output_token_ids)={len(carried.output_token_ids)})",
            param="stream_state",
        )
    check_ids(state, carried.output_token_ids, "stream_state.output_token_ids")
    before, made = len(prompt or ()), sum(len(choice.token_ids or ()) for choice in chunk.choices)
    longest, prior = state.pipeline.info.max_model_len, len(carried.output_token_ids)
    if before + prior + made > longest:
        raise RequestError(
            f"prompt_token_ids length ({before}) plus output_token_ids length ({prior}) plus delta ({made}) exceeds "
            f"max_model_len ({longest})."
        )
