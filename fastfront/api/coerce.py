"""The lax reading of a JSON value: what pydantic would accept, turned into what the declared type wants.

Only bodies that the strict decoder refused come here, so its cost does not matter. A value of the wrong type becomes a
Problem whose text is pydantic's, because clients read those.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
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


class Problem(NamedTuple):
    """One value that is not what its place wants."""

    kind: str
    loc: Location
    message: str
    value: object
    ctx: dict[str, object] | None = None


def body_error(problems: Sequence[Problem]) -> BodyError:
    """The error of a body with these problems (at least one); `param` is where the first one is."""
    count = len(problems)
    label = "error" if count == 1 else "errors"
    lines = [f"{count} validation {label}:"] + [f"  {_line(problem)}" for problem in problems[:_PROBLEMS]]
    if count > _PROBLEMS:
        lines.append(f"  ...and {count - _PROBLEMS} more {label}")
    return BodyError("\n".join(lines), param=_dotted(problems[0].loc))


def coerce(kind: mi.Type, value: Any, loc: Location, problems: list[Problem]) -> Any:
    """`value` as `kind`; what does not fit is added to `problems`."""
    match kind:
        case mi.AnyType():
            return value
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
    return ".".join(map(str, loc))


def _union(kind: mi.UnionType, value: Any, loc: Location, problems: list[Problem]) -> Any:
    if value is None and any(isinstance(member, mi.NoneType) for member in kind.types):
        return None
    members = [member for member in kind.types if not isinstance(member, mi.NoneType)]
    # the member of the value's own type goes first: "5" stays text where text is allowed
    members.sort(key=lambda member: not _is_of(member, value))
    found: list[Problem] = []
    for member in members:
        mine: list[Problem] = []
        result = coerce(member, value, loc, mine)
        if not mine:
            return result
        found += mine
    problems += found
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


def _bool(value: Any, loc: Location, problems: list[Problem]) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    if isinstance(value, str | int | float):
        message = "Input should be a valid boolean, unable to interpret input"
        problems.append(Problem("bool_parsing", loc, message, value))
    else:
        problems.append(Problem("bool_type", loc, "Input should be a valid boolean", value))
    return None


def _int(kind: mi.IntType, value: Any, loc: Location, problems: list[Problem]) -> int | None:
    number: int
    if isinstance(value, int):
        number = int(value)
    elif isinstance(value, float):
        if not value.is_integer():
            message = "Input should be a valid integer, got a number with a fractional part"
            problems.append(Problem("int_from_float", loc, message, value))
            return None
        number = int(value)
    elif isinstance(value, str):
        found = _INTEGER.fullmatch(value) if len(value) <= _INTEGER_DIGITS else None
        if found is None:
            message = "Input should be a valid integer, unable to parse string as an integer"
            problems.append(Problem("int_parsing", loc, message, value))
            return None
        number = int(found[1])
    else:
        problems.append(Problem("int_type", loc, "Input should be a valid integer", value))
        return None
    if kind.ge is not None and number < kind.ge:
        message = f"Input should be greater than or equal to {kind.ge}"
        problems.append(Problem("greater_than_equal", loc, message, value, {"ge": kind.ge}))
    elif kind.le is not None and number > kind.le:
        message = f"Input should be less than or equal to {kind.le}"
        problems.append(Problem("less_than_equal", loc, message, value, {"le": kind.le}))
    return number


def _float(value: Any, loc: Location, problems: list[Problem]) -> float | None:
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            message = "Input should be a valid number, unable to parse string as a number"
            problems.append(Problem("float_parsing", loc, message, value))
            return None
    problems.append(Problem("float_type", loc, "Input should be a valid number", value))
    return None


def _str(kind: mi.StrType, value: Any, loc: Location, problems: list[Problem]) -> str | None:
    if not isinstance(value, str):
        problems.append(Problem("string_type", loc, "Input should be a valid string", value))
        return None
    return value


def _list(kind: mi.ListType, value: Any, loc: Location, problems: list[Problem]) -> list[Any] | None:
    if not isinstance(value, list):
        problems.append(Problem("list_type", loc, "Input should be a valid list", value))
        return None
    return [coerce(kind.item_type, item, (*loc, at), problems) for at, item in enumerate(value)]


def _dict(kind: mi.DictType, value: Any, loc: Location, problems: list[Problem]) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        problems.append(Problem("dict_type", loc, "Input should be a valid dictionary", value))
        return None
    return {key: coerce(kind.value_type, item, (*loc, key), problems) for key, item in value.items()}


def _literal(kind: mi.LiteralType, value: Any, loc: Location, problems: list[Problem]) -> Any:
    if isinstance(value, str) and value in kind.values:
        return value
    problems.append(literal_problem(kind.values, value, loc))
    return None


def literal_problem(values: Sequence[object], value: object, loc: Location) -> Problem:
    """The problem of a value that is none of `values`."""
    names = [repr(known) for known in values]
    expected = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
    return Problem("literal_error", loc, f"Input should be {expected}", value, {"expected": expected})


def _struct(kind: mi.StructType, value: Any, loc: Location, problems: list[Problem]) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        problems.append(Problem("model_attributes_type", loc, message, value))
        return None
    known: dict[str, Any] = {}
    for field in kind.fields:
        name = field.encode_name
        if name in value:
            known[name] = coerce(field.type, value[name], (*loc, name), problems)
        elif field.required:
            problems.append(Problem("missing", (*loc, name), "Field required", value))
    return known


def read(model: type[msgspec.Struct], value: Any, loc: Location = ("body",)) -> dict[str, Any]:
    """The fields of `model` in a decoded body, coerced; BodyError names every value that does not fit."""
    problems: list[Problem] = []
    fields = coerce(mi.type_info(model), value, loc, problems)
    if problems:
        raise body_error(problems)
    result: dict[str, Any] = fields
    return result
