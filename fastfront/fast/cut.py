"""Cuts one field's value out of the JSON of an object, without reading the rest. Pure twin of `cut_native.pyx`."""

from __future__ import annotations

import re

_TOKEN = re.compile(rb'"(?:[^"\\]*(?:\\.[^"\\]*)*")?|[\[\]{}]', re.DOTALL)
_SPACE = b" \n\r\t"


def cut_field(json: bytes, key: bytes) -> tuple[bytes, bytes] | None:
    """What stands around the first value of `key` (with its quotes) at the object's first level, and the value.

    None where there is no such text, list or object. That both are JSON is for their readers to see.
    """
    if not json.startswith(b"{"):
        return None
    depth = 0
    for found in _TOKEN.finditer(json):
        token = found[0]
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return None
        elif token == b'"':
            return None  # it is not closed
        elif depth == 1 and token == key:
            behind = json[found.end() :].lstrip(_SPACE)
            if behind.startswith(b":"):
                value = behind[1:].lstrip(_SPACE)
                return _cut(json, len(json) - len(value))
    return None


def _cut(json: bytes, begin: int) -> tuple[bytes, bytes] | None:
    if json[begin : begin + 1] not in (b'"', b"{", b"["):
        return None
    depth = 0
    for found in _TOKEN.finditer(json, begin):
        token = found[0]
        if token == b'"':
            return None
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
        if depth == 0:
            return json[:begin] + json[found.end() :], json[begin : found.end()]
    return None
