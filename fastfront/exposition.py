"""The text of `/metrics`: what `metrics.py` counts, under the names, types and labels of vLLM's Python frontend."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from fastfront.metrics import Counts, EngineCounts, Histogram

_LABELS = ("model_name", "engine")
#: Routes that vLLM leaves out: they are asked all the time and by machines.
_NOT_COUNTED = frozenset(("/metrics", "/health", "/load", "/ping", "/version"))
#: What describes this process: python_*, process_*.
_PROCESS = CollectorRegistry()
for _collector in (GCCollector, PlatformCollector, ProcessCollector):
    _collector(registry=_PROCESS)


def expose(model_name: str, counts: Counts, accept: str, *, alone: bool) -> tuple[str, bytes]:
    """Content type and text of `counts` in the form `accept` asks for; with what describes this process if `alone`."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(_Families(model_name, counts, alone))


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Bounds as Prometheus writes them, each with the count of all values up to it."""
    out: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*histogram.bounds, inf), histogram.counts, strict=True):
        below += count
        out.append((floatToGoString(bound), below))  # type: ignore[no-untyped-call]
    return out


class _Families(Collector):
    """Counts as prometheus_client's families, after those of the process if it is `alone`."""

    def __init__(self, model_name: str, counts: Counts, alone: bool) -> None:
        self._model_name = model_name
        self._counts = counts
        self._alone = alone

    def collect(self) -> Iterator[Metric]:
        """All families, in the order in which they are written."""
        if self._alone:
            yield from _PROCESS.collect()
        yield self._counter("vllm:prompt_tokens", "Prompt tokens of all requests.", "prompt_size")
        yield self._counter("vllm:generation_tokens", "Tokens generated.", "generated_size")
        yield self._success()
        yield self._gauge("vllm:num_requests_running", "Requests in the engine's batch.", "running")
        yield self._gauge("vllm:num_requests_waiting", "Requests in the engine's queue.", "waiting")
        yield self._gauge("vllm:kv_cache_usage_perc", "KV cache in use, 0 to 1.", "cache")
        yield self._histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", "first_token")
        yield self._histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", "whole")
        yield self._histogram("vllm:request_prompt_tokens", "Prompt tokens a request.", "prompt_size")
        yield self._histogram("vllm:request_generation_tokens", "Generated tokens a request.", "generated_size")
        yield self._http()

    def _series(self) -> Iterator[tuple[list[str], EngineCounts]]:
        for index, series in self._counts.engines.items():
            yield [self._model_name, str(index)], series

    def _counter(self, name: str, text: str, field: str) -> Metric:
        family = CounterMetricFamily(name, text, labels=_LABELS)
        for labels, series in self._series():
            histogram: Histogram = getattr(series, field)
            family.add_metric(labels, histogram.total, created=self._counts.created)
        return family

    def _gauge(self, name: str, text: str, field: str) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_LABELS)
        for labels, series in self._series():
            family.add_metric(labels, getattr(series, field))
        return family

    def _histogram(self, name: str, text: str, field: str) -> Metric:
        family = HistogramMetricFamily(name, text, labels=_LABELS)
        for labels, series in self._series():
            histogram: Histogram = getattr(series, field)
            family.add_metric(labels, _buckets(histogram), histogram.total)
        return family

    def _success(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:request_success", "Requests ended, by reason.", labels=(*_LABELS, "finished_reason")
        )
        for labels, series in self._series():
            for reason, count in series.success.items():
                family.add_metric([*labels, reason], count, created=self._counts.created)
        return family

    def _http(self) -> Metric:
        classes: dict[tuple[str, str, str], int] = {}
        for (method, handler, status), count in self._counts.answers.items():
            if handler not in _NOT_COUNTED:
                key = (method, f"{status // 100}xx", handler)
                classes[key] = classes.get(key, 0) + count
        family = CounterMetricFamily(
            "http_requests", "HTTP requests by method, status class and route.", labels=("method", "status", "handler")
        )
        for key, count in classes.items():
            family.add_metric(key, count, created=self._counts.created)
        return family
