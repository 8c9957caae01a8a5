"""Calls of an engine's methods (wire e): one copy of a call for each engine, answers in any order and at any time."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from typing import Any

from fastfront.engine.wire import UtilityOutput
from fastfront.errors import EngineError

log = logging.getLogger(__name__)


class UtilityError(EngineError):
    """An engine could not do what was called; `method` and `engine` (its rank) say where."""

    def __init__(self, message: str, *, method: str, engine: int) -> None:
        super().__init__(message)
        self.method = method
        self.engine = engine


class Utilities:
    """The calls that wait for an answer. Ids are never used twice; negative ones are the engine's own notices."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[int, str, asyncio.Future[Any]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, engine: int, method: str) -> tuple[int, asyncio.Future[Any]]:
        """The id for one copy of a call, and its result to come."""
        call_id = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = (engine, method, future)
        return call_id, future

    def answer(self, output: UtilityOutput) -> None:
        """Takes an answer; one that nobody waits for any more is logged and dropped."""
        call = self._waiting.pop(output.call_id, None)
        if call is None:
            log.info("an answer to the utility call %d came and nobody waits for it", output.call_id)
            return
        engine, method, future = call
        if future.done():
            return
        result = output.result
        if output.failure_message is not None:
            future.set_exception(UtilityError(output.failure_message, method=method, engine=engine))
        elif result is None:
            future.set_result(None)
        elif len(result) != 2 or result[0] is not None:
            # A type beside the value means pickled data, which only an engine in its insecure mode sends.
            message = f"engine {engine} answered {method} in a form that is not read here"
            future.set_exception(UtilityError(message, method=method, engine=engine))
        else:
            future.set_result(result[1])

    def forget(self, call_ids: Iterable[int]) -> None:
        """Nobody waits for these any more."""
        for call_id in call_ids:
            self._waiting.pop(call_id, None)

    def fail(self, engine: int, error: Exception) -> None:
        """The engine is gone: all its calls end with `error`."""
        for call_id, (where, _, future) in list(self._waiting.items()):
            if where == engine:
                del self._waiting[call_id]
                if not future.done():
                    future.set_exception(error)
