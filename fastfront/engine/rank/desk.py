"""Utility calls (wire e): each gets its answer, at once or later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fastfront.engine.rank.frames import Message, pack


class Later(NamedTuple):
    """An answer that waits until `ready`; `then` makes it."""

    ready: Callable[[], bool]
    then: Callable[[], Any]


class Call(NamedTuple):
    """One UTILITY message."""

    client: int
    call_id: int
    method: str
    args: list[Any]


class Desk:
    """Takes calls of rank `index`; the public methods of `methods` are those that can be called.

    A name that is none of them fails as one that a real engine does not have. A method may return `Later`: whoever
    steps the engine has it asked after each step. With `full`, answers are written as a real engine does.
    """

    def __init__(self, index: int, methods: object, send: Callable[[Message], None], *, full: bool = True) -> None:
        self._index = index
        self._methods = methods
        self._send = send
        self._full = full
        #: Calls that wait.
        self.pending: list[tuple[Call, Later]] = []

    def call(self, call: Call) -> None:
        """Answers at once, or later."""
        self._settle(call, lambda: self._method(call.method)(*call.args))

    def after_step(self) -> None:
        """Answers the calls that waited for what has come about now."""
        pending, self.pending = self.pending, []
        for call, later in pending:
            if later.ready():
                self._settle(call, later.then)
            else:
                self.pending.append((call, later))

    def _method(self, name: str) -> Callable[..., Any]:
        method = None if name.startswith("_") else getattr(self._methods, name, None)
        if method is None:
            raise AttributeError(f"'EngineCoreProc' object has no attribute '{name}'")
        return method  # type: ignore[no-any-return]

    def _settle(self, call: Call, work: Callable[[], Any]) -> None:
        try:
            result = work()
        except Exception as error:  # as a real engine: whatever fails is told to the caller
            self._answer(call, f"Call to {call.method} method failed: {error}", None)
            return
        if isinstance(result, Later):
            self.pending.append((call, result))
        else:
            self._answer(call, None, [None, result])

    def _answer(self, call: Call, failure: str | None, result: list[Any] | None) -> None:
        fields = [self._index, [], None, time.monotonic(), [call.call_id, failure, result]]
        self._send((call.client, [pack(fields + [None] * 4 if self._full else fields)]))
