"""A stretch of text that no parser must see: it goes into one kind of event as it is until something ends it.

A parser leaves such a stretch to its stream (`Stream.begin_stretch`), and takes up again where the stream hands back
what has not gone out, from its first character on, as if it had seen all text itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fastfront.fast.nest import Nest
from fastfront.fast.scan import Patterns, Scanner


class Stretch(NamedTuple):
    """What is known of a stretch when it begins.

    `begin` is its first text, which holds no whole marker. One of `markers` ends it, or the end of `nest`, the JSON
    value that it is a part of (then there are no markers). ASCII characters of `trail` at its end are held back until
    others follow: all of them, or the very last `once`. `quoted`: its text lies in a JSON string of JSON text, so it
    is escaped twice. Where it is the beginning of a text, characters of `lead` are dropped before its first others, and
    it is held back as long as it is characters of `blank` alone (all of `lead` are); one beyond ASCII after these ends
    it, since that may be white space, too. `began` is called when the first of it has gone out; if it never is, all is
    handed back but for such a lead.
    """

    begin: str = ""
    markers: Patterns | None = None
    trail: str = ""
    once: bool = False
    nest: Nest | None = None
    quoted: bool = False
    lead: str = ""
    blank: str = ""
    began: Callable[[], None] | None = None


class Held:
    """The text of a stretch that has come and not gone out. Pure twin of csrc/stretch.hpp."""

    def __init__(self, stretch: Stretch) -> None:
        self.quoted = stretch.quoted
        self._stretch = stretch
        self._scanner = Scanner(stretch.markers) if stretch.markers is not None else None
        self._told = stretch.nest.state if stretch.nest is not None else None
        self._text = ""
        self._begun = False

    def feed(self, text: str) -> bool:
        """Takes a piece; false where a marker, the nest's end or what may be white space lies in it."""
        nest, blank = self._stretch.nest, self._stretch.blank
        if nest is not None:
            self._text += text
            nest.take(text, 0)
            return not nest.done
        if self._scanner is not None:
            text, found, rest = self._scanner.feed(text)
            if found >= 0:
                self._text += text + self._scanner.patterns.patterns[found] + rest
                return False
        self._text += text
        return self._begun or not blank or self._text.lstrip(blank)[:1].isascii()

    def take(self) -> str:
        """What may go out now."""
        text, (_, _, trail, once, nest, _, lead, blank, began) = self._text, self._stretch
        if not self._begun:
            text = self._text = text.lstrip(lead) if lead else text
            if not (text.strip(blank) if blank else text):
                return ""
        certain = text.rstrip(trail) if trail else text
        if once and len(certain) < len(text):
            certain = text[:-1]
        self._text = text[len(certain) :]
        if nest is not None:
            self._told = nest.state
        if certain and not self._begun:
            self._begun = True
            if began is not None:
                began()
        return certain

    def end(self) -> str:
        """Ends the stretch: all that has not gone out. The nest is set back to where that begins."""
        if self._stretch.nest is not None and self._told is not None:
            self._stretch.nest.state = self._told
        return self._text + (self._scanner.finish() if self._scanner is not None else "")
