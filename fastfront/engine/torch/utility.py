"""The utility calls of the built-in engine (wire e)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from fastfront.engine.rank.desk import Later
from fastfront.engine.rank.frames import Message
from fastfront.engine.torch.engine import Engine
from fastfront.engine.torch.profile import Profile

log = logging.getLogger(__name__)

PAUSE_MODES = ("abort", "wait", "keep")
MEMORY = frozenset({"weights", "kv_cache"})


class Sleeper(Protocol):
    """What gives memory back and takes it again: runner.Runner."""

    def sleep(self, level: int) -> None:
        """Gives up the cache and the weights; `level` 1 or 2, which may differ in whence they come back."""

    def wake(self, tags: list[str] | None) -> None:
        """Undoes that for `weights`, `kv_cache` or, with None, both."""


class Methods:
    """The public methods are those that can be called; arguments are positional, as on the wire."""

    def __init__(
        self, engine: Engine, sleeper: Sleeper, send: Callable[[Message], None], profile_folder: Path | None
    ) -> None:
        self._engine = engine
        self._scheduler = engine.scheduler
        self._sleeper = sleeper
        self._send = send
        self._profile = Profile(profile_folder)
        #: What is given up: a part of MEMORY.
        self._asleep: frozenset[str] = frozenset()

    def after_step(self) -> None:
        """Counts a step for a profile that is being made."""
        self._profile.step()

    def get_supported_tasks(self) -> list[str]:
        """What the engine can do."""
        return ["generate"]

    # --- caches ---------------------------------------------------------------------------------------------------

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Forgets what the cache knows; False while requests run, unless those are to be computed anew."""
        return self._scheduler.reset_cache(running=reset_running_requests)

    def reset_mm_cache(self) -> None:
        """There is none."""

    def reset_encoder_cache(self) -> None:
        """There is none."""

    def release_kv_cache_memory(self) -> None:
        """Not served."""
        raise RuntimeError("the built-in engine gives its cache up only with the weights: call sleep")

    # --- pause and sleep ------------------------------------------------------------------------------------------

    def pause_scheduler(self, mode: str = "abort", clear_cache: bool = True) -> Later | None:
        """Starts no request any more; running ones are aborted, finished first (`wait`) or stand still (`keep`)."""
        if mode not in PAUSE_MODES:
            raise ValueError(f"Invalid pause mode: {mode}")
        if mode == "abort":
            for message in self._engine.abort_all():
                self._send(message)
        self._scheduler.paused = True
        # While it sleeps, what was preempted must not go on, however it is paused now.
        self._scheduler.frozen = mode == "keep" or bool(self._asleep)

        def finish() -> None:
            if clear_cache:
                self._scheduler.reset_cache(running=True)

        if mode == "wait" and self._scheduler.started:
            return Later(lambda: not self._scheduler.started, finish)
        finish()
        return None

    def resume_scheduler(self) -> None:
        """Goes on, which it cannot while it sleeps."""
        if self._asleep:
            raise RuntimeError("the engine sleeps: call wake_up first")
        self._scheduler.paused = self._scheduler.frozen = False

    def is_scheduler_paused(self) -> bool:
        """Whether no request is started."""
        return self._scheduler.paused

    def sleep(self, level: int = 1, mode: str = "abort") -> Later | None:
        """Pauses, and from level 1 on gives up its memory."""
        if level not in (0, 1, 2):
            raise ValueError(f"level must be 0, 1 or 2, not {level}")
        later = self.pause_scheduler(mode, level >= 1)
        if level < 1:
            return later

        def fall_asleep() -> None:
            if later is not None:
                later.then()
            began = time.monotonic()
            self._sleeper.sleep(level)
            self._asleep = MEMORY
            log.info("asleep after %.1f s", time.monotonic() - began)

        if later is not None:
            return Later(later.ready, fall_asleep)
        fall_asleep()
        return None

    def wake_up(self, tags: list[str] | None = None) -> bool:
        """Takes back what `tags` name (None: all); whether all of it is back, and with it the schedule goes on."""
        wanted = MEMORY if tags is None else frozenset(tags)
        if not wanted <= MEMORY | {"scheduling"}:
            raise ValueError(f"tags must be of weights, kv_cache and scheduling, not {sorted(wanted)}")
        back = wanted & self._asleep
        if back:
            self._sleeper.wake(sorted(back))
            self._asleep -= back
        if not self._asleep:
            self.resume_scheduler()
        return not self._asleep

    def is_sleeping(self) -> bool:
        """Whether it sleeps or is paused."""
        return bool(self._asleep) or self._scheduler.paused

    # --- the rest -------------------------------------------------------------------------------------------------

    def profile(
        self,
        is_start: bool = True,
        profile_prefix: str | None = None,
        delay_iterations: int | None = None,
        max_iterations: int | None = None,
    ) -> None:
        """Starts a profile of the steps, or writes it."""
        if is_start:
            self._profile.start(profile_prefix, delay_iterations or 0, max_iterations or 0)
        else:
            self._profile.stop()

    def get_weight_version(self) -> str:
        """What `set_weight_version` set."""
        return self._engine.weight_version

    def set_weight_version(self, weight_version: str) -> None:
        """Names the weights."""
        self._engine.set_weight_version(weight_version)

    def execute_dummy_batch(self) -> None:
        """Nothing to be done: no other rank waits for this one."""

    def collective_rpc(
        self, method: str, timeout: float | None = None, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """There are no workers with methods of their own."""
        raise NotImplementedError(f"the built-in engine has no workers, so none has a method {method!r}")

    def list_loras(self) -> list[int]:
        """None."""
        return []

    def add_lora(self, lora_request: list[Any]) -> bool:
        """Fails as an engine without adapters does."""
        raise RuntimeError("LoRA is not enabled.")

    remove_lora = pin_lora = add_lora
