"""The statistics an engine sends along (wire d.8, d.10)."""

from __future__ import annotations

from typing import Any

QUEUED, SCHEDULED, PREEMPTED = 1, 2, 3


def prefix_cache_stats(
    requests: int = 0,
    queries: int = 0,
    hits: int = 0,
    *,
    preempted: tuple[int, int, int] = (0, 0, 0),
    reset: bool = False,
) -> dict[str, Any]:
    """PrefixCacheStats: requests that looked into the cache, the tokens they looked for and those they found.

    `preempted` is the same of requests that had been preempted.
    """
    return {
        "reset": reset,
        "requests": requests,
        "queries": queries,
        "hits": hits,
        "preempted_requests": preempted[0],
        "preempted_queries": preempted[1],
        "preempted_hits": preempted[2],
        "hits_by_source": {},
    }


def scheduler_stats(
    *,
    running: int,
    waiting: int,
    usage: float,
    prefix: dict[str, Any],
    skipped: int = 0,
    step: int = 0,
    wave: int = 0,
) -> dict[str, Any]:
    """SchedulerStats with every key; `usage` is the share of the cache that is taken, `prefix` what is new there."""
    return {
        "num_running_reqs": running,
        "num_waiting_reqs": waiting,
        "num_skipped_waiting_reqs": skipped,
        "num_kv_fetch_reqs_by_stage": {"waiting_to_start": 0, "in_progress": 0, "completed_waiting": 0},
        "step_counter": step,
        "current_wave": wave,
        "kv_cache_usage": usage,
        "iteration_details": None,
        "prefix_cache_stats": prefix,
        "connector_prefix_cache_stats": None,
        "kv_cache_eviction_events": [],
        "spec_decoding_stats": None,
        "kv_connector_stats": None,
        "ec_connector_stats": None,
        "waiting_lora_adapters": {},
        "running_lora_adapters": {},
        "cudagraph_stats": None,
        "perf_stats": None,
    }


def event(kind: int, at: float) -> dict[str, Any]:
    """EngineCoreEvent; monotonic seconds."""
    return {"type": kind, "timestamp": at}


def prefill_stats(prompt: int, cached: int, created: int = 0) -> dict[str, int]:
    """How a prompt of `prompt` tokens was prefilled: `cached` came from the cache, `created` went into it."""
    return {
        "num_prompt_tokens": prompt,
        "num_computed_tokens": prompt - cached,
        "num_cached_tokens": cached,
        "num_local_cached_tokens": cached,
        "num_external_cached_tokens": 0,
        "num_cache_creation_tokens": created,
    }
