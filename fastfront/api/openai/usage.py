"""Token counts of an answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fastfront.flow import Choice, Prompt


class PromptDetails(msgspec.Struct):
    """Of the prompt's tokens, which were not computed anew."""

    cached_tokens: int | None = None
    created_cache_tokens: int | None = None
    multimodal_tokens: dict[str, int] | None = None


class Usage(msgspec.Struct):
    """The counts of a whole answer."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: dict[str, int] | None = None


def usage(prompts: Sequence[Prompt], choices: Sequence[Choice], details: bool, created: bool = False) -> Usage:
    """Each prompt counts once, each choice by what it generated; `details` adds the tokens of the prompt cache."""
    prompt = sum(len(p.token_ids) for p in prompts)
    completion = sum(choice.completion_tokens for choice in choices)
    made = Usage(prompt, prompt + completion, completion)
    cached = choices[-1].cached_tokens if details and choices else None
    if cached is not None:
        made.prompt_tokens_details = PromptDetails(cached, choices[-1].created_cache_tokens if created else None)
    reasoning = [choice.reasoning_tokens for choice in choices if choice.reasoning_tokens is not None]
    if reasoning:
        made.completion_tokens_details = {"reasoning_tokens": sum(reasoning)}
    return made


def details_json(reasoning_tokens: int | None) -> bytes:
    """What of the generated tokens is reasoning."""
    return b"null" if reasoning_tokens is None else b'{"reasoning_tokens":%d}' % reasoning_tokens


def usage_json(counts: Usage) -> bytes:
    """The counts as the last chunk of a stream has them: without nulls."""
    written = b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d' % (
        counts.prompt_tokens,
        counts.total_tokens,
        counts.completion_tokens,
    )
    if (cached := counts.prompt_tokens_details) is not None:
        written += b',"prompt_tokens_details":{"cached_tokens":%d' % (cached.cached_tokens or 0)
        if cached.created_cache_tokens is not None:
            written += b',"created_cache_tokens":%d' % cached.created_cache_tokens
        written += b"}"
    if counts.completion_tokens_details is not None:
        written += b',"completion_tokens_details":' + details_json(counts.completion_tokens_details["reasoning_tokens"])
    return written + b"}"
