"""Checks that completions and chat completions share and that are not about a number's range."""

from __future__ import annotations

from typing import Any

from fastfront.api.coerce import Problem, body_error
from fastfront.api.openai.fields import GenerationFields, StreamOptions
from fastfront.api.state import Limits
from fastfront.errors import RequestError, UnsupportedError

_NO_OPTIONS = StreamOptions()


def check_shared(fields: GenerationFields, limits: Limits) -> None:
    """Rules between fields, and what is not served."""
    options = fields.stream_options
    if options is not None and not fields.stream and options != _NO_OPTIONS:
        raise RequestError("Stream options can only be defined when `stream=True`.", param="stream_options")
    if isinstance(fields.stop, list) and len(fields.stop) > limits.stop_strings:
        most, count = limits.stop_strings, len(fields.stop)
        message = f"List should have at most {most} items after validation, not {count}"
        ctx: dict[str, object] = {"field_type": "List", "max_length": most, "actual_length": count}
        raise body_error([Problem("too_long", ("body", "stop"), message, fields.stop, ctx)])
    if fields.prompt_logprobs is not None:
        check_count("prompt_logprobs", fields.prompt_logprobs)
        if fields.stream and fields.prompt_logprobs != 0:
            raise RequestError("`prompt_logprobs` are not available when `stream=True`.", param="prompt_logprobs")


def check_count(name: str, value: int) -> None:
    """RequestError unless a number of log-probabilities is at least 0, or -1 for all."""
    if value < -1:
        raise RequestError(f"`{name}` must be a positive value or -1.", param=name, value=value)


def unsupported(name: str, value: Any = None) -> UnsupportedError:
    """The error for a known field that fastfront does not serve."""
    return UnsupportedError(f"`{name}` is not supported by fastfront.", param=name, value=value)
