"""The statistics a real engine sends along (wire d.8, d.10), with figures that fit the mock's own state."""

from __future__ import annotations

from typing import Any

from fastfront.engine.rank import stats

BLOCKS = 100_000
BLOCK_SIZE = 16


def scheduler_stats(
    *,
    running: int,
    waiting: int,
    tokens: int,
    step: int = 0,
    wave: int = 0,
    new_requests: int = 0,
    new_tokens: int = 0,
    cached_tokens: int = 0,
) -> dict[str, Any]:
    """SchedulerStats; `tokens` are those held in the cache, `new_*` came in since the last one."""
    return stats.scheduler_stats(
        running=running,
        waiting=waiting,
        usage=min(1.0, tokens / (BLOCKS * BLOCK_SIZE)),
        prefix=stats.prefix_cache_stats(new_requests, new_tokens, cached_tokens),
        step=step,
        wave=wave,
    )


def events(queued: float, scheduled: float) -> list[dict[str, Any]]:
    """The two events of a first output; monotonic seconds."""
    return [stats.event(stats.QUEUED, queued), stats.event(stats.SCHEDULED, scheduled)]


prefill_stats = stats.prefill_stats
