"""JSON has integers of any size, the engine's wire has 64 bits."""

from __future__ import annotations

from typing import Any

from fastfront.errors import RequestError


def check_64_bits(value: Any, param: str) -> None:
    """RequestError if an integer anywhere in the JSON value is outside -2**63 .. 2**64 - 1."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, int) and not -(2**63) <= item < 2**64:
            raise RequestError(f"{param} integers must be between -2**63 and 2**64 - 1.", param=param)
