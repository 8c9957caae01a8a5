"""The bodies of the derender routes: what /inference/v1/generate answered, whole or a chunk of it, and its request."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


def _random_id() -> str:
    return secrets.token_hex(8)


class TokenLogprob(msgspec.Struct, kw_only=True):
    """A candidate."""

    token_id: Id
    logprob: float


class PositionLogprobs(msgspec.Struct, kw_only=True):
    """The sampled token of a position, and its rivals."""

    token_id: Id
    logprob: float
    top_logprobs: list[TokenLogprob] = []


class Logprobs(msgspec.Struct, kw_only=True):
    """One entry for each generated token."""

    content: list[PositionLogprobs] | None = None


class GeneratedChoice(msgspec.Struct, kw_only=True):
    """One choice, whole or a part of it."""

    index: int
    finish_reason: str | UnsetType | None = UNSET
    stop_reason: int | str | None = None
    token_ids: list[Id] | None = None
    logprobs: Logprobs | None = None


class GenerateUsage(msgspec.Struct, kw_only=True):
    """Counts of the engine's server."""

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0


class GenerateResponse(msgspec.Struct, kw_only=True):
    """A whole answer."""

    request_id: str = msgspec.field(default_factory=_random_id)
    output_mode: Literal["tokens"] = "tokens"
    choices: list[GeneratedChoice]
    prompt_token_ids: list[Id] | None = None
    prompt_logprobs: Any = None
    kv_transfer_params: dict[str, Any] | None = None
    metrics: Any = None


class GenerateChunk(msgspec.Struct, kw_only=True):
    """One event of a stream."""

    request_id: str = msgspec.field(default_factory=_random_id)
    output_mode: Literal["tokens"] = "tokens"
    choices: list[GeneratedChoice]
    usage: GenerateUsage | None = None
    prompt_token_ids: list[Id] | None = None
    metrics: Any = None


class StreamState(msgspec.Struct, kw_only=True):
    """What the client carries from chunk to chunk, as vLLM writes it; the last four are of servers with a parser."""

    prev_tokens: list[str] = []
    prefix_offset: Count = 0
    read_offset: Count = 0
    role_sent: bool = False
    logprob_context_token_ids: Annotated[list[Id], Meta(max_length=4)] = []
    logprob_text_offset: Count = 0
    output_token_ids: list[Id] = []
    output_chunk_lens: list[Annotated[int, Meta(ge=1)]] = []
    tools_streamed: bool = False
    last_tool_call_ids: list[str] = []


class ChatDerender(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """With `stream` one chunk and the state, else the whole answer. `chat_request` is read apart."""

    stream: bool = False
    model: str | None = None
    generate_response: GenerateResponse | UnsetType = UNSET
    generate_chunk: GenerateChunk | UnsetType = UNSET
    stream_state: StreamState | None = None
    prompt_tokens: int | None = None
    prompt_token_ids: list[Id] | None = None
    chat_request: dict[str, Any] | None = None


class CompletionDerender(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """With `stream` one chunk and the state, else one whole answer for each prompt."""

    stream: bool = False
    model: str | None = None
    generate_responses: list[GenerateResponse] | UnsetType = UNSET
    generate_chunk: GenerateChunk | UnsetType = UNSET
    stream_state: StreamState | None = None
    prompt_tokens: int | list[int] | None = None
    prompt_token_ids: list[Id | list[Id] | None] | None = None
    completion_request: dict[str, Any] | None = None
