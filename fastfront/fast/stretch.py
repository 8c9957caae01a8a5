"""A stretch of text that no parser must see: it goes into one kind of event as it is until something ends it.

A parser leaves such a stretch to its stream (`Stream.begin_stretch`), and takes up again where the stream hands back
what has not gone out, from its first character on, as if it had seen all text itself.
"""

from __future__ import annotations

from typing import NamedTuple

from fastfront.fast.nest import Nest
from fastfront.fast.scan import Patterns, Scanner


class Stretch(NamedTuple):
    """What is known of a stretch when it begins.

    `begin` is its first text, which holds no whole marker. One of `markers` ends it, or the end of `nest`, the JSON
    value that it is a part of (then there are no markers). ASCII characters of `trail` at its end are held back until
    others follow: all of them, or the very last `once`. `quoted`: its text lies in a JSON string of JSON text, so it
    is escaped twice.
    """

    begin: str = ""
    markers: Patterns | None = None
    trail: str = ""
    once: bool = False
    nest: Nest | None = None
    quoted: bool = False


class Held:
    """The text of a stretch that has come and not gone out. Pure twin of csrc/stretch.hpp."""

    def __init__(self, stretch: Stretch) -> None:
        self.quoted = stretch.quoted
        self._stretch = stretch
        self._scanner = Scanner(stretch.markers) if stretch.markers is not None else None
        self._told = stretch.nest.state if stretch.nest is not None else None
        self._text = ""

    def feed(self, text: str) -> bool:
        """Takes a piece; false where a marker or the nest's end lies in it."""
        nest = self._stretch.nest
        if nest is not None:
            self._text += text
            nest.take(text, 0)
            return not nest.done
        if self._scanner is None:
            self._text += text
            return True
        certain, found, rest = self._scanner.feed(text)
        self._text += certain
        if found >= 0:
            self._text += self._scanner.patterns.patterns[found] + rest
        return found < 0

    def take(self) -> str:
        """What may go out now."""
        text, (_, _, trail, once, nest, _) = self._text, self._stretch
        certain = text.rstrip(trail) if trail else text
        if once and len(certain) < len(text):
            certain = text[:-1]
        self._text = text[len(certain) :]
        if nest is not None:
            self._told = nest.state
        return certain

    def end(self) -> str:
        """Ends the stretch: all that has not gone out. The nest is set back to where that begins."""
        if self._stretch.nest is not None and self._told is not None:
            self._stretch.nest.state = self._told
        return self._text + (self._scanner.finish() if self._scanner is not None else "")
