"""A run as a JSON object with the keys of vLLM's benchmark, and the files it goes into."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fastfront.errors import ConfigError
from fastfront.load.metrics import Stats, Summary
from fastfront.load.options import Load, Wanted
from fastfront.load.record import Record
from fastfront.load.steady import Steady

Result = dict[str, Any]


def result(summary: Summary, load: Load, steady: Steady | None = None, records: Sequence[Record] = ()) -> Result:
    """The run's settings and figures; with `records` every request's own as well."""
    traffic = load.traffic
    out: Result = {
        "num_prompts": load.num_prompts,
        "request_rate": traffic.rate if math.isfinite(traffic.rate) else "inf",
        "burstiness": traffic.burstiness if math.isfinite(traffic.burstiness) else "inf",
        "max_concurrency": traffic.max_concurrency,
    }
    if traffic.ramp is not None:
        names = ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")
        out |= dict(zip(names, traffic.ramp, strict=True))
    out |= figures(summary, load.wanted)
    out["max_output_tokens_per_s"] = summary.peak_output
    out["max_concurrent_requests"] = summary.peak_requests
    if steady is not None:
        out["steady_state"] = _steady(steady)
    return out | (_details(records) if records else {})


def figures(summary: Summary, wanted: Wanted) -> Result:
    """What a summary says, by vLLM's names."""
    out: Result = {
        "duration": summary.duration,
        "completed": summary.completed,
        "failed": summary.failed,
        "total_input_tokens": summary.input_tokens,
        "total_output_tokens": summary.output_tokens,
        "request_throughput": summary.request_throughput,
        "request_goodput": summary.goodput,
        "input_throughput": summary.input_throughput,
        "output_throughput": summary.output_throughput,
        "total_token_throughput": summary.total_throughput,
    }
    for name in wanted.metrics:
        out |= _metric(name, summary.stats[name], wanted.percentiles)
    return out


def _metric(name: str, stats: Stats, percentiles: Sequence[float]) -> Result:
    out = {f"mean_{name}_ms": stats.mean, f"median_{name}_ms": stats.median, f"std_{name}_ms": stats.std}
    return out | {f"p{p:g}_{name}_ms": stats.percentiles[p] for p in percentiles}


def _details(records: Sequence[Record]) -> Result:
    return {
        "input_lens": [record.prompt_tokens for record in records],
        "output_lens": [0 if record.error else record.output_tokens for record in records],
        "ttfts": [record.ttft for record in records],
        "itls": [record.itls for record in records],
        "latencies": [record.latency for record in records],
        "start_times": [record.start for record in records],
        "queue_times": [record.queued for record in records],
        "generated_texts": [record.text for record in records],
        "errors": [record.error for record in records],
    }


def _steady(steady: Steady) -> Result:
    window = {
        "start_s": steady.start, "end_s": steady.end, "duration_s": steady.duration,
        "target_concurrency": steady.wish, "threshold": steady.threshold, "threshold_abs": steady.needed,
        "observed_peak": steady.peak, "requests_started_in_window": steady.started,
        "requests_completed_in_window": steady.completed, "requests_total": steady.total,
        "warning": steady.warning or None,
    }  # fmt: skip
    return {
        "window": window,
        "request_throughput": steady.request_throughput,
        "input_throughput": steady.input_throughput,
        "output_throughput": steady.output_throughput,
        "total_token_throughput": steady.input_throughput + steady.output_throughput,
        **_metric("ttft", steady.ttft, sorted(steady.ttft.percentiles)),
        **_metric("tpot", steady.tpot, sorted(steady.tpot.percentiles)),
    }


def file_name(load: Load, label: str, model: str, now: datetime) -> str:
    """How a result's file is called where nobody says: as vLLM calls it."""
    traffic = load.traffic
    at_once = f"-concurrency{traffic.max_concurrency}" if traffic.max_concurrency is not None else ""
    rate = f"{traffic.rate:g}qps"
    if traffic.ramp is not None:
        kind, first, last = traffic.ramp
        rate = f"ramp-up-{kind}-{first:g}qps-{last:g}qps"
    return f"{label}-{rate}{at_once}-{model.rsplit('/', 1)[-1]}-{now:%Y%m%d-%H%M%S}.json"


def save(path: Path, results: Sequence[Result], *, append: bool) -> None:
    """Writes one object a line, below what is there or in its place; ConfigError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+" if append else "w", encoding="utf-8") as out:
            if append and out.tell():
                out.write("\n")
            out.write("\n".join(json.dumps(one) for one in results))
    except OSError as error:
        raise ConfigError(f"cannot write the result to {path}: {error}") from None


def read(path: Path) -> Result:
    """The last result in a file; ConfigError where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8").strip().rsplit("\n", 1)[-1])
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the result in {path}: {error}") from None
    if not isinstance(found, dict) or "completed" not in found:
        raise ConfigError(f"{path} holds no result of a benchmark")
    return found
