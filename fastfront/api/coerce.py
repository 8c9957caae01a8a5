"""The lax reading of a JSON value: what pydantic would accept, turned into what the declared type wants.

Only bodies that the strict decoder refused come here. A value of the wrong type becomes a Problem whose text is
pydantic's, because clients read those; one more than an answer shows ends the search. Long lists and objects are first
tried as they are: most of what is long is right, and what is wrong is somewhere else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, Union

import msgspec
from msgspec import Meta
from msgspec import inspect as mi

from fastfront.errors import BodyError

Location = tuple[str | int, ...]

_TRUE = frozenset(("1", "on", "t", "true", "y", "yes"))
_FALSE = frozenset(("0", "off", "f", "false", "n", "no"))
_INTEGER = re.compile(r"\s*([+-]?\d+)(\.0*)?\s*")
_INTEGER_DIGITS = 400
_INPUT_CHARS = 200
_PROBLEM_CHARS = 1000
_PROBLEMS = 10
#: Items of a list or an object that are tried in one go before each is looked at.
_PIECE = 64


class Problem(NamedTuple):
    """One value that is not what its place wants."""

    kind: str
    loc: Location
    message: str
    value: object
    ctx: dict[str, object] | None = None


class _Enough(Exception):
    """There are more problems than an answer shows."""


class Problems(list[Problem]):
    """What has been found wrong with a value."""

    def add(self, problem: Problem) -> None:
        """One more; ends the reading of the value where it is one too many."""
        self.append(problem)
        if len(self) > _PROBLEMS:
            raise _Enough


def body_error(problems: Sequence[Problem]) -> BodyError:
    """The error of a body with these problems (at least one); `param` is where the first one is."""
    count = len(problems)
    head = f"{count} validation {'error' if count == 1 else 'errors'}:"
    lines = [head if count <= _PROBLEMS else f"More than {_PROBLEMS} validation errors:"]
    lines += [f"  {_line(problem)}" for problem in problems[:_PROBLEMS]]
    if count > _PROBLEMS:
        lines.append("  ...and more")
    return BodyError("\n".join(lines), param=_dotted(problems[0].loc))


def coerce(kind: mi.Type, value: Any, loc: Location, problems: Problems) -> Any:
    """`value` as `kind`; what does not fit is added to `problems`."""
    match kind:
        case mi.AnyType():
            return value
        case mi.Metadata():
            return _not_text(kind, value, loc, problems)
        case mi.UnionType():
            return _union(kind, value, loc, problems)
        case mi.BoolType():
            return _bool(value, loc, problems)
        case mi.IntType():
            return _int(kind, value, loc, problems)
        case mi.FloatType():
            return _float(value, loc, problems)
        case mi.StrType():
            return _str(kind, value, loc, problems)
        case mi.ListType():
            return _list(kind, value, loc, problems)
        case mi.DictType():
            return _dict(kind, value, loc, problems)
        case mi.LiteralType():
            return _literal(kind, value, loc, problems)
        case mi.StructType():
            return _struct(kind, value, loc, problems)
    raise TypeError(f"no lax reading for {kind!r}")


def _line(problem: Problem) -> str:
    entry: dict[str, object] = {
        "type": problem.kind,
        "loc": _dotted(problem.loc),
        "msg": problem.message,
        "input": _summary(problem.value),
    }
    if problem.ctx is not None:
        entry["ctx"] = problem.ctx
    text = str(entry)
    return text if len(text) <= _PROBLEM_CHARS else text[:_PROBLEM_CHARS] + "...[truncated]"


def _summary(value: object) -> str:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    try:
        text = str(value)
    except ValueError:  # an integer of more digits than Python prints
        return f"<{type(value).__name__}>"
    return text if len(text) <= _INPUT_CHARS else text[:_INPUT_CHARS] + "...[truncated]"


def _dotted(loc: Location) -> str:
    return ".".join(str(part)[:_INPUT_CHARS] for part in loc)


def _not_text(kind: mi.Metadata, value: Any, loc: Location, problems: Problems) -> Any:
    """What vLLM looks at before pydantic does: a number written as text is none there."""
    if isinstance(value, str):
        problems.add(Problem("int_type", loc, "Input should be a valid integer", value))
        return None
    return coerce(kind.type, value, loc, problems)


def _union(kind: mi.UnionType, value: Any, loc: Location, problems: Problems) -> Any:
    if value is None and any(isinstance(member, mi.NoneType) for member in kind.types):
        return None
    members = [member for member in kind.types if not isinstance(member, mi.NoneType)]
    # the member of the value's own type goes first: "5" stays text where text is allowed
    members.sort(key=lambda member: not _is_of(member, value))
    found: list[Problem] = []
    for member in members:
        mine = Problems()
        try:
            result = coerce(member, value, loc, mine)
        except _Enough:
            pass
        else:
            if not mine:
                return result
        found += mine
    for problem in found:
        problems.add(problem)
    return None


def _is_of(kind: mi.Type, value: Any) -> bool:
    match kind:
        case mi.BoolType():
            return isinstance(value, bool)
        case mi.IntType():
            return type(value) is int
        case mi.FloatType():
            return isinstance(value, float)
        case mi.StrType():
            return isinstance(value, str)
        case mi.ListType():
            return isinstance(value, list)
        case mi.DictType() | mi.StructType():
            return isinstance(value, dict)
    return False


def _bool(value: Any, loc: Location, problems: Problems) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    if isinstance(value, str | int | float):
        message = "Input should be a valid boolean, unable to interpret input"
        problems.add(Problem("bool_parsing", loc, message, value))
    else:
        problems.add(Problem("bool_type", loc, "Input should be a valid boolean", value))
    return None


def _int(kind: mi.IntType, value: Any, loc: Location, problems: Problems) -> int | None:
    number: int
    if isinstance(value, int):
        number = int(value)
    elif isinstance(value, float):
        if not value.is_integer():
            message = "Input should be a valid integer, got a number with a fractional part"
            problems.add(Problem("int_from_float", loc, message, value))
            return None
        number = int(value)
    elif isinstance(value, str):
        found = _INTEGER.fullmatch(value) if len(value) <= _INTEGER_DIGITS else None
        if found is None:
            message = "Input should be a valid integer, unable to parse string as an integer"
            problems.add(Problem("int_parsing", loc, message, value))
            return None
        number = int(found[1])
    else:
        problems.add(Problem("int_type", loc, "Input should be a valid integer", value))
        return None
    if kind.ge is not None and number < kind.ge:
        message = f"Input should be greater than or equal to {kind.ge}"
        problems.add(Problem("greater_than_equal", loc, message, value, {"ge": kind.ge}))
    elif kind.le is not None and number > kind.le:
        message = f"Input should be less than or equal to {kind.le}"
        problems.add(Problem("less_than_equal", loc, message, value, {"le": kind.le}))
    return number


def _float(value: Any, loc: Location, problems: Problems) -> float | None:
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            message = "Input should be a valid number, unable to parse string as a number"
            problems.add(Problem("float_parsing", loc, message, value))
            return None
    problems.add(Problem("float_type", loc, "Input should be a valid number", value))
    return None


def _str(kind: mi.StrType, value: Any, loc: Location, problems: Problems) -> str | None:
    if not isinstance(value, str):
        problems.add(Problem("string_type", loc, "Input should be a valid string", value))
        return None
    return value


def _list(kind: mi.ListType, value: Any, loc: Location, problems: Problems) -> list[Any] | None:
    if not isinstance(value, list):
        problems.add(Problem("list_type", loc, "Input should be a valid list", value))
        return None
    if len(value) < _PIECE:
        return [coerce(kind.item_type, item, (*loc, at), problems) for at, item in enumerate(value)]
    items: list[Any] = []
    piece_type: Any = list[_declared(kind.item_type)]  # type: ignore[misc]
    for begin in range(0, len(value), _PIECE):
        piece = value[begin : begin + _PIECE]
        try:
            items += msgspec.convert(piece, piece_type)
        except msgspec.ValidationError:
            items += [coerce(kind.item_type, item, (*loc, at), problems) for at, item in enumerate(piece, begin)]
    return items


def _dict(kind: mi.DictType, value: Any, loc: Location, problems: Problems) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        problems.add(Problem("dict_type", loc, "Input should be a valid dictionary", value))
        return None
    if len(value) < _PIECE:
        return {key: coerce(kind.value_type, item, (*loc, key), problems) for key, item in value.items()}
    known: dict[str, Any] = {}
    piece_type: Any = dict[str, _declared(kind.value_type)]  # type: ignore[misc]
    entries = iter(value.items())
    while piece := dict(islice(entries, _PIECE)):
        try:
            known |= msgspec.convert(piece, piece_type)
        except msgspec.ValidationError:
            known |= {key: coerce(kind.value_type, item, (*loc, key), problems) for key, item in piece.items()}
    return known


def _literal(kind: mi.LiteralType, value: Any, loc: Location, problems: Problems) -> Any:
    if isinstance(value, str) and value in kind.values:
        return value
    problems.add(literal_problem(kind.values, value, loc))
    return None


def literal_problem(values: Sequence[object], value: object, loc: Location) -> Problem:
    """The problem of a value that is none of `values`."""
    names = [repr(known) for known in values]
    expected = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
    return Problem("literal_error", loc, f"Input should be {expected}", value, {"expected": expected})


def _struct(kind: mi.StructType, value: Any, loc: Location, problems: Problems) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        problems.add(Problem("model_attributes_type", loc, message, value))
        return None
    known: dict[str, Any] = {}
    for field in kind.fields:
        name = field.encode_name
        if name in value:
            known[name] = coerce(field.type, value[name], (*loc, name), problems)
        elif field.required:
            problems.add(Problem("missing", (*loc, name), "Field required", value))
    return known


def _declared(kind: mi.Type) -> Any:
    """The Python type that `kind` tells of."""
    match kind:
        case mi.Metadata():
            return _declared(kind.type)
        case mi.UnionType():
            return Union[tuple(map(_declared, kind.types))]  # noqa: UP007  (of a tuple)
        case mi.IntType():
            return Annotated[int, Meta(ge=kind.ge, le=kind.le)]
        case mi.ListType():
            return list[_declared(kind.item_type)]  # type: ignore[misc]
        case mi.DictType():
            return dict[str, _declared(kind.value_type)]  # type: ignore[misc]
        case mi.LiteralType():
            return Literal[kind.values]
        case mi.StructType():
            return kind.cls
        case mi.BoolType():
            return bool
        case mi.FloatType():
            return float
        case mi.StrType():
            return str
        case mi.NoneType():
            return None
    return Any


_type_info = cache(mi.type_info)


def read(model: type[msgspec.Struct], value: Any, loc: Location = ("body",)) -> dict[str, Any]:
    """The fields of `model` in a decoded body, coerced; BodyError names the first values that do not fit."""
    problems = Problems()
    fields: dict[str, Any] = {}
    with suppress(_Enough):
        fields = coerce(_type_info(model), value, loc, problems)
    if problems:
        raise body_error(problems)
    return fields
