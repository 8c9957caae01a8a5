"""The body of a chat completion request."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from fastfront.api.openai.fields import Count, GenerationFields
from fastfront.api.openai.tools import Tool

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ChatRequest(GenerationFields, kw_only=True, forbid_unknown_fields=True):
    """`messages` and `documents` are plain JSON; the prompt stage reads them."""

    messages: list[dict[str, Any]]
    n: int | None = 1
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: Count | None = 0

    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | UnsetType | None = UNSET
    parallel_tool_calls: bool | None = True
    reasoning_effort: Effort | None = None
    include_reasoning: bool = True

    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    #: Of fastfront alone: whether control tokens that the client wrote stay plain text; None is the server's flag.
    safe_user_text: bool | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    return_prompt_text: bool | None = None

    def logprobs_wanted(self) -> tuple[int | None, int | None]:
        """As vLLM does, an echo asks for those of the prompt too."""
        top = self.top_logprobs or 0
        return (
            top if self.logprobs else None,
            top if self.prompt_logprobs is None and self.echo else self.prompt_logprobs,
        )
