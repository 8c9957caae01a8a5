"""The answers of the derender routes, with every key that vLLM writes. Whole ones are the API's own."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fastfront.api.openai.usage import Usage
from fastfront.api.vllm.derender.request import StreamState

encode = msgspec.json.Encoder().encode


class ShownLogprob(msgspec.Struct):
    """A candidate with its text."""

    token: str
    logprob: float
    bytes: list[int] | None


class ShownPosition(msgspec.Struct):
    """A generated token with its text, and its rivals."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[ShownLogprob]


class ShownLogprobs(msgspec.Struct):
    """The log-probabilities of a chat."""

    content: list[ShownPosition] | None = None


class CompletionLogprobs(msgspec.Struct):
    """The log-probabilities of a completion."""

    text_offset: list[int] = []
    token_logprobs: list[float] = []
    tokens: list[str] = []
    top_logprobs: list[dict[str, float] | None] = []


class FunctionDelta(msgspec.Struct):
    """What a chunk adds to a call's function: the name once, its arguments in pieces."""

    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(msgspec.Struct, kw_only=True):
    """What a chunk adds to a call; id and type come with the name."""

    id: str | None = None
    type: Literal["function"] | None = None
    index: int
    function: FunctionDelta


class ChatDelta(msgspec.Struct):
    """What a chunk adds to a message."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    """The choice of a chunk."""

    index: int
    delta: ChatDelta
    logprobs: ShownLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatChunk(msgspec.Struct, kw_only=True):
    """One event of a chat's stream."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None
    system_fingerprint: None = None
    prompt_token_ids: None = None
    prompt_text: None = None
    metrics: Any = None


class CompletionChunkChoice(msgspec.Struct, kw_only=True):
    """The choice of a chunk."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_token_ids: None = None
    token_ids: None = None


class CompletionChunk(msgspec.Struct, kw_only=True):
    """One event of a completion's stream."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: Usage | None
    system_fingerprint: None = None
    metrics: Any = None


class Derendered(msgspec.Struct):
    """One event, and the state for the next."""

    chunk: ChatChunk | CompletionChunk
    stream_state: StreamState
