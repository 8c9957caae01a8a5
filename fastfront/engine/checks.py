"""What a value must be to go on the wire; RequestError names it, the value and the limit."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from fastfront.engine import wire
from fastfront.errors import RequestError
from fastfront.fast import pack_ids

INT64 = range(-(1 << 63), 1 << 63)
WIRE_INT = range(-(1 << 63), 1 << 64)


def require(good: bool, name: str, value: object, limit: object = None) -> None:
    """Refuses `value` unless it is `good`."""
    if not good:
        allowed = "" if limit is None else f" (allowed: {limit})"
        raise RequestError(f"{name} cannot be {value!r}{allowed}", param=name, value=value, limit=limit)


def text(name: str, value: object) -> None:
    """A string."""
    require(isinstance(value, str), name, value)


def flag(name: str, value: object) -> None:
    """A bool, and no number that equals one."""
    require(type(value) is bool, name, value)


def integer(name: str, value: object, allowed: range) -> None:
    """An integer, and no bool, of the range."""
    if type(value) is not int or value not in allowed:
        limit = f"an integer from {allowed.start} to {allowed.stop - 1}"
        raise RequestError(f"{name} must be {limit}, not {value!r}", param=name, value=value, limit=limit)


def number(name: str, value: object, low: float, high: float, above: bool = False) -> None:
    """A finite number from `low`, or `above` it, to `high`."""
    good = type(value) in (int, float) and math.isfinite(value) and low <= value <= high  # type: ignore[arg-type,operator]
    if not good or (above and value == low):
        limit = f"a finite number {'above' if above else 'from'} {low:g} to {high:g}"
        raise RequestError(f"{name} must be {limit}, not {value!r}", param=name, value=value, limit=limit)


def token_ids(name: str, ids: Collection[int], vocab_size: int) -> bytes:
    """Integers, and no bools, from 0 to `vocab_size` - 1: as msgpack."""
    packed = pack_ids(ids, vocab_size)
    if packed is None:
        wrong = next(value for value in ids if type(value) is not int or not 0 <= value < vocab_size)
        if type(wrong) is not int:
            raise RequestError(f"{name} holds something other than token ids", param=name)
        raise RequestError(
            f"{name} holds the token id {wrong}; the model has ids from 0 to {vocab_size - 1}",
            param=name, value=wrong, limit=vocab_size - 1,
        )  # fmt: skip
    return packed


def free_form(name: str, value: object, max_depth: int) -> None:
    """Any JSON-like value: integers in 64 bits, finite floats, string keys, objects and arrays `max_depth` deep."""
    for level in _levels(name, value, max_depth):
        for node in level:
            if isinstance(node, dict):
                require(all(isinstance(key, str) for key in node), name, "a key that is not a string")
            for child in _children(node):
                if not isinstance(child, (dict, list, tuple)):
                    _leaf(name, child)


def json_depth(name: str, json_text: str | None, max_depth: int) -> None:
    """A deep schema overflows the stack of the engine's grammar compiler; text that is not JSON it answers itself."""
    try:
        value = json.loads(json_text) if json_text is not None else None
    except RecursionError:
        require(False, name, "a value nested too deeply", f"{max_depth} levels")
    except ValueError:
        return
    if isinstance(value, (dict, list)):
        for _ in _levels(name, value, max_depth):
            pass


def convert(name: str, value: object, kind: type[Any]) -> Any:
    """The record that the value is to be."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RequestError(f"{name}: {error}", param=name) from error


def written(record: object) -> bytes:
    """The record as msgpack."""
    try:
        return wire.encode(record)
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"the request cannot be written for the engine: {error}") from error


def _levels(name: str, value: object, max_depth: int) -> Iterator[list[object]]:
    """The objects and arrays in `value`, level by level (so that no depth overflows the stack here)."""
    level: list[object] = [value]
    for _ in range(max_depth):
        yield level
        level = [child for node in level for child in _children(node) if isinstance(child, (dict, list, tuple))]
        if not level:
            return
    require(False, name, "a value nested too deeply", f"{max_depth} levels")


def _children(node: object) -> Iterable[object]:
    return node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else (node,)


def _leaf(name: str, value: object) -> None:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if type(value) is int:
        integer(name, value, WIRE_INT)
    else:
        number(name, value, -math.inf, math.inf)
