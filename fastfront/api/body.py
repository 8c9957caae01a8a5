"""Request bodies: JSON to a struct, strictly and fast; what that refuses is read again as pydantic would."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar, cast

import msgspec

from fastfront.api.coerce import Location, Problem, body_error, read
from fastfront.api.unknown import tell, unknown_fields
from fastfront.api.work import settled
from fastfront.errors import BodyError
from fastfront.flow import Handler, HttpRequest, Reply, Running, Work

Model = TypeVar("Model", bound=msgspec.Struct)

#: Bytes of a refused body that the event loop reads again at most.
LIGHT = 64 << 10
# One thread, so that however many such bodies there are, the event loop shares the interpreter with one of them.
_pool = ThreadPoolExecutor(1, thread_name_prefix="body")

#: What msgspec raises for JSON that it does not take.
REFUSED = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class BodyReader(Generic[Model]):
    """Reads the bodies of one endpoint. `model` forbids unknown fields; they are dropped, or with `strict` refused."""

    def __init__(self, model: type[Model], strict: bool = False) -> None:
        if not model.__struct_config__.forbid_unknown_fields:
            raise TypeError(f"{model.__name__} must forbid unknown fields: that is how they are noticed")
        lenient = msgspec.defstruct(
            model.__name__, [], bases=(model,), forbid_unknown_fields=False, kw_only=True, module=model.__module__
        )
        self._model = cast("type[Model]", lenient)
        self._strict = msgspec.json.Decoder(model)
        self._lenient = msgspec.json.Decoder(self._model)
        self._refuses = strict

    def type_of(self, field: str) -> Any:
        """The type of a field of the model."""
        return next(known.type for known in msgspec.structs.fields(self._model) if known.name == field)

    def serve(self, handle: Callable[[HttpRequest, Reply, Model], Work | Running | None]) -> Handler:
        """The handler that reads the body and gives it to `handle`."""
        return lambda request, reply: self.start(request, reply, handle)

    def start(
        self, request: HttpRequest, reply: Reply, handle: Callable[[HttpRequest, Reply, Model], Work | Running | None]
    ) -> Work | Running | None:
        """Reads the body and gives it to `handle`; a big one that is not right, in a worker thread."""
        body = self._strictly(request)
        if body is None:
            if len(request.body) > LIGHT:
                return self._later(request, reply, handle)
            body = self._again(request.body)
        return handle(request, reply, body)

    async def _later(
        self, request: HttpRequest, reply: Reply, handle: Callable[[HttpRequest, Reply, Model], Work | Running | None]
    ) -> Running | None:
        body = await asyncio.get_running_loop().run_in_executor(_pool, self._again, request.body)
        return await settled(handle(request, reply, body))

    def read(self, request: HttpRequest) -> Model:
        """The body, whatever its size; BodyError if it is not JSON of the right shape."""
        body = self._strictly(request)
        return self._again(request.body) if body is None else body

    def _strictly(self, request: HttpRequest) -> Model | None:
        check_content_type(request.headers)
        try:
            return self._strict.decode(request.body)
        except REFUSED:
            return None

    def _again(self, data: bytes) -> Model:
        """What the strict decoder refused."""
        try:
            body = self._lenient.decode(data)
            fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            data.decode()  # of unknown fields nobody else reads the values
        except REFUSED:
            return self._convert(_parse(data), ("body",))
        self._tell(fields)  # what is within known fields was right
        return body

    def read_value(self, value: Any, loc: Location) -> Model:
        """The same of a value that lies at `loc` in another endpoint's body."""
        return self._convert(value, loc)

    def _convert(self, value: Any, loc: Location) -> Model:
        fields = read(self._model, value, loc)
        self._tell(value)
        try:
            return msgspec.convert(fields, self._model)
        except msgspec.ValidationError as error:
            raise BodyError(f"1 validation error:\n  {error}", param="body") from None

    def _tell(self, value: dict[str, Any]) -> None:
        tell(unknown_fields(self._model, value), self._refuses)


def check_content_type(headers: Mapping[str, str]) -> None:
    """BodyError for a body that is not said to be JSON."""
    content_type = headers.get("content-type", "")
    if content_type != "application/json" and content_type.split(";", 1)[0].lower() != "application/json":
        raise BodyError("1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed")


def _parse(data: bytes) -> Any:
    if not data:
        raise body_error([Problem("missing", ("body",), "Field required", None)])
    try:
        text = data.decode(json.detect_encoding(data))
        value = json.loads(text)
    except json.JSONDecodeError as error:
        problem = Problem("json_invalid", ("body", error.pos), "JSON decode error", {}, {"error": error.msg})
        raise body_error([problem]) from None
    except (ValueError, RecursionError):
        raise BodyError("There was an error parsing the body") from None
    try:
        # a lone surrogate is no text: neither a tokenizer nor the wire can take it
        if _SURROGATE.search(text) is not None:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BodyError("The body has a lone surrogate in a string", param="body") from None
    return value
