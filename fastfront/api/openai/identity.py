"""Who asks and for what: model name, request id, and what headers may say instead of the body."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from fastfront.api.openai.fields import GenerationFields
from fastfront.api.state import Limits
from fastfront.errors import ModelNotFoundError, RequestError

_SALT_CHARS = 128
_SALT_FORBIDDEN = frozenset("@/\\\0")
_TRACE = ("traceparent", "tracestate")
_ROUTING = frozenset(("x-vllm-priority", "x-session-id", "x-data-parallel-rank", "traceparent"))


def check_model(model: str | None, names: list[str], limits: Limits) -> None:
    """ModelNotFoundError if the name is not served; null and "" mean the served model."""
    if not model or model in names or limits.any_model_name:
        return
    raise ModelNotFoundError(
        f"The model `{model}` does not exist. Valid aliases: {', '.join(names)}.", param="model", value=model
    )


def public_id(prefix: str, headers: Mapping[str, str], asked: str | UnsetType) -> str:
    """The id of the answer: `prefix` and the header's, else the body's, else 16 random hex digits."""
    given = headers.get("x-request-id")
    if given is None:
        given = _random_hex() if asked is UNSET else str(asked)
    return prefix + given


def routing(
    fields: GenerationFields, headers: Mapping[str, str]
) -> tuple[int, str | None, int | None, dict[str, str] | None]:
    """Priority, session id, data-parallel rank (the engine that a router chose) and the W3C trace context."""
    if _ROUTING.isdisjoint(headers) and not fields.session_id and not fields.vllm_xargs:
        return fields.priority, None, None, None
    trace = {name: headers[name] for name in _TRACE if name in headers} if "traceparent" in headers else None
    # A rank that is not a number is not obeyed, as in vLLM.
    rank = _header_int(headers.get("x-data-parallel-rank"))
    return priority(fields, headers), _session_id(fields, headers), rank, trace


def priority(fields: GenerationFields, headers: Mapping[str, str]) -> int:
    """The header's priority, if it is a number, else the body's."""
    given = _header_int(headers.get("x-vllm-priority"))
    return fields.priority if given is None else given


def _session_id(fields: GenerationFields, headers: Mapping[str, str]) -> str | None:
    """The body's, else the header's, else that of vllm_xargs."""
    found = fields.session_id or headers.get("x-session-id") or (fields.vllm_xargs or {}).get("session_id")
    return found if isinstance(found, str) and found else None


def check_cache_salt(salt: str | None) -> None:
    """RequestError if the salt could be read as more than a salt by a cache behind the engine."""
    if salt is None:
        return
    if not salt:
        raise RequestError("Parameter 'cache_salt' must be a non-empty string if provided.", param="cache_salt")
    if len(salt) > _SALT_CHARS or not _SALT_FORBIDDEN.isdisjoint(salt):
        raise RequestError(
            f"Parameter 'cache_salt' must be at most {_SALT_CHARS} characters and must not contain "
            "'@', '/', '\\', or NUL.",
            param="cache_salt",
            limit=_SALT_CHARS,
        )


_ID_CHARS = 16
_hex: list[str] = []


def _random_hex() -> str:
    """16 digits; asking the system for many at once is much quicker."""
    if not _hex:
        digits = secrets.token_hex(128 * _ID_CHARS // 2)
        _hex.extend(digits[at : at + _ID_CHARS] for at in range(0, len(digits), _ID_CHARS))
    return _hex.pop()


def _header_int(value: str | None) -> int | None:
    if value is None or len(value) > 20:
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None
