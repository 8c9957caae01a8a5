"""The body of a completion request."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from fastfront.api.openai.fields import Count, GenerationFields

TokenId = Annotated[int, Meta(ge=0)]
#: A text, a list of ids, a list of texts or a list of lists of ids; no mixture of these.
Prompts = str | list[TokenId | str | list[TokenId]] | None


class CompletionRequest(GenerationFields, kw_only=True, forbid_unknown_fields=True):
    """As vLLM's CompletionRequest."""

    prompt: Prompts = None
    n: int = 1
    max_tokens: int | None = 16
    echo: bool | None = False
    logprobs: Count | None = None
    suffix: str | None = None
    prompt_embeds: Any = None
    add_special_tokens: bool = True

    def logprobs_wanted(self) -> tuple[int | None, int | None]:
        """An echo with log-probabilities wants them of the prompt too."""
        return self.logprobs, self.logprobs if self.prompt_logprobs is None and self.echo else self.prompt_logprobs
