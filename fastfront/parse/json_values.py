"""JSON values and strings that come in pieces."""

from __future__ import annotations

import json
import re

from fastfront import fast
from fastfront.parse.edges import WHITE

_SCALAR = re.compile(r"[^\s,}\]]*")
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")


class Value:
    """Finds the end of one JSON value: of an object or array by its brackets outside of strings."""

    def __init__(self) -> None:
        #: The first character of a string, object or array, or "scalar"; empty until there is one.
        self.kind = ""
        self.done = False
        #: Of a string, object or array: where in it the text is.
        self.nest: fast.Nest | None = None

    def take(self, text: str, at: int) -> int:
        """Where, from `at` on, the value's part of `text` ends."""
        if not self.kind and at < len(text):
            self.kind = "scalar"
            if text[at] in '"{[':
                self.kind = text[at]
                self.nest = fast.Nest(self.kind)
        if self.nest is not None:
            at = self.nest.take(text, at)
            self.done = self.nest.done
            return at
        match = _SCALAR.match(text, at)
        at = match.end() if match is not None else at
        self.done = at < len(text)
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
