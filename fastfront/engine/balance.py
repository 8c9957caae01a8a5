"""Which of several data-parallel engines takes a request: vLLM's rule (wire g), on the freshest numbers there are.

An engine's load is the greater of what this frontend has open there and what the engine last said of itself (waiting
and running); waiting requests weigh up to four times as much as its KV cache fills. Ties go round.
"""

from __future__ import annotations

import logging

from fastfront.engine import wire
from fastfront.errors import RequestError, WireError

log = logging.getLogger(__name__)


def read_stats(raw: bytes) -> wire.SchedulerStats | None:
    """An engine's scheduler_stats; None, and a line in the log, if they are malformed (no request needs them)."""
    try:
        return wire.decode(raw, wire.SchedulerStats)
    except WireError as error:
        log.warning("%s", error)
        return None


class Load:
    """One engine: `open` requests of this frontend, and the engine's own last word on itself."""

    def __init__(self) -> None:
        self.open = 0
        self.waiting = 0
        self.running = 0
        self.kv_cache_usage = 0.0  # 0 to 1
        self.known = False
        self.stats: bytes | None = None  # scheduler_stats as they came, read when they are needed

    def tell(self, waiting: int, running: int, kv_cache_usage: float) -> None:
        """Takes what the engine, or a coordinator, says of it."""
        self.waiting, self.running, self.kv_cache_usage, self.known = waiting, running, kv_cache_usage, True

    def read(self) -> None:
        """Takes `stats` into account."""
        raw, self.stats = self.stats, None
        stats = read_stats(raw) if raw is not None else None
        if stats is not None:
            self.tell(stats.num_waiting_reqs, stats.num_running_reqs, stats.kv_cache_usage)

    def score(self, clients: int) -> float:
        """The smaller, the sooner it is chosen."""
        load: float = max(clients * self.open, self.waiting + self.running)
        return load + self.waiting * 6.0 * max(0.0, self.kv_cache_usage - 0.5)


class Balancer:
    """The loads of the engines with the global ranks `start` to `start + count - 1`.

    `clients` is how many frontends share the engines, `client` which of them this is: each begins its round elsewhere.
    """

    def __init__(self, start: int, count: int, client: int = 0, clients: int = 1) -> None:
        self.loads = {rank: Load() for rank in range(start, start + count)}
        self._start = start
        self._count = count
        self._clients = clients
        self._next = count * client // clients

    def choose(self, rank: int | None) -> int:
        """The engine for one request: the one asked for (RequestError if there is none), or the least loaded."""
        if rank is not None:
            if rank not in self.loads:
                last = self._start + self._count - 1
                raise RequestError(
                    f"data_parallel_rank {rank} is out of range: the engines here are {self._start} to {last}",
                    param="data_parallel_rank", value=rank, limit=last,
                )  # fmt: skip
            return rank
        if self._count == 1:
            return self._start
        for load in self.loads.values():
            load.read()
        order = [self._start + (self._next + step) % self._count for step in range(self._count)]
        best = min(order, key=lambda index: self.loads[index].score(self._clients))
        self._next = (self._next + 1) % self._count
        chosen = self.loads[best]
        if chosen.known:
            # Until the engine speaks again this request counts as one that waits there.
            chosen.waiting += self._clients
        return best
