"""Request fields that nobody knows: told once in the log, as they change nothing, or refused by a strict server.

The strict decoder notices them for nothing, as the structs of a body forbid them; only then are they looked for here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

import msgspec
from msgspec import inspect as mi

from fastfront.errors import RequestError

logger = logging.getLogger(__name__)

Location = tuple[str | int, ...]

#: Names that are told of one request, characters of each, and names that are told at all.
_TOLD, _CHARS, _KEPT = 10, 100, 256
_warned: set[str] = set()


def unknown_fields(model: type[msgspec.Struct], value: Any) -> Iterator[Location]:
    """Where in a JSON value that should be a `model` names stand that it has not, at any level that has names."""
    return _walk(mi.type_info(model), value, ())


def tell(found: Iterable[Location], strict: bool) -> None:
    """Logs each name the first time it comes; RequestError instead where the server is `strict` and there is one."""
    if strict:
        names = [_dotted(loc) for loc in islice(found, _TOLD)]
        if names:
            listed = ", ".join(f"`{name}`" for name in names)
            raise RequestError(f"Request fields that are not known: {listed}.", param=names[0])
        return
    for loc in found:
        if len(_warned) >= _KEPT:
            return
        name = _dotted(part for part in loc if isinstance(part, str))
        if name not in _warned:
            _warned.add(name)
            logger.warning("request field %r is not known and has no effect", name)


def unknown_names(value: Any, known: frozenset[str], loc: Location) -> Iterator[Location]:
    """Where in an object that lies at `loc` names stand that are not `known`."""
    if isinstance(value, Mapping) and not value.keys() <= known:
        for name in value:
            if name not in known:
                yield (*loc, name)


def _dotted(loc: Iterable[str | int]) -> str:
    return ".".join(str(part)[:_CHARS] for part in loc)


def _walk(kind: mi.Type, value: Any, loc: Location) -> Iterator[Location]:
    match kind:
        case mi.UnionType():
            for member in kind.types:
                yield from _walk(member, value, loc)
        case mi.ListType() if isinstance(value, list) and _has_names(kind.item_type):
            for at, item in enumerate(value):
                yield from _walk(kind.item_type, item, (*loc, at))
        case mi.StructType() if isinstance(value, dict):
            fields = _fields(kind.cls)
            for name, item in value.items():
                if name not in fields:
                    yield (*loc, name)
                elif (inner := fields[name]) is not None:
                    yield from _walk(inner, item, (*loc, name))


@cache
def _fields(model: type[msgspec.Struct]) -> dict[str, mi.Type | None]:
    """The names of a struct's fields, and what those are that have names within."""
    kind = mi.type_info(model)
    assert isinstance(kind, mi.StructType)
    return {field.encode_name: field.type if _has_names(field.type) else None for field in kind.fields}


def _has_names(kind: mi.Type) -> bool:
    match kind:
        case mi.UnionType():
            return any(map(_has_names, kind.types))
        case mi.ListType():
            return _has_names(kind.item_type)
    return isinstance(kind, mi.StructType)
