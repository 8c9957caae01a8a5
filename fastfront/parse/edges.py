"""White space at the edges of a text, where it is markup and not text."""

from __future__ import annotations

WHITE = " \t\r\n\f\v"
#: What of ASCII `str.strip` takes for white space.
BLANK = WHITE + "\x1c\x1d\x1e\x1f"


class Edge:
    """Drops leading `lead` characters and holds trailing `trail` characters back until something follows them.

    With `once` at most one character goes at each end.
    """

    def __init__(self, lead: str = "", trail: str = "", once: bool = False) -> None:
        self.lead = lead
        self.trail = trail
        self.once = once
        self._fresh = True
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        """What of the text so far is certain to be text."""
        if self._fresh and text and self.lead:
            if self.once:
                text = text[1:] if text[0] in self.lead else text
                self._fresh = False
            else:
                text = text.lstrip(self.lead)
        if not text:
            return ""
        self._fresh = False
        if not self.trail:
            return text
        if self.once:
            kept = text[:-1] if text[-1] in self.trail else text
        else:
            kept = text.rstrip(self.trail)
        if not kept and not self.once:
            self._held.append(text)
            return ""
        certain = "".join(self._held) + kept
        self._held = [text[len(kept) :]]
        return certain

    @property
    def is_past(self) -> bool:
        """Whether nothing more is dropped at the beginning."""
        return not self._fresh or not self.lead

    def begin(self) -> None:
        """The text has begun."""
        self._fresh = False

    def let_go(self) -> str:
        """What was held back; it is forgotten, and the text goes on."""
        if not self._held:
            return ""
        held = "".join(self._held)
        self._held = []
        return held

    def held(self) -> str:
        """What was held back; it is forgotten, and so is that the text had begun."""
        self._fresh = True
        return self.let_go()


class Blank:
    """Holds a text back as long as it is nothing but white space (`is_blank`)."""

    def __init__(self) -> None:
        self.is_blank = True
        self._held: list[str] = []

    @property
    def holds(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """The text so far, once some of it is not white space."""
        if self.is_blank:
            if not text.strip():
                self._held.append(text)
                return ""
            text = "".join(self._held) + text
            self.is_blank = False
            self._held = []
        return text

    def let_go(self) -> str:
        """What was held back; it is forgotten, and the text goes on."""
        if not self._held:
            return ""
        held = "".join(self._held)
        self._held = []
        return held

    def held(self) -> str:
        """What was held back; a new text begins."""
        self.is_blank = True
        return self.let_go()


class Prefix:
    """Drops a word that a text begins with."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._seen: str | None = "" if word else None

    def feed(self, text: str) -> str:
        """The text without the word, once it is certain whether it is there."""
        if self._seen is None:
            return text
        seen = self._seen + text
        if len(seen) < len(self._word) and self._word.startswith(seen):
            self._seen = seen
            return ""
        self._seen = None
        return seen[len(self._word) :] if seen.startswith(self._word) else seen

    @property
    def is_past(self) -> bool:
        """Whether it is certain that the word is there, or is not."""
        return self._seen is None

    def held(self) -> str:
        """What was held back and is not the word (without white space); a new text begins."""
        held = self._seen or ""
        self._seen = "" if self._word else None
        return "" if held == self._word.rstrip() else held
