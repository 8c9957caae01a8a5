"""Finds the end of one JSON string, object or array that comes in pieces. Pure twin of `nest_native.pyx`.

Brackets count outside of strings, and only those of the value's own kind: what else is wrong in the JSON is the
reader's business.
"""

from __future__ import annotations

import re

_IN_STRING = re.compile(r'[^"\\]*')
_OUTSIDE = {'"': re.compile(r'[^"]*'), "{": re.compile(r'[^"{}]*'), "[": re.compile(r'[^"\[\]]*')}


class Nest:
    """One value; `opening` is its first character, one of `"{[`. Others raise ValueError."""

    def __init__(self, opening: str) -> None:
        if opening not in _OUTSIDE:
            raise ValueError(f"no JSON string, object or array begins with {opening!r}")
        self.done = False
        self._opening = opening
        self._outside = _OUTSIDE[opening]
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def take(self, text: str, at: int) -> int:
        """Where, from `at` on, the value's part of `text` ends; the value's first piece begins with its opening."""
        while at < len(text) and not self.done:
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                at = _end(_IN_STRING, text, at)
                if at == len(text):
                    break
                self._escaped = text[at] == "\\"
                self._in_string = self._escaped
                self.done = not self._in_string and self._opening == '"'
            else:
                at = _end(self._outside, text, at)
                if at == len(text):
                    break
                self._in_string = text[at] == '"'
                if not self._in_string:
                    self._depth += 1 if text[at] == self._opening else -1
                    self.done = self._depth == 0
            at += 1
        return at

    @property
    def state(self) -> tuple[bool, int, bool, bool]:
        """All that changes, to be set back to."""
        return self.done, self._depth, self._in_string, self._escaped

    @state.setter
    def state(self, state: tuple[bool, int, bool, bool]) -> None:
        self.done, self._depth, self._in_string, self._escaped = state


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match is not None else at
