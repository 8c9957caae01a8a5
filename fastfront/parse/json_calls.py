"""Reads calls written as JSON objects, `{"name": ..., "arguments": {...}}`, while they come.

The arguments' text goes out as it is generated, white space and mistakes in it included. Name and arguments may come
in either order, in an array, one after the other, or inside a "function" object; arguments may be a string of JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastfront.parse.edges import WHITE
from fastfront.parse.json_values import StringArguments, Value, decode

if TYPE_CHECKING:
    from fastfront.fast import Nest
    from fastfront.parse.machine import Machine

NAMES = frozenset({"name", "tool_name"})
ARGUMENTS = frozenset({"arguments", "parameters", "args"})
#: Objects around a call; as a string such a key is the name.
WRAPPERS = frozenset({"function", "function_call", "tool_call"})


class JsonArguments:
    """The arguments alone, as one JSON value: for formats that write the name before it."""

    def __init__(self, host: Machine) -> None:
        self.failed = False
        self.to = ""
        self._host = host
        self._value = Value()
        self._waiting: list[str] = []

    def feed(self, text: str) -> str | None:
        """Takes a piece."""
        if not self._value.kind:
            body = text.lstrip(WHITE)
            if not body:
                self._waiting.append(text)
                return None
            if body[0] not in "{[":
                self.failed = True
                return text
            text = body
        end = self._value.take(text, 0)
        self._host.arguments_text(text[:end])
        if not self._value.done:
            return None
        self._host.end_call()
        return text[end:]

    @property
    def nest(self) -> Nest | None:
        """The arguments, once they have begun."""
        return self._value.nest

    def given_back(self) -> str:
        """White space before the arguments."""
        return "" if self._value.kind else "".join(self._waiting)

    def finish(self) -> None:
        """A cut value stays cut."""


class JsonCalls:
    """Objects with a name and arguments. `keyed`: each member of an object is a call, its key the name."""

    def __init__(self, host: Machine, keyed: bool = False) -> None:
        self.failed = False
        self.to = ""
        self._host = host
        self._keyed = keyed
        self._phase = self._start
        self._raw: list[str] = []
        self._mark: int | None = 0  # in the present piece: from where on nobody was told
        self._array = False
        self._begin()

    def _begin(self) -> None:
        self._name: str | None = None
        self._nested = 0
        self._started = False
        self._key = ""
        self._value = Value()
        self._captured: list[str] = []
        self._early: list[str] = []
        self._has_arguments = False
        self._string: StringArguments | None = None

    def feed(self, text: str) -> str | None:
        """Takes a piece."""
        at = 0
        if self._mark is not None:
            self._mark = 0
        while at < len(text):
            end = self._phase(text, at)
            if end < 0:
                return self._leave(text, at)
            at = end
        if self._mark is not None:
            self._raw.append(text[self._mark :])
        return None

    @property
    def nest(self) -> Nest | None:
        """The arguments of a call that has begun, if they go out as they come."""
        as_they_come = self._started and self._string is None and self._phase == self._in_arguments
        return self._value.nest if as_they_come else None

    def given_back(self) -> str:
        """What no call has come of."""
        raw, self._raw = "".join(self._raw), []
        return raw

    def finish(self) -> None:
        """Arguments that are cut stay cut."""

    def _leave(self, text: str, at: int) -> str:
        """Done, or failed, at `at`."""
        if self.failed:
            if self._mark is not None:
                self._raw.append(text[self._mark : at])
            return text[at:]
        if self._mark is not None:
            text = "".join(self._raw) + text[self._mark :]
            self._raw = []
            return text
        return text[at:]

    def _fail(self) -> int:
        self.failed = True
        return -1

    # --- phases: the next position, or -1 at the end -----------------------------------------------------------------

    def _start(self, text: str, at: int) -> int:
        if text[at] in WHITE:
            return at + 1
        if text[at] == "[":
            self._array = True
            self._phase = self._item
            return at + 1
        return self._item(text, at)

    def _item(self, text: str, at: int) -> int:
        """An object of an array begins."""
        if text[at] in WHITE:
            return at + 1
        if text[at] != "{":
            return self._fail()
        self._begin()
        if self._mark is None:
            self._mark = at
        self._phase = self._member
        return at + 1

    def _member(self, text: str, at: int) -> int:
        """A key, or the end of the object."""
        if text[at] in WHITE or text[at] == ",":
            return at + 1
        if text[at] == "}":
            return self._end_object(at)
        if text[at] != '"':
            return self._break(at)
        self._value = Value()
        self._captured = []
        self._phase = self._in_key
        return at

    def _in_key(self, text: str, at: int) -> int:
        end = self._value.take(text, at)
        self._captured.append(text[at:end])
        if self._value.done:
            self._key = decode("".join(self._captured))
            self._phase = self._colon
        return end

    def _colon(self, text: str, at: int) -> int:
        if text[at] in WHITE:
            return at + 1
        if text[at] != ":":
            return self._break(at)
        self._phase = self._value_start
        return at + 1

    def _value_start(self, text: str, at: int) -> int:
        first = text[at]
        if first in WHITE:
            return at + 1
        if first in ",}]":
            return self._break(at)
        if self._key in WRAPPERS and first == "{" and not self._keyed:
            self._nested += 1
            self._phase = self._member
            return at + 1
        self._value = Value()
        self._captured = []
        if self._keyed:
            self._begin_keyed()
        is_name = self._key in NAMES or (self._key in WRAPPERS and self._name is None)
        if (self._keyed or self._key in ARGUMENTS) and not self._has_arguments:
            self._has_arguments = True
            self._string = StringArguments() if first == '"' else None
            self._phase = self._in_arguments
        elif is_name and first == '"' and not self._started:
            self._phase = self._in_name
        else:
            self._phase = self._in_other
        return at

    def _begin_keyed(self) -> None:
        if self._started:
            self._host.end_call()
        name = self._key
        self._begin()
        self._name = name

    def _in_other(self, text: str, at: int) -> int:
        end = self._value.take(text, at)
        if self._value.done:
            self._phase = self._after
        return end

    def _in_name(self, text: str, at: int) -> int:
        end = self._value.take(text, at)
        self._captured.append(text[at:end])
        if self._value.done:
            self._name = decode("".join(self._captured)) or None
            self._phase = self._after
            if self._early:
                self._tell("".join(self._early))
        return end

    def _in_arguments(self, text: str, at: int) -> int:
        end = self._value.take(text, at)
        piece, done = text[at:end], self._value.done
        if self._value.kind == "scalar":
            self._captured.append(piece)
            if done and (raw := "".join(self._captured)) != "null":
                self._tell(raw)
        else:
            self._tell(piece if self._string is None else self._string.feed(piece, done))
        if done:
            self._phase = self._after
        return end

    def _tell(self, text: str) -> None:
        """A piece of the arguments; the call begins with the first if its name is known."""
        if not text:
            return
        if self._name is None:
            self._early.append(text)
            return
        if not self._started:
            self._start_call()
        self._host.arguments_text(text)

    def _start_call(self) -> None:
        self._started = True
        self._mark = None
        self._raw = []
        self._host.start_call(self._name or "")

    def _after(self, text: str, at: int) -> int:
        if text[at] in WHITE:
            return at + 1
        if text[at] in ",}":
            self._phase = self._member
            return at
        return self._break(at)

    def _break(self, at: int) -> int:
        """Not JSON any more: of a call that has begun, what has come is all."""
        if not self._started:
            return self._fail()
        self._host.end_call()
        self._mark = None
        return -1

    def _end_object(self, at: int) -> int:
        if self._nested:
            self._nested -= 1
            self._phase = self._after
            return at + 1
        if self._name is None:
            return self._fail()
        if not self._started:
            self._start_call()
        self._host.end_call()
        self._phase = self._next
        return at + 1

    def _next(self, text: str, at: int) -> int:
        """After an object: a separator and another one, or the end."""
        if self._mark is None:
            self._mark = at
        if text[at] in WHITE or text[at] == "," or (text[at] == ";" and not self._array):
            return at + 1
        if text[at] == "{":
            return self._item(text, at)
        if self._array:
            if text[at] == "]":
                self._mark = None
                self._raw = []
                self._phase = self._done
                return at + 1
            self._mark = at
            self._raw = []
            return self._fail()
        return -1

    def _done(self, text: str, at: int) -> int:
        return -1
