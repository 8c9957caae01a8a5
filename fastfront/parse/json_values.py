"""JSON values and strings that come in pieces."""

from __future__ import annotations

import json
import re

from fastfront.parse.edges import WHITE

_IN_STRING = re.compile(r'[^"\\]*')
_IN_NEST = {"{": re.compile(r'[^"{}]*'), "[": re.compile(r'[^"\[\]]*')}
_SCALAR = re.compile(r"[^\s,}\]]*")
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")


class Value:
    """Finds the end of one JSON value: of an object or array by its brackets outside of strings."""

    def __init__(self) -> None:
        self.kind = ""
        self.done = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def take(self, text: str, at: int) -> int:
        """Where, from `at` on, the value's part of `text` ends."""
        if not self.kind and at < len(text):
            self.kind = text[at] if text[at] in '"{[' else "scalar"
        while at < len(text) and not self.done:
            if self._escaped:
                self._escaped = False
                at += 1
            elif self._in_string:
                at = _end(_IN_STRING, text, at)
                if at < len(text):
                    self._escaped = text[at] == "\\"
                    self._in_string = self._escaped
                    self.done = not self._in_string and self.kind == '"'
                    at += 1
            elif self.kind == "scalar":
                at = _end(_SCALAR, text, at)
                self.done = at < len(text)
                break
            elif self.kind == '"':
                self._in_string = True
                at += 1
            else:
                at = _end(_IN_NEST[self.kind], text, at)
                if at < len(text):
                    self._in_string = text[at] == '"'
                    if not self._in_string:
                        self._depth += 1 if text[at] == self.kind else -1
                        self.done = self._depth == 0
                    at += 1
        return at


class StringDecoder:
    """The text of a JSON string that comes in pieces, from its opening quote to its closing one."""

    def __init__(self) -> None:
        self._opened = False
        self._rest = ""

    def feed(self, raw: str, last: bool) -> str:
        """The text of one more piece."""
        if not self._opened and raw:
            self._opened = True
            raw = raw[1:]
        raw = self._rest + (raw[:-1] if last else raw)
        self._rest = ""
        if not last:
            whole = _whole_escapes(raw)
            raw, self._rest = raw[:whole], raw[whole:]
        return decode(f'"{raw}"')


def _whole_escapes(raw: str) -> int:
    """How far the text of a JSON string goes without an escape, or pair of escapes, that is not whole yet."""
    at = raw.find("\\")
    while at >= 0:
        length = 6 if raw[at + 1 : at + 2] == "u" else 2
        if length == 6 and _HIGH.match(raw, at) is not None and raw[at + 6 : at + 8] in ("", "\\", "\\u"):
            length = 12
        if at + length > len(raw):
            return at
        at = raw.find("\\", at + length)
    return len(raw)


def decode(quoted: str) -> str:
    """The text of a whole JSON string; what is no JSON stays as it is, without its quotes."""
    try:
        text = str(json.loads(quoted, strict=False))
    except ValueError:
        return quoted[1:-1]
    # Half of a surrogate pair is no text.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class StringArguments:
    """Arguments given as a JSON string: the JSON that it holds; if it holds none, the string as it is."""

    def __init__(self) -> None:
        self._decoder = StringDecoder()
        self._raw: list[str] = []
        self._decodes: bool | None = None

    def feed(self, piece: str, last: bool) -> str:
        """What of one more piece goes out."""
        if self._decodes is False:
            return piece
        text = self._decoder.feed(piece, last)
        if self._decodes:
            return text
        self._raw.append(piece)
        text = text.lstrip(WHITE)
        if not text:
            return ""
        self._decodes = text.startswith(("{", "["))
        return text if self._decodes else "".join(self._raw)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match is not None else at
