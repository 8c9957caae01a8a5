"""The statistics a real engine sends along (wire d.8, d.10), with figures that fit the mock's own state."""

from __future__ import annotations

from typing import Any

BLOCKS = 100_000
BLOCK_SIZE = 16
QUEUED, SCHEDULED = 1, 2


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
    """SchedulerStats with every key; `tokens` are those held in the cache, `new_*` came in since the last one."""
    prefix = {
        "reset": False,
        "requests": new_requests,
        "queries": new_tokens,
        "hits": cached_tokens,
        "preempted_requests": 0,
        "preempted_queries": 0,
        "preempted_hits": 0,
        "hits_by_source": {},
    }
    return {
        "num_running_reqs": running,
        "num_waiting_reqs": waiting,
        "num_skipped_waiting_reqs": 0,
        "num_kv_fetch_reqs_by_stage": {"waiting_to_start": 0, "in_progress": 0, "completed_waiting": 0},
        "step_counter": step,
        "current_wave": wave,
        "kv_cache_usage": min(1.0, tokens / (BLOCKS * BLOCK_SIZE)),
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


def events(queued: float, scheduled: float) -> list[dict[str, Any]]:
    """The two events of a first output; monotonic seconds."""
    return [{"type": QUEUED, "timestamp": queued}, {"type": SCHEDULED, "timestamp": scheduled}]


def prefill_stats(prompt: int, cached: int) -> dict[str, int]:
    """How a prompt of `prompt` tokens was prefilled, `cached` of them from the cache."""
    return {
        "num_prompt_tokens": prompt,
        "num_computed_tokens": prompt - cached,
        "num_cached_tokens": cached,
        "num_local_cached_tokens": cached,
        "num_external_cached_tokens": 0,
        "num_cache_creation_tokens": 0,
    }
