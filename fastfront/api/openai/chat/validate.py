"""What a chat completion request must keep to."""

from __future__ import annotations

from typing import Any

from fastfront.api.coerce import Problem, body_error
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.identity import check_cache_salt
from fastfront.api.openai.names import unknown_in_chat
from fastfront.api.openai.rules import check_count, check_shared, unsupported
from fastfront.api.openai.tools import check_tools
from fastfront.api.state import Limits
from fastfront.api.unknown import tell
from fastfront.config import ApiConfig
from fastfront.errors import RequestError

#: Roles whose message may have a null content.
_NULL_CONTENT = ("assistant", "function")


def check_chat(body: ChatRequest, settings: ApiConfig, limits: Limits) -> None:
    """RequestError or BodyError for the first rule that is broken; UnsupportedError for what is not served."""
    check_cache_salt(body.cache_salt)
    check_messages(body.messages)
    check_prompt_flags(body.add_generation_prompt, body.continue_final_message)
    check_shared(body, limits)
    _check_logprobs(body)
    check_tools(body.tools, body.tool_choice, settings.tool_call_parser)
    _check_one_constraint(body)
    check_media_kwargs(body.media_io_kwargs, body.mm_processor_kwargs)
    wanted, name = wanted_tokens(body)
    if wanted is not None and wanted < 1:
        raise RequestError(f"{name} must be at least 1, got {wanted}.", param=name, value=wanted, limit=1)
    tell(unknown_in_chat(body), settings.strict_request_fields)


def wanted_tokens(body: ChatRequest) -> tuple[int | None, str]:
    """How many tokens the client asked for, None if it left that open, and by which field."""
    if body.max_completion_tokens is not None:
        return body.max_completion_tokens, "max_completion_tokens"
    return body.max_tokens, "max_tokens"


def check_messages(messages: list[dict[str, Any]]) -> None:
    """An empty conversation, or a content of null where it must not be; the rest is the prompt stage's to check.

    These come before a model that is not served, as in vLLM, and where the prompt is there already.
    """
    if not messages:
        raise RequestError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    for at, message in enumerate(messages):
        if message.get("content", "") is None and message.get("role") not in _NULL_CONTENT:
            loc = ("body", "messages", at, "content")
            raise body_error([Problem("string_type", loc, "Input should be a valid string", None)])


def check_prompt_flags(add_generation_prompt: bool, continue_final_message: bool) -> None:
    """RequestError if the prompt should both end in an open message and begin a new one."""
    if add_generation_prompt and continue_final_message:
        raise RequestError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")


def check_media_kwargs(media_io: dict[str, Any] | None, processor: dict[str, Any] | None) -> None:
    """UnsupportedError if media are to be processed in some other way."""
    if processor:
        raise unsupported("mm_processor_kwargs")
    if media_io:
        raise unsupported("media_io_kwargs")


def _check_one_constraint(body: ChatRequest) -> None:
    """RequestError if a named tool and structured outputs both say what the answer must be."""
    structured = body.structured_outputs
    if structured is None or not isinstance(body.tool_choice, dict):
        return
    if any(value is not None for value in (structured.json, structured.regex, structured.choice)):
        raise RequestError(
            "You can only either use constraints for structured outputs or tools, not both.", param="structured_outputs"
        )


def _check_logprobs(body: ChatRequest) -> None:
    top = body.top_logprobs or 0
    check_count("top_logprobs", top)
    if body.logprob_token_ids and not body.logprobs:
        raise RequestError("when using `logprob_token_ids`, `logprobs` must be set to true.", param="logprob_token_ids")
    if top and not body.logprobs:
        raise RequestError("when using `top_logprobs`, `logprobs` must be set to true.", param="top_logprobs")
