"""Reads the words of a command line against a table of flags.

Not argparse, because words that the table does not know belong to the engine and must come out untouched, in order.
As in vLLM's own parser `-` and `_` are the same in a name, `--no-x` turns a switch off and `--x.a.b 1` sets a key of an
object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fastfront.cli.flags import KINDS, Flag
from fastfront.errors import ConfigError

_NUMBER = re.compile(r"-\d+(\.\d+)?$")


class Words(NamedTuple):
    """`values` by flag name; `written` how each was spelled; `unknown` flags with their values; `rest` after `--`."""

    values: dict[str, Any]
    written: dict[str, str]
    unknown: list[str]
    rest: list[str]


def read_words(argv: Sequence[str], flags: Iterable[Flag]) -> Words:
    """Raises ConfigError for a missing or wrong value and for a word that belongs to no flag."""
    table = {spelling: flag for flag in flags for spelling in (flag.option, *flag.aliases)}
    out = Words({}, {}, [], [])
    words = list(argv)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            out.rest.extend(words[at:])
            break
        if not _is_flag(word):
            raise ConfigError(f"unexpected argument {word!r}")
        name, equals, attached = word.partition("=")
        following = 0
        while not equals and at + following < len(words) and not _is_flag(words[at + following]):
            following += 1
        given = [attached] if equals else words[at : at + following]
        base, _, path = _dashed(name).partition(".")
        flag, off = _find(base, table)
        if flag is None:
            out.unknown.append(word)
            taken = following
            out.unknown.extend(given if not equals else [])
        else:
            out.written[flag.name] = base
            taken = _take(out.values, flag, base, path, off, given, equals != "")
        at += 0 if equals else taken
    return out


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


def _dashed(name: str) -> str:
    """The name with dashes; the keys after a dot stay as they are."""
    base, dot, path = name.partition(".")
    return (base.replace("_", "-") if base.startswith("--") else base) + dot + path


def _find(base: str, table: dict[str, Flag]) -> tuple[Flag | None, bool]:
    flag = table.get(base)
    if flag is None and base.startswith("--no-"):
        flag = table.get("--" + base[5:])
        if flag is not None and KINDS[flag.kind].arity == "switch":
            return flag, True
        return None, False
    return flag, False


def _take(
    values: dict[str, Any], flag: Flag, spelled: str, path: str, off: bool, given: list[str], equals: bool
) -> int:
    """Puts the flag's value into `values`; how many of the `given` words it took (`equals`: it must take the one)."""
    kind = KINDS[flag.kind]
    if path:
        if flag.kind != "object" or not given:
            raise ConfigError(f"{spelled}.{path} {'needs a value' if flag.kind == 'object' else 'is not an option'}")
        _set_key(values, flag, path, given[0])
        return 1
    if kind.arity == "switch":
        if off:
            if equals:
                raise ConfigError(f"{spelled} takes no value, but {flag.shown(given[0])} is given")
            values[flag.name] = False
            return 0
        says = bool(given) and (equals or given[0].lower() in ("true", "false"))
        values[flag.name] = _read(flag, given[0], spelled) if says else True
        return int(says)
    if kind.arity == "words":
        if not given:
            raise ConfigError(f"{spelled} needs at least one value")
        values[flag.name] = flag.check(list(given), spelled)
        return len(given)
    if not given:
        if kind.arity == "optional":
            values[flag.name] = True
            return 0
        raise ConfigError(f"{spelled} needs a value")
    values[flag.name] = flag.check(_read(flag, given[0], spelled), spelled)
    return 1


def _read(flag: Flag, word: str, spelled: str) -> Any:
    kind = KINDS[flag.kind]
    try:
        return kind.read(word)
    except (ValueError, KeyError, OverflowError, RecursionError):
        raise ConfigError(f"{spelled} must be {kind.says}, not {flag.shown(word)}") from None


def _set_key(values: dict[str, Any], flag: Flag, path: str, word: str) -> None:
    """`--x.a.b word`: the word is JSON where it can be read as such, else a string."""
    try:
        value = json.loads(word)
    except RecursionError:
        raise ConfigError(f"{flag.option}.{path} is nested too deeply") from None
    except ValueError:
        value = word
    inner = values.setdefault(flag.name, {})
    *keys, last = path.split(".")
    for key in keys:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{flag.option}.{path}: {key} is not an object")
    inner[last] = value
