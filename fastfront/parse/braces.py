"""Reads arguments written with bare keys and strings between marks, `{k:<|"|>text<|"|>,n:3,o:{...}}`, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastfront.parse.edges import WHITE
from fastfront.parse.schema import coerce, dump, load

if TYPE_CHECKING:
    from fastfront.parse.machine import Machine

_STRING = frozenset({"string"})
_CLOSING = {"{": "}", "[": "]", "(": ")"}


class BracedArguments:
    """From the opening brace on. `mark` is around strings; `guess`: a string of unknown type may be any JSON."""

    def __init__(self, host: Machine, mark: str, guess: bool = False) -> None:
        self.failed = False
        self.to = ""
        self.nest = None
        self._host = host
        self._mark = mark
        self._guess = guess
        self._function = host.pending_name()
        self._stack: list[str] = []
        self._phase = self._open
        self._rest = ""
        self._first = True
        self._key: list[str] = []
        self._bare: list[str] = []
        self._types: frozenset[str] = _STRING
        self._known = False
        self._whole: list[str] | None = None
        self._began = False

    def feed(self, text: str) -> str | None:
        """Takes a piece."""
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            end = self._phase(text, at)
            if end < 0:
                return text[at:]
            at = end
        return None

    def given_back(self) -> str:
        """Nothing is taken back: the brace has made it a call."""
        return ""

    def finish(self) -> None:
        """What is held of a value goes out as it is."""
        rest, self._rest = self._rest, ""
        if self._whole is not None:
            self._host.arguments_text(dump("".join(self._whole) + rest)[:-1])
        elif self._phase == self._in_bare:
            self._host.arguments_text("".join(self._bare).rstrip())
        else:
            self._host.arguments_text(dump(rest)[1:-1])

    def end(self) -> None:
        """The call ends here, whatever is still open."""
        if self._phase == self._in_string:
            self._end_string()
        elif self._phase == self._in_bare:
            self._in_bare(",", 0)
        while self._stack:
            self._pop(0)

    def _hold(self, text: str, at: int) -> int:
        self._rest = text[at:]
        return len(text)

    # --- phases: the next position, or -1 at the end -----------------------------------------------------------------

    def _open(self, text: str, at: int) -> int:
        self._push("{")
        return at + 1

    def _push(self, kind: str) -> None:
        self._stack.append(kind)
        self._first = True
        self._phase = self._member if kind == "{" else self._value
        if len(self._stack) > 1:
            self._host.arguments_text(kind)

    def _pop(self, at: int) -> int:
        kind = self._stack.pop()
        if not self._stack:
            if self._began:
                self._host.arguments_text("}")
            self._host.end_call()
            self._phase = self._done
            return at + 1
        self._host.arguments_text(_CLOSING[kind])
        self._first = False
        self._phase = self._after
        return at + 1

    def _done(self, text: str, at: int) -> int:
        return -1

    def _member(self, text: str, at: int) -> int:
        """A key, or the end of the object."""
        if text[at] in WHITE or text[at] == ",":
            return at + 1
        if text[at] in "})":
            return self._pop(at)
        self._key = []
        self._phase = self._in_key
        return at

    def _in_key(self, text: str, at: int) -> int:
        end = text.find(":", at)
        self._key.append(text[at:] if end < 0 else text[at:end])
        if end < 0:
            return len(text)
        key = "".join(self._key).replace(self._mark, "").strip().strip('"')
        if len(self._stack) == 1:
            self._types = self._host.schemas.types(self._function, key)
            self._known = self._host.schemas.of(self._function, key) is not None
        opening = "{" if not self._began else ", " if not self._first else ""
        self._began = True
        self._host.arguments_text(f"{opening}{dump(key)}: ")
        self._first = False
        self._phase = self._value
        return end + 1

    def _value(self, text: str, at: int) -> int:
        """A value begins, or an array ends."""
        char = text[at]
        in_array = self._stack[-1] == "["
        if char in WHITE or (char == "," and in_array):
            return at + 1
        if in_array and char == "]":
            return self._pop(at)
        if text.startswith(self._mark, at):
            self._separate(in_array)
            self._begin_string()
            return at + len(self._mark)
        if self._mark.startswith(text[at:]):
            return self._hold(text, at)
        if char in "{[":
            self._separate(in_array)
            self._push(char)
            return at + 1
        self._separate(in_array)
        self._bare = []
        self._phase = self._in_bare
        return at

    def _separate(self, in_array: bool) -> None:
        if in_array:
            if not self._first:
                self._host.arguments_text(", ")
            self._first = False

    def _begin_string(self) -> None:
        top = len(self._stack) == 1
        held = top and (self._types != _STRING or (self._guess and not self._known))
        self._whole = [] if held else None
        if not held:
            self._host.arguments_text('"')
        self._phase = self._in_string

    def _in_string(self, text: str, at: int) -> int:
        end = text.find(self._mark, at)
        stop = end if end >= 0 else len(text) - _overlap(text, at, self._mark)
        if self._whole is not None:
            self._whole.append(text[at:stop])
        else:
            self._host.arguments_text(dump(text[at:stop])[1:-1])
        if end < 0:
            return self._hold(text, stop)
        self._end_string()
        return end + len(self._mark)

    def _end_string(self) -> None:
        if self._whole is None:
            self._host.arguments_text('"')
        else:
            raw, self._whole = "".join(self._whole), None
            if self._known:
                value = coerce(raw, self._types)
            else:
                fits, value = load(raw)
                value = value if fits else raw
            self._host.arguments_text(dump(value))
        self._phase = self._after

    def _in_bare(self, text: str, at: int) -> int:
        end = at
        while end < len(text) and text[end] not in ",}])":
            end += 1
        self._bare.append(text[at:end])
        if end == len(text):
            return end
        raw = "".join(self._bare).strip()
        self._bare = []
        fits, value = load(raw)
        if len(self._stack) == 1 and self._known:
            fits, value = True, coerce(raw, self._types)
        self._host.arguments_text(dump(value if fits else raw))
        self._phase = self._after
        return end

    def _after(self, text: str, at: int) -> int:
        """After a value."""
        char = text[at]
        kind = self._stack[-1]
        if char == ",":
            self._phase = self._member if kind == "{" else self._value
            return at + 1
        if char == _CLOSING[kind] or char == ")":
            return self._pop(at)
        return at + 1


def _overlap(text: str, at: int, mark: str) -> int:
    """How many characters at the end of `text` may be the beginning of `mark`."""
    for length in range(min(len(mark) - 1, len(text) - at), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
