"""Reads `--args-json`, the options of `vllm serve` that differ from their defaults (wire a.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastfront.cli.flags import Flag
from fastfront.errors import ConfigError


def read_args(args: dict[str, Any], flags: Iterable[Flag]) -> dict[str, Any]:
    """The values of the flags that the table knows; others are the engine's and are left out.

    A null counts as absent where the flag may be null. Raises one ConfigError naming every key of the wrong type.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for flag in flags:
        if flag.name not in args:
            if flag.required:
                wrong.append(f"{flag.name!r} is missing")
            continue
        value = args[flag.name]
        if value is None and (flag.null or flag.status == "refused"):
            continue
        try:
            values[flag.name] = flag.check(value, repr(flag.name))
        except ConfigError as error:
            # What is refused is refused by its name, whatever its value.
            if flag.status == "refused":
                values[flag.name] = value
            else:
                wrong.append(str(error))
    if wrong:
        raise ConfigError(f"--args-json: {'; '.join(wrong)}")
    return values
