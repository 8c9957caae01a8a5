"""Writes a call's arguments as JSON while their raw text comes: keys and values of XML-like formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastfront.parse.edges import Edge
from fastfront.parse.schema import coerce, dump, load

if TYPE_CHECKING:
    from fastfront.parse.machine import Machine

_STRING = frozenset({"string"})


class Writer:
    """Strings go out as they come, all else when its value is whole; the tool's schema says what is a string."""

    def __init__(self, host: Machine) -> None:
        self._host = host
        self._function = ""
        self._empty = True
        self._types: frozenset[str] | None = _STRING
        #: Whether the open value goes out as it comes, as a JSON string.
        self.streams = False
        #: The open value's edges.
        self.edge = Edge()
        self._parts: list[str] = []

    def begin(self, function: str) -> None:
        """The arguments of a call of `function` follow."""
        self._function = function
        self._empty = True

    def key(self, key: str, edge: Edge, kind: str | None = None) -> None:
        """A value follows, with `edge` around it. `kind` is what the model says of it: "string", "json" or a type."""
        types: frozenset[str] | None = self._host.schemas.types(self._function, key)
        if self._host.schemas.of(self._function, key) is None and kind is not None:
            types = None if kind == "json" else frozenset({kind})
        self._types = types
        self.streams = types == _STRING
        self.edge = edge
        self._parts = []
        opening = "{" if self._empty else ", "
        self._empty = False
        self._host.arguments_text(f"{opening}{dump(key)}: " + ('"' if self.streams else ""))

    def value(self, text: str) -> None:
        """A piece of the value."""
        text = self.edge.feed(text)
        if self.streams:
            self._host.arguments_text(dump(text)[1:-1])
        else:
            self._parts.append(text)

    def end_value(self) -> None:
        """The value is whole."""
        if self.streams:
            self._host.arguments_text('"')
            self.streams = False
            return
        raw = "".join(self._parts)
        if self._types is None:
            fits, value = load(raw)
            self._host.arguments_text(dump(value if fits else raw))
        else:
            self._host.arguments_text(dump(coerce(raw, self._types)))
        self._parts = []

    def close(self) -> None:
        """The call ends."""
        if not self._empty:
            self._host.arguments_text("}")
        self._host.end_call()

    def cut(self) -> None:
        """The text ends in the middle of a value: what of it was held goes out as it is."""
        self._host.arguments_text("".join(self._parts))
        self._parts = []

    def cut_key(self, text: str) -> None:
        """The text ends in the middle of a key."""
        if text:
            self._host.arguments_text(("{" if self._empty else ", ") + dump(text)[:-1])
