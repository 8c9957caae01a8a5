"""What a completion request must keep to."""

from __future__ import annotations

from typing import cast

from fastfront.api.coerce import Problem, body_error
from fastfront.api.openai.completions.request import CompletionRequest, Prompts
from fastfront.api.openai.identity import check_cache_salt
from fastfront.api.openai.names import unknown_in_format
from fastfront.api.openai.rules import check_count, check_shared
from fastfront.api.state import Limits
from fastfront.api.unknown import tell
from fastfront.config import ApiConfig
from fastfront.errors import RequestError, UnsupportedError


def check_completion(body: CompletionRequest, settings: ApiConfig, limits: Limits) -> None:
    """RequestError or BodyError for the first rule that is broken; UnsupportedError for what is not served."""
    check_cache_salt(body.cache_salt)
    check_shared(body, limits)
    if body.logprobs is not None:
        check_count("logprobs", body.logprobs)
    if body.logprob_token_ids and body.echo and body.max_tokens == 0:
        raise RequestError(
            "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no output tokens are "
            "generated.",
            param="logprob_token_ids",
        )
    if body.logprob_token_ids and body.logprobs is None:
        raise RequestError("when using `logprob_token_ids`, `logprobs` must be set.", param="logprob_token_ids")
    if body.use_beam_search:
        _check_beams(body)
    if body.suffix is not None:
        raise UnsupportedError(
            "suffix is only supported for models with FIM completion rendering", param="suffix", value=body.suffix
        )
    if body.prompt_embeds is not None and body.prompt_embeds != []:
        raise UnsupportedError("`prompt_embeds` is not supported by fastfront.", param="prompt_embeds")
    if body.max_tokens is not None and body.max_tokens < (0 if body.echo else 1):
        raise RequestError(
            f"max_tokens must be at least 1, got {body.max_tokens}.", param="max_tokens", value=body.max_tokens, limit=1
        )
    tell(unknown_in_format(body.response_format), settings.strict_request_fields)


def _check_beams(body: CompletionRequest) -> None:
    """RequestError for what a search that has no prompt's log-probabilities, and ends at once, cannot give."""
    if body.echo and body.logprobs is not None:
        raise RequestError(
            "`echo` with `logprobs` is not supported with beam search because beam search does not compute prompt "
            "logprobs.",
            param="echo",
        )
    if body.stream:
        raise RequestError("Streaming is not currently supported with beam search")


def split_prompts(prompt: Prompts, limits: Limits) -> list[str] | list[list[int]]:
    """The prompts: texts, or lists of ids."""
    if prompt is None or prompt == "":
        raise RequestError("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise RequestError("You must pass at least one prompt", param="prompt", value=prompt)
    kinds = set(map(type, prompt))
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        message = f"Input should be a list of one kind, not of {names}"
        raise body_error([Problem("list_type", ("body", "prompt"), message, prompt)])
    if kinds == {int}:
        return [cast("list[int]", prompt)]
    if len(prompt) > limits.prompts:
        raise RequestError(
            f"prompt list length {len(prompt)} exceeds the maximum allowed count of {limits.prompts}. To increase "
            "this limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
            param="prompt",
            limit=limits.prompts,
        )
    return cast("list[str] | list[list[int]]", prompt)
