"""The one place that knows HTTP statuses: every error becomes an answer of the shape of vLLM's Python frontend."""

from __future__ import annotations

import logging

import msgspec

from fastfront.errors import (
    BodyError,
    EngineDeadError,
    EngineError,
    EngineRequestError,
    HeadersTooLargeError,
    MalformedRequestError,
    MethodNotAllowedError,
    ModelNotFoundError,
    PayloadTooLargeError,
    RequestError,
    RequestTimeoutError,
    RouteNotFoundError,
    UnauthorizedError,
    UnsupportedError,
    WireError,
    WorkerError,
)

logger = logging.getLogger(__name__)

JSON = "application/json"
Rendered = tuple[int, bytes, str, tuple[tuple[str, str], ...]]

_INTERNAL = (500, "InternalServerError")
#: Status and `type`; an error that is not here has the row of the nearest class above it.
TABLE: dict[type[BaseException], tuple[int, str]] = {
    BodyError: (400, "Bad Request"),
    UnsupportedError: (400, "BadRequestError"),
    RequestError: (400, "BadRequestError"),
    UnauthorizedError: (401, "Unauthorized"),
    ModelNotFoundError: (404, "NotFoundError"),
    RouteNotFoundError: (404, "Not Found"),
    MethodNotAllowedError: (405, "Method Not Allowed"),
    MalformedRequestError: (400, "Bad Request"),
    RequestTimeoutError: (408, "Request Timeout"),
    PayloadTooLargeError: (413, "Request Entity Too Large"),
    HeadersTooLargeError: (431, "Request Header Fields Too Large"),
    EngineError: _INTERNAL,
    EngineDeadError: _INTERNAL,
    EngineRequestError: _INTERNAL,
    WireError: _INTERNAL,
    WorkerError: (503, "ServiceUnavailableError"),
    BaseException: _INTERNAL,
}
#: Answers that have no `error` object, as FastAPI writes them.
_BARE: dict[type[BaseException], bytes] = {
    UnauthorizedError: b'{"error":"Unauthorized"}',
    RouteNotFoundError: b'{"detail":"Not Found"}',
    MethodNotAllowedError: b'{"detail":"Method Not Allowed"}',
}
_VALUE_CHARS = 200


class _Info(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: int | str


class _Body(msgspec.Struct):
    error: _Info


def status_of(error: BaseException) -> tuple[int, str]:
    """The HTTP status and the error `type` of an error."""
    for cls in type(error).__mro__:
        if cls in TABLE:
            return TABLE[cls]
    return _INTERNAL


def render_error(error: BaseException) -> Rendered:
    """Status, body, content type and headers that answer an error. Nothing is told of an unexpected one."""
    status, kind = status_of(error)
    for cls, body in _BARE.items():
        if isinstance(error, cls):
            allow = (("allow", ", ".join(error.allowed)),) if isinstance(error, MethodNotAllowedError) else ()
            return status, body, JSON, allow
    return status, _body(error, status, kind), JSON, ()


def render_and_log(error: BaseException) -> Rendered:
    """As `render_error`; the log gets the traceback."""
    rendered = render_error(error)
    logger.warning("error answer %d: %s", rendered[0], error, exc_info=error)
    return rendered


def error_event(error: BaseException) -> bytes:
    """The server-sent event of an error after the answer has started; as HTTP does not see it, it is logged here."""
    if not isinstance(error, RequestError):
        logger.error("a stream failed: %s", error, exc_info=None if isinstance(error, EngineError) else error)
    # In a stream there is no status; type and code are then those of vLLM's Rust frontend (cases: engine.error.stream).
    return b"data: " + _body(error, "server_error", "server_error") + b"\n\n"


def _body(error: BaseException, code: int | str, kind: str) -> bytes:
    param = error.param if isinstance(error, RequestError) else None
    return msgspec.json.encode(_Body(_Info(_message(error), kind, param, code)))


def _message(error: BaseException) -> str:
    if isinstance(error, RequestError):
        return _with_values(error) if type(error) is RequestError else error.message
    if isinstance(error, EngineDeadError):
        return str(error) or "The engine is dead."
    if isinstance(error, WorkerError):
        return str(error)
    return "Internal server error"


def _with_values(error: RequestError) -> str:
    """The message, then the field and the value that were refused, in vLLM's form."""
    extras = [f"parameter={error.param}"] if error.param is not None else []
    if error.value is not None:
        value = str(error.value)
        extras.append("value=" + (value if len(value) <= _VALUE_CHARS else value[:_VALUE_CHARS] + "..."))
    return f"{error.message} ({', '.join(extras)})" if extras else error.message
