"""The utility calls of a mock engine (wire e): what each does to the core, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastfront.engine.mock.core import Core
from fastfront.engine.rank.desk import Later
from fastfront.engine.rank.frames import Message

PAUSE_MODES = ("abort", "wait", "keep")


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
