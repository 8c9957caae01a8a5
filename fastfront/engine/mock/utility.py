"""The utility calls of a mock engine (wire e): what each does to the core, and what it answers.

A name that is not a method here fails as one that a real engine does not have. An answer may come later: a method then
returns `Later`, and whoever steps the core asks it after each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fastfront.engine.mock.core import Core, Message
from fastfront.engine.mock.wire import pack

PAUSE_MODES = ("abort", "wait", "keep")


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


class Methods:
    """The public methods are those that can be called; arguments are positional, as on the wire."""

    def __init__(self, core: Core, send: Callable[[Message], None], resumed: Callable[[], None]) -> None:
        self._core = core
        self._send = send
        self._resumed = resumed
        self._asleep = False
        self._version = "default"

    def get_supported_tasks(self) -> list[str]:
        """What the engine can do."""
        return ["generate"]

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Always works: nothing is cached."""
        return True

    def reset_mm_cache(self) -> None:
        """There is none."""

    def reset_encoder_cache(self) -> None:
        """There is none."""

    def pause_scheduler(self, mode: str = "abort", clear_cache: bool = True) -> Later | None:
        """Starts no request any more; running ones are aborted, finished first (`wait`) or stand still (`keep`)."""
        if mode not in PAUSE_MODES:
            raise ValueError(f"Invalid pause mode: {mode}")
        if mode == "abort":
            for message in self._core.abort_all():
                self._send(message)
        self._core.paused = True
        self._core.frozen = mode == "keep"
        if mode == "wait" and self._core.running:
            return Later(lambda: not self._core.running, lambda: None)
        return None

    def resume_scheduler(self) -> None:
        """Goes on."""
        self._core.paused = self._core.frozen = False
        self._resumed()

    def is_scheduler_paused(self) -> bool:
        """Whether no request is started."""
        return self._core.paused

    def sleep(self, level: int = 1, mode: str = "abort") -> Later | None:
        """Pauses, and from level 1 on gives up its memory."""
        later = self.pause_scheduler(mode)
        if level < 1:
            return later
        if later is not None:
            return Later(later.ready, self._fall_asleep)
        self._fall_asleep()
        return None

    def _fall_asleep(self) -> None:
        self._asleep = True

    def wake_up(self, tags: list[str] | None = None) -> bool:
        """Undoes `sleep`; whether all of it is back (tags that leave the weights or the cache asleep: no)."""
        if tags is None or not {"weights", "kv_cache"}.isdisjoint(tags):
            self._asleep = tags is not None and not {"weights", "kv_cache"}.issubset(tags)
        if not self._asleep:
            self.resume_scheduler()
        return not self._asleep

    def is_sleeping(self) -> bool:
        """Whether it sleeps or is paused."""
        return self._asleep or self._core.paused

    def release_kv_cache_memory(self) -> None:
        """Only when paused and empty."""
        if not self._core.paused or self._core.running:
            raise RuntimeError("release_kv_cache_memory() requires a completed pause first")

    def profile(
        self,
        is_start: bool = True,
        profile_prefix: str | None = None,
        delay_iterations: int | None = None,
        max_iterations: int | None = None,
    ) -> None:
        """Profiles nothing."""

    def execute_dummy_batch(self) -> None:
        """Computes nothing."""

    def collective_rpc(
        self, method: str, timeout: float | None = None, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """One worker's answer: the call itself."""
        return [{"method": method, "timeout": timeout, "args": list(args or ()), "kwargs": kwargs or {}}]

    def compute_weight_checksums(self) -> list[dict[str, str]]:
        """A made-up one."""
        return [{"mock": f"{self._core.options.seed:016x}"}]

    def get_weight_version(self) -> str:
        """What `set_weight_version` set."""
        return self._version

    def set_weight_version(self, weight_version: str) -> None:
        """Names the weights."""
        self._version = weight_version

    def list_loras(self) -> list[int]:
        """None."""
        return []

    def add_lora(self, lora_request: list[Any]) -> bool:
        """Fails as an engine without adapters does."""
        raise RuntimeError("LoRA is not enabled.")

    remove_lora = pin_lora = add_lora


class Desk:
    """Takes calls and sees that each gets its answer."""

    def __init__(self, core: Core, send: Callable[[Message], None], resumed: Callable[[], None]) -> None:
        self._core = core
        self._methods = Methods(core, send, resumed)
        self._send = send
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

    def refuse(self, call: Call) -> None:
        """The answer to a call that comes while the engine shuts down."""
        self._answer(call, "Server shutting down", None)

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
        full = self._core.options.full_arrays
        fields = [self._core.index, [], None, time.monotonic(), [call.call_id, failure, result]]
        self._send((call.client, [pack(fields + [None] * 4 if full else fields)]))
