"""The messages between a coordinator, its engines and its frontends (wire b.3), as msgpack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

#: One engine's load: requests waiting, requests running, share of the cache in use (0 to 1).
Counts = tuple[int, int, float]
#: Takes the loads of all engines of the deployment, by global rank.
OnCounts = Callable[[list[Counts]], None]

SUBSCRIBE: Final = b"\x01"
UNSUBSCRIBE: Final = b"\x00"
READY: Final = b"READY"


class Load(msgspec.Struct):
    """What of SchedulerStats (wire d.10) tells an engine's load, and in which step."""

    num_running_reqs: int
    num_waiting_reqs: int
    kv_cache_usage: float
    step_counter: int = 0
    current_wave: int = 0


class Report(msgspec.Struct, array_like=True):
    """What of an engine's message (wire d.7) is meant for the coordinator."""

    engine_index: int
    outputs: list[Any] = []
    scheduler_stats: Load | None = None
    timestamp: float = 0.0
    utility_output: Any = None
    finished_requests: Any = None
    wave_complete: int | None = None
    start_wave: int | None = None


class State(msgspec.Struct, array_like=True):
    """What a coordinator publishes to the frontends; `counts` is nil when only the wave has changed."""

    counts: list[Counts] | None
    wave: int
    running: bool


class Note(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A frontend's word that it has sent a request of `wave` to `engine` while all paused."""

    #: The global rank; vLLM's Python client sends the identity of its socket.
    engine: int | Annotated[bytes, msgspec.Meta(min_length=2, max_length=2)]
    wave: int

    @property
    def engine_index(self) -> int:
        """The engine's global rank."""
        return self.engine if isinstance(self.engine, int) else int.from_bytes(self.engine, "little")
