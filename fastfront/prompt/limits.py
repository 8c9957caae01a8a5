"""How long a prompt and its answer may be, and which ids it may hold. Messages are those of vLLM's Python frontend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from fastfront.errors import RequestError

Side = Literal["left", "right"]


class PromptLimits(msgspec.Struct, frozen=True):
    """Limits of one request's prompt, in tokens. `max_length` None: no limit at all (tokenize)."""

    max_length: int | None
    truncate_to: int | None = None
    #: Which end is cut off; None is left, and special tokens are kept then.
    side: Side | None = None


UNLIMITED = PromptLimits(None)


def prompt_limits(
    max_model_len: int,
    *,
    max_tokens: int | None = None,
    max_tokens_param: str = "max_tokens",
    truncate_prompt_tokens: int | None = None,
    truncation_side: str | None = None,
) -> PromptLimits:
    """Checks what can be checked before the prompt is known; raises RequestError naming the field."""
    if truncation_side not in (None, "left", "right"):
        raise RequestError(
            "`truncation_side` must be either 'left' or 'right'.", param="truncation_side", value=truncation_side
        )
    if max_tokens is not None and max_tokens > max_model_len:
        raise RequestError(
            f"{max_tokens_param}={max_tokens} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens.",
            param=max_tokens_param,
            value=max_tokens,
            limit=max_model_len,
        )
    if truncate_prompt_tokens is not None:
        if truncate_prompt_tokens < -1:
            raise RequestError(
                "truncate_prompt_tokens must be -1 or more.",
                param="truncate_prompt_tokens",
                value=truncate_prompt_tokens,
                limit=-1,
            )
        if truncate_prompt_tokens > max_model_len:
            raise RequestError(
                f"truncate_prompt_tokens={truncate_prompt_tokens} cannot be greater than "
                f"max_model_len = {max_model_len}. Please request a smaller truncation size.",
                param="truncate_prompt_tokens",
                value=truncate_prompt_tokens,
                limit=max_model_len,
            )
        if truncate_prompt_tokens == -1:
            # One token is left for the answer when the request says that it wants some.
            truncate_prompt_tokens = max_model_len - 1 if max_tokens else max_model_len
    side: Side | None = "right" if truncation_side == "right" else "left" if truncation_side == "left" else None
    return PromptLimits(max_model_len, truncate_prompt_tokens, side)


def check_messages(count: int, limits: PromptLimits) -> None:
    """Raises RequestError for more messages than there can be tokens, before a template works on them for minutes."""
    if limits.max_length is not None and limits.truncate_to is None and count > limits.max_length:
        raise RequestError(
            f"This model's maximum context length is {limits.max_length} tokens. However, the conversation has {count} "
            "messages.",
            param="messages",
            value=count,
            limit=limits.max_length,
        )


def check_text(text: str, limits: PromptLimits, max_chars_per_token: int) -> str:
    """Refuses, or cuts where truncation is asked for, a text too long for any tokenization of it to fit."""
    if limits.max_length is None:
        return text
    most = limits.max_length * max_chars_per_token
    if len(text) <= most:
        return text
    if limits.truncate_to is None:
        raise RequestError(
            f"This model's maximum context length is {limits.max_length} tokens. However, your prompt contains "
            f"{len(text)} characters (more than {most} characters, which is the upper bound for {limits.max_length} "
            "input tokens). Please reduce the length of the input prompt.",
            param="input_text",
            value=len(text),
            limit=most,
        )
    if limits.side is None:
        return text
    return text[-most:] if limits.side == "left" else text[:most]


def truncate(ids: Sequence[int], limits: PromptLimits) -> Sequence[int]:
    """`ids` cut to `truncate_to` tokens, at the side asked for."""
    keep = limits.truncate_to
    if keep is None or keep >= len(ids):
        return ids
    if keep == 0:
        return []
    return ids[:keep] if limits.side == "right" else ids[-keep:]


def check_length(count: int, limits: PromptLimits) -> None:
    """Refuses an empty prompt and one longer than the context."""
    if limits.max_length is None:
        return
    if count == 0:
        raise RequestError("The decoder prompt cannot be empty", param="prompt", limit=1)
    if count > limits.max_length:
        raise RequestError(
            f"This model's maximum context length is {limits.max_length} tokens. However, your prompt contains "
            f"{count} input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt.",
            param="input_tokens",
            value=count,
            limit=limits.max_length,
        )


def check_ids(ids: Sequence[int], max_id: int) -> None:
    """Refuses ids that neither the model nor the tokenizer has (0 .. `max_id`)."""
    if not ids:
        return
    low, high = min(ids), max(ids)
    if low < 0 or high > max_id:
        bad = low if low < 0 else high
        raise RequestError(
            f"Token id {bad} is out of vocabulary (ids go from 0 to {max_id})", param="prompt", value=bad, limit=max_id
        )
