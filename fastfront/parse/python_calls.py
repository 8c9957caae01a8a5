"""Reads calls written as Python, `[f(a="x", n=3), g()]`, while they come, and writes their arguments as JSON.

Strings go out as they are generated, other values when they are whole. Only keyword arguments make a call.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import TYPE_CHECKING, Any

from fastfront.parse.edges import WHITE
from fastfront.parse.schema import dump, is_finite

if TYPE_CHECKING:
    from fastfront.parse.machine import Machine

_NAME = re.compile(r"[\w.\-]*")
_PLAIN = re.compile(r"""[^"'()\[\]{},]*""")
_ESCAPE = re.compile(r"\\(\r\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_LENGTHS = {"x": 4, "u": 6, "U": 10}
_IN_STRING = {quote: re.compile(rf"(?:[^\\{quote}]|\\.)*", re.DOTALL) for quote in ('"', "'")} | {
    quote * 3: re.compile(rf"(?:[^\\{quote}]|\\.|{quote}(?!{quote}{quote}))*", re.DOTALL) for quote in ('"', "'")
}
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": "", "\r\n": "", "\r": ""}
_WORDS: dict[str, Any] = {"null": None, "true": True, "false": False}


class PythonCalls:
    """`bracketed`: the calls are a list; else they follow each other, one a line."""

    def __init__(self, host: Machine, bracketed: bool = True) -> None:
        self.failed = False
        self.to = ""
        self.nest = None
        self._host = host
        self._bracketed = bracketed
        self._phase = self._open if bracketed else self._first
        self._raw: list[str] = []
        self._mark: int | None = 0
        self._begin()

    def _begin(self) -> None:
        self._name = ""
        self._key = ""
        self._started = False
        self._empty = True
        self._depth = 0
        self._quote = ""
        self._rest = ""
        self._value: list[str] = []

    def feed(self, text: str) -> str | None:
        """Takes a piece."""
        text, self._rest = self._rest + text, ""
        at = 0
        if self._mark is not None:
            self._mark = 0
        while at < len(text):
            end = self._phase(text, at)
            if end < 0:
                return self._leave(text, ~end)
            at = end
        if self._mark is not None:
            self._raw.append(text[self._mark :])
        return None

    def given_back(self) -> str:
        """What no call has come of."""
        raw, self._raw = "".join(self._raw), []
        return raw + self._rest

    def finish(self) -> None:
        """A string that is cut stays cut; of another value what is there goes out as it is."""
        if self._started:
            rest, self._rest = self._rest, ""
            self._host.arguments_text("".join(self._value) + rest if self._value else dump(rest)[1:-1])

    def _leave(self, text: str, at: int) -> str:
        if self.failed:
            if self._mark is not None:
                self._raw.append(text[self._mark : at])
            return text[at:]
        if self._mark is not None:
            text = "".join(self._raw) + text[self._mark :]
            self._raw = []
            return text
        return text[at:]

    def _fail(self, at: int) -> int:
        if self._started:
            self._host.end_call()
            self._mark = None
        self.failed = self._mark is not None
        return ~at

    # Phases: the next position, or, where the text is no call any more, the complement of that position.

    def _open(self, text: str, at: int) -> int:
        if text[at] in WHITE:
            return at + 1
        if text[at] != "[":
            return self._fail(at)
        self._phase = self._first
        return at + 1

    def _first(self, text: str, at: int) -> int:
        """A call begins."""
        if text[at] in WHITE:
            return at + 1
        if not (text[at].isalpha() or text[at] == "_"):
            return self._fail(at)
        self._begin()
        if self._mark is None:
            self._mark = at
        self._phase = self._in_name
        return at

    def _in_name(self, text: str, at: int) -> int:
        end = _end(_NAME, text, at)
        self._name += text[at:end]
        if end == len(text):
            return end
        if text[end] != "(":
            return self._fail(end)
        self._phase = self._argument
        return end + 1

    def _argument(self, text: str, at: int) -> int:
        """A keyword, or the call's end."""
        char = text[at]
        if char in WHITE or (char == "," and self._started):
            return at + 1
        if char == ")":
            if not self._started:
                self._start_call()
            if not self._empty:
                self._host.arguments_text("}")
            self._host.end_call()
            self._phase = self._next
            return at + 1
        if not (char.isalpha() or char == "_"):
            return self._fail(at)
        self._key = ""
        self._phase = self._in_key
        return at

    def _in_key(self, text: str, at: int) -> int:
        end = _end(_NAME, text, at)
        self._key += text[at:end]
        if end == len(text):
            return end
        self._phase = self._equals
        return end

    def _equals(self, text: str, at: int) -> int:
        if text[at] in WHITE:
            return at + 1
        if text[at] != "=" or not self._key:
            return self._fail(at)
        if not self._started:
            self._start_call()
        self._host.arguments_text(("{" if self._empty else ", ") + dump(self._key) + ": ")
        self._empty = False
        self._value = []
        self._phase = self._value_start
        return at + 1

    def _start_call(self) -> None:
        self._started = True
        self._mark = None
        self._raw = []
        self._host.start_call(self._name)

    def _value_start(self, text: str, at: int) -> int:
        if text[at] in WHITE:
            return at + 1
        if text[at] in "\"'":
            return self._open_string(text, at, '"')
        self._phase = self._in_value
        return at

    def _open_string(self, text: str, at: int, said: str) -> int:
        """A quote, or three; an empty string has two."""
        quote = text[at]
        if text[at:] in (quote, quote * 2):
            self._rest = text[at:]
            return len(text)
        self._quote = quote * 3 if text.startswith(quote * 3, at) else quote
        self._host.arguments_text(said)
        self._phase = self._in_string
        return at + len(self._quote)

    def _in_string(self, text: str, at: int) -> int:
        end = _end(_IN_STRING[self._quote], text, at)
        if text.startswith(self._quote, end):
            self._host.arguments_text(dump(_unescape(text[at:end]))[1:-1])
            end += len(self._quote)
            self._quote = ""
            self._phase = self._after_string
            return end
        # What is not whole yet, an escape or a closing quote, is held.
        body = text[at:]
        cut = len(body)
        if len(self._quote) == 3:
            cut = max(len(body.rstrip(self._quote[0])), len(body) - 2)
        cut = _whole_escapes(body[:cut])
        self._host.arguments_text(dump(_unescape(body[:cut]))[1:-1])
        self._rest = body[cut:]
        return len(text)

    def _after_string(self, text: str, at: int) -> int:
        if text[at] in WHITE:
            return at + 1
        if text[at] in "\"'":
            # Two literals side by side are one string.
            return self._open_string(text, at, "")
        self._host.arguments_text('"')
        if text[at] not in ",)":
            return self._fail(at)
        self._phase = self._argument
        return at

    def _in_value(self, text: str, at: int) -> int:
        """A value that is no string: up to the comma or bracket behind it."""
        if self._quote:
            end = _end(_IN_STRING[self._quote], text, at)
            if end < len(text) and text[end] == self._quote:
                self._value.append(text[at : end + 1])
                self._quote = ""
                return end + 1
            cut = at + _whole_escapes(text[at:])
            self._value.append(text[at:cut])
            self._rest = text[cut:]
            return len(text)
        end = _end(_PLAIN, text, at)
        self._value.append(text[at:end])
        if end == len(text):
            return end
        char = text[end]
        if not self._depth and char in ",)":
            self._host.arguments_text(to_json("".join(self._value)))
            self._value = []
            self._phase = self._argument
            return end
        if char in "\"'":
            self._quote = char
        elif char in "([{":
            self._depth += 1
        elif char in ")]}":
            self._depth -= 1
            if self._depth < 0:
                return self._fail(end)
        self._value.append(char)
        return end + 1

    def _next(self, text: str, at: int) -> int:
        """After a call."""
        if self._mark is None:
            self._mark = at
        char = text[at]
        if char in WHITE or char == ",":
            return at + 1
        if char == "]" and self._bracketed:
            self._mark = None
            self._raw = []
            self._phase = self._done
            return at + 1
        if char.isalpha() or char == "_":
            return self._first(text, at)
        if self._bracketed:
            self._started = False
            return self._fail(at)
        return ~at

    def _done(self, text: str, at: int) -> int:
        return ~at


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match is not None else at


def _whole_escapes(text: str) -> int:
    """How far the text of a Python string goes without an escape that is not whole yet."""
    at = text.find("\\")
    while at >= 0:
        kind = text[at + 1 : at + 2]
        length = _LENGTHS.get(kind, 2)
        if kind and kind in "01234567":
            length = 2
            while length < 4 and (text[at + length : at + length + 1] or "0") in "01234567":
                length += 1
        elif kind == "\r":
            length = 3
        if at + length > len(text):
            return at
        at = text.find("\\", at + length if kind != "\r" else at + 2)
    return len(text)


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        what = match[1]
        if what in _SIMPLE:
            return _SIMPLE[what]
        if what[0] in "01234567":
            return chr(int(what, 8))
        if len(what) > 1 and what[0] in "xuU":
            code = int(what[1:], 16)
            return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else "\ufffd"
        return what if what in "\\\"'" else match[0]

    return _ESCAPE.sub(replaced, text) if "\\" in text else text


def to_json(source: str) -> str:
    """A Python literal (JSON's words too) as JSON; what is none becomes a string."""
    source = source.strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = _literal(ast.parse(source, mode="eval").body)
        if is_finite(value):
            return json.dumps(value, ensure_ascii=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    return dump(source)


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (str, int, float))):
        if isinstance(node.value, str):
            return node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {_key(key): _literal(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _literal(node.operand)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value if isinstance(node.op, ast.USub) else value
    raise ValueError("not a literal")


def _key(node: ast.expr | None) -> Any:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, (str, int, float, bool, type(None))):
        raise ValueError("not a literal key")
    return node.value
