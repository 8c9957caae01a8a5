"""Looks at the first character of a text to see what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastfront.parse.edges import WHITE

if TYPE_CHECKING:
    from fastfront.parse.machine import Machine


class Peek:
    """Leads to the state named by the text's first character that is not white space, with all of the text."""

    def __init__(self, host: Machine, choices: Mapping[str, str]) -> None:
        self.failed = False
        self.to = ""
        self.nest = None
        self._choices = choices
        self._held: list[str] = []

    def feed(self, text: str) -> str | None:
        """Takes white space; else all is left over."""
        first = text.lstrip(WHITE)[:1]
        if not first:
            self._held.append(text)
            return None
        self.to = self._choices.get(first, self._choices.get("", ""))
        self.failed = not self.to
        if self.failed:
            return text
        return self.given_back() + text

    def given_back(self) -> str:
        """The white space."""
        held, self._held = "".join(self._held), []
        return held

    def finish(self) -> None:
        """Nothing to decide."""
