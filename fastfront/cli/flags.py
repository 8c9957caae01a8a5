"""What a flag is: its name, the kind of value it takes, and what becomes of it. The flags are in `flags_table.py`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fastfront.env import LEVELS
from fastfront.errors import ConfigError

#: supported: honoured. refused: known, an error unless it has its default. no effect: there is nothing here that it
#: could change, one warning at start. engine: the engine's business, passed on to it.
Status = Literal["supported", "refused", "no effect", "engine"]


class Kind(NamedTuple):
    """A type of value: in words, from one word of the command line (ValueError), and whether a JSON value is one."""

    says: str
    read: Callable[[str], Any]
    fits: Callable[[Any], bool]
    arity: Literal["one", "optional", "switch", "words"] = "one"


_UNITS = {"k": 1000, "m": 1000**2, "K": 1 << 10, "M": 1 << 20}


def _whole(low: int, high: int | None = None) -> Kind:
    says = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"

    def fits(value: Any) -> bool:
        return type(value) is int and value >= low and (high is None or value <= high)

    return Kind(says, int, fits)


def _length(word: str) -> int:
    """A number of tokens: a small letter counts in thousands, a capital one in 1024s."""
    unit = _UNITS.get(word[-1:], 1)
    number = float(word[:-1] if unit > 1 else word) * unit
    if number != int(number):
        raise ValueError(word)
    return int(number)


def _boolean(word: str) -> bool:
    return {"true": True, "false": False}[word.lower()]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_keys(value: Any) -> bool:
    return isinstance(value, str) or _is_texts(value)


def _number(low: float, high: float = math.inf, *, above: bool = False, below: bool = False) -> Kind:
    """`above`, `below`: the bound itself is none. Infinity is a number where nothing else bounds it."""
    says = "a number" if low == -math.inf else f"a number {'above' if above else 'of at least'} {low:g}"
    if high < math.inf:
        says += f" and {'below' if below else 'at most'} {high:g}"

    def fits(value: Any) -> bool:
        good = type(value) in (int, float) and not math.isnan(value) and low <= value <= high
        return good and not (above and value == low) and not (below and value == high)

    return Kind(says, float, fits)


def _list_of(one: Kind) -> Kind:
    """Values with commas between them."""

    def fits(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(one.fits(item) for item in value)

    def read(word: str) -> list[Any]:
        return [one.read(part) for part in word.split(",")]

    return Kind(f"a list with commas, each {one.says}", read, fits)


def _is_spread(value: Any) -> bool:
    below_one = _number(0, 1, below=True).fits
    if isinstance(value, dict):
        return set(value) <= {"input", "output"} and all(map(below_one, value.values()))
    return below_one(value)


def _is_pairs(sign: str) -> Callable[[Any], bool]:
    return lambda value: _is_texts(value) and all(text.partition(sign)[0] and sign in text for text in value)


KINDS: dict[str, Kind] = {
    "text": Kind("a string", str, lambda value: isinstance(value, str)),
    "switch": Kind("true or false", _boolean, lambda value: isinstance(value, bool), "switch"),
    "natural": _whole(0),
    "positive": _whole(1),
    "integer": _whole(-1),
    "port": _whole(0, 65535),
    "verify": _whole(0, 2),
    "level": Kind(f"one of {', '.join(LEVELS)}", str.upper, lambda value: isinstance(value, str) and value in LEVELS),
    "strictness": Kind(
        "auto, function or parameter", str, lambda value: value in ("auto", "function", "parameter")
    ),
    "token": Kind("a string or true", str, lambda value: isinstance(value, str | bool), "optional"),
    "length": _whole(1)._replace(says="a whole number of at least 1, also as 32k (32000) or 32K (32768)", read=_length),
    "object": Kind("a JSON object", json.loads, lambda value: isinstance(value, dict)),
    "texts": Kind("a JSON list of strings", json.loads, _is_texts),
    "words": Kind("a list of strings", str, _is_texts, "words"),
    "keys": Kind("a string or a list of strings", str, _is_keys, "words"),
    "anything": Kind("any value", str, lambda value: True),
    "many": Kind("any values", str, lambda value: True, "words"),
    "number": _number(-math.inf),
    "decimal": _number(0),
    "rate": _number(0, above=True),
    "share": _number(0, 1),
    "fraction": _number(0, 1, above=True),
    "spread": Kind('a number of at least 0 and below 1, or {"input": ..., "output": ...}', json.loads, _is_spread),
    "percentiles": _list_of(_number(0, 100)),
    "rates": _list_of(_number(0, above=True)),
    "counts": _list_of(_whole(1)),
    "names": _list_of(Kind("a name", str, lambda value: isinstance(value, str) and value != "")),
    "pairs": Kind("a list of KEY=VALUE", str, _is_pairs("="), "words"),
    "limits": Kind("a list of KEY:VALUE", str, _is_pairs(":"), "words"),
}


class Flag(NamedTuple):
    """One option. `name` is its key in --args-json; on the command line it is `--name` with dashes.

    `field` is `section.name` of config.Config (sections http, tls, cors, model, api, engine, inherited, config).
    `where`: both, serve (command line only) or frontend (the arguments that a supervisor gives beside --args-json).
    `null`: whether --args-json may say null. `to_engine`: `serve` hands the flag on to vLLM as well.
    """

    name: str
    kind: str
    default: Any
    status: Status
    help: str
    field: str = ""
    where: Literal["both", "serve", "frontend"] = "both"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    null: bool = False
    to_engine: bool = False
    secret: bool = False
    required: bool = False

    @property
    def option(self) -> str:
        """As it is written on the command line."""
        return "--" + self.name.replace("_", "-")

    def shown(self, value: Any) -> str:
        """The value as an error may name it."""
        return "(hidden)" if self.secret else repr(value)

    def check(self, value: Any, spelled: str) -> Any:
        """`value` if it is of the flag's kind; `spelled` is how the user wrote the flag. ConfigError otherwise."""
        kind = KINDS[self.kind]
        if not kind.fits(value):
            raise ConfigError(f"{spelled} must be {kind.says}, not {self.shown(value)}")
        if self.choices and value not in self.choices:
            raise ConfigError(f"{spelled} must be one of {', '.join(self.choices)}, not {self.shown(value)}")
        return value

    def is_default(self, value: Any) -> bool:
        """Whether `value` asks for nothing. A profiler configuration without a profiler does not (wire a.4)."""
        if self.name == "profiler_config" and isinstance(value, dict):
            return value.get("profiler") is None
        return value is None or value == self.default


def sort_out(
    values: dict[str, Any], flags: dict[str, Flag], spell: Callable[[Flag], str], hint: str
) -> tuple[str, ...]:
    """Refuses every refused flag of `values` in one ConfigError; returns a warning for each that has no effect."""
    refused: list[str] = []
    warnings: list[str] = []
    for name, value in values.items():
        flag = flags[name]
        if flag.is_default(value):
            continue
        if flag.status == "refused":
            refused.append(spell(flag))
        elif flag.status == "no effect":
            warnings.append(f"{spell(flag)} has no effect: {flag.help}")
    if refused:
        raise ConfigError(f"fastfront does not serve these options yet: {', '.join(sorted(refused))}. {hint}")
    return tuple(warnings)
