"""Metrics against the exposition of vLLM's Python frontend: names, types, labels and buckets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fastfront.metrics import Metrics, token_buckets


def filled() -> Metrics:
    metrics = Metrics("qwen3", 2048)
    metrics.observe_scheduler(0, running=3, waiting=2, kv_cache_usage=0.25)
    metrics.observe_first_token(0, 0.03)
    metrics.observe_finished(0, "stop", prompt_tokens=7, generated_tokens=5, seconds=0.4)
    metrics.observe_finished(1, "length", prompt_tokens=1, generated_tokens=1, seconds=9000.0)
    metrics.observe_http("POST", "/v1/completions", 200)
    metrics.observe_http("BREW", "none", 405)
    metrics.observe_http("GET", "/health", 200)
    return metrics


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_values() -> None:
    content_type, body = filled().render("*/*")
    assert content_type.startswith("text/plain; version=")
    got = samples(body.decode())
    zero = frozenset({("model_name", "qwen3"), ("engine", "0")})
    assert got["vllm:num_requests_running", zero] == 3
    assert got["vllm:num_requests_waiting", zero] == 2
    assert got["vllm:kv_cache_usage_perc", zero] == 0.25
    assert got["vllm:prompt_tokens_total", zero] == 7
    assert got["vllm:generation_tokens_total", zero] == 5
    assert got["vllm:request_success_total", zero | {("finished_reason", "stop")}] == 1
    assert got["vllm:request_success_total", zero | {("finished_reason", "abort")}] == 0
    assert got["vllm:time_to_first_token_seconds_bucket", zero | {("le", "0.02")}] == 0
    assert got["vllm:time_to_first_token_seconds_bucket", zero | {("le", "0.04")}] == 1
    assert got["vllm:e2e_request_latency_seconds_sum", zero] == 0.4
    served = {("method", "POST"), ("status", "2xx"), ("handler", "/v1/completions")}
    unknown = {("method", "OTHER"), ("status", "4xx"), ("handler", "none")}
    assert got["http_requests_total", frozenset(served)] == 1
    assert got["http_requests_total", frozenset(unknown)] == 1
    assert not any(("handler", "/health") in labels for _, labels in got)


def test_openmetrics_when_asked_for() -> None:
    content_type, body = filled().render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_two_in_one_process() -> None:
    assert Metrics("a", 10).registry is not Metrics("b", 10).registry


@pytest.mark.parametrize("most, last", [(1, 1.0), (9, 5.0), (2048, 2000.0), (40960, 20000.0)])
def test_token_buckets(most: int, last: float) -> None:
    assert token_buckets(most)[-1] == last
    assert token_buckets(most)[0] == 1.0


def test_families_are_vllms(shared: Path) -> None:
    """Same type, same labels and same buckets as there, for every family that is here."""
    theirs = (shared / "features" / "metrics_py.txt").read_text()
    ours = Metrics("qwen3", 2048)
    ours.observe_http("POST", "/v1/completions", 200)
    text = ours.render("")[1].decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", theirs, re.MULTILINE))
    families = re.findall(r"^# TYPE ((?:vllm:|http_)\S+) (\S+)", text, re.MULTILINE)
    assert len(families) >= 10
    for name, kind in families:
        assert kinds.get(name) == kind, name
    there, here = samples(theirs), samples(text)
    assert {key for key in here if key[0].startswith(("vllm:", "http_"))} <= set(there)
    buckets = {key for key in there if key[0].endswith("_bucket")}
    for name in {key[0] for key in here if key[0].endswith("_bucket")}:
        assert {key for key in here if key[0] == name} == {key for key in buckets if key[0] == name}
