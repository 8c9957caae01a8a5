"""Every error that fastfront raises on purpose, with the offending values as fields.

Only `api/errors.py` knows which HTTP status an error becomes, and only `cli` which exit code.
"""

from __future__ import annotations


class FastfrontError(Exception):
    """The root of the tree."""


class ConfigError(FastfrontError):
    """A flag, a setting or an argument is wrong: the process ends with exit code 2."""


class StartError(FastfrontError):
    """The process cannot start or go on (no model, no engine in time): it ends with exit code 1."""


class RequestError(FastfrontError):
    """The client's request cannot be served as it is.

    `param` names the field, `value` is what was sent, `limit` what is allowed; each may be None.
    """

    def __init__(
        self, message: str, *, param: str | None = None, value: object = None, limit: object = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.value = value
        self.limit = limit


class BodyError(RequestError):
    """The body is not JSON, not UTF-8, or a field of it has the wrong type."""


class UnsupportedError(RequestError):
    """A field or an ability that fastfront knows of and does not serve."""


class ModelNotFoundError(RequestError):
    """The request names a model that is not served."""


class UnauthorizedError(RequestError):
    """No key, or a wrong one."""


class RouteNotFoundError(RequestError):
    """No route has this path."""


class MethodNotAllowedError(RequestError):
    """The path exists, not for this method; `allowed` lists those it has."""

    def __init__(self, message: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class PayloadTooLargeError(RequestError):
    """The body is longer than the limit (bytes)."""


class MalformedRequestError(RequestError):
    """The bytes are not HTTP as it must be (400); the connection ends with the answer."""


class HeadersTooLargeError(RequestError):
    """The request line and headers are longer, or more, than the limit (431)."""


class RequestTimeoutError(RequestError):
    """The request did not arrive whole in time (408)."""


class EngineError(FastfrontError):
    """The engine could not do what was asked of it; the request is at no fault."""


class EngineDeadError(EngineError):
    """The engine is gone: nothing can be generated until it is back."""


class EngineRequestError(EngineError):
    """The engine ended one request with an error; others go on."""


class WireError(EngineError):
    """A message from the engine that is not what the wire says; `offset` is where in it (bytes)."""

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class WorkerError(FastfrontError):
    """Another of the processes that serve the port does not do its part of this request."""


class NativeMissingError(ConfigError):
    """FASTFRONT_NATIVE=1 was asked for and the compiled modules are not there."""
