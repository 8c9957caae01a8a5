"""Request bodies: JSON to a struct, strictly and fast; what that refuses is read again as pydantic would."""

from __future__ import annotations

import json
import logging
from typing import Any, Generic, TypeVar, cast

import msgspec

from fastfront.api.coerce import Location, Problem, body_error, read
from fastfront.errors import BodyError
from fastfront.flow import HttpRequest

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=msgspec.Struct)

_WARNED_NAMES = 256
_warned: set[str] = set()


class BodyReader(Generic[Model]):
    """Reads the bodies of one endpoint. `model` forbids unknown fields; they are dropped, with one warning per name."""

    def __init__(self, model: type[Model]) -> None:
        if not model.__struct_config__.forbid_unknown_fields:
            raise TypeError(f"{model.__name__} must forbid unknown fields: that is how they are noticed")
        lenient = msgspec.defstruct(
            model.__name__, [], bases=(model,), forbid_unknown_fields=False, kw_only=True, module=model.__module__
        )
        self._model = cast("type[Model]", lenient)
        self._strict = msgspec.json.Decoder(model)
        self._lenient = msgspec.json.Decoder(self._model)
        self._names = frozenset(model.__struct_encode_fields__)

    def read(self, request: HttpRequest) -> Model:
        """The body; BodyError if it is not JSON of the right shape."""
        _check_content_type(request.headers.get("content-type", ""))
        try:
            return self._strict.decode(request.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            pass
        try:
            body = self._lenient.decode(request.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return self._read_lax(request.body)
        self._warn(msgspec.json.decode(request.body, type=dict[str, msgspec.Raw]))
        return body

    def read_value(self, value: Any, loc: Location) -> Model:
        """The same of a value that lies at `loc` in another endpoint's body."""
        return self._convert(value, loc)

    def _read_lax(self, data: bytes) -> Model:
        return self._convert(_parse(data), ("body",))

    def _convert(self, value: Any, loc: Location) -> Model:
        fields = read(self._model, value, loc)
        self._warn(value)
        try:
            return msgspec.convert(fields, self._model)
        except msgspec.ValidationError as error:
            raise BodyError(f"1 validation error:\n  {error}", param="body") from None

    def _warn(self, body: dict[str, Any]) -> None:
        """Unknown fields change nothing, as in vLLM, but they are not passed over in silence."""
        for name in body.keys() - self._names - _warned:
            if len(_warned) < _WARNED_NAMES:
                _warned.add(name)
                logger.warning("request field %r is not known and has no effect", name[:100])


def _check_content_type(content_type: str) -> None:
    if content_type != "application/json" and content_type.split(";", 1)[0].lower() != "application/json":
        raise BodyError("1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed")


def _parse(data: bytes) -> Any:
    if not data:
        raise body_error([Problem("missing", ("body",), "Field required", None)])
    try:
        value = json.loads(data)
    except json.JSONDecodeError as error:
        problem = Problem("json_invalid", ("body", error.pos), "JSON decode error", {}, {"error": error.msg})
        raise body_error([problem]) from None
    except (ValueError, RecursionError):
        raise BodyError("There was an error parsing the body") from None
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # a lone surrogate is no text: neither a tokenizer nor the wire can take it
        raise BodyError("The body has a lone surrogate in a string", param="body") from None
    return value
