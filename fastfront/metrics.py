"""Prometheus metrics under the names, types and labels of vLLM's Python frontend: those that can be counted here now.

Everything is counted once per request or per engine statistics message, nothing per token. Counting is adding to plain
numbers, since a request is served in less time than `prometheus_client`'s own instruments take to count it; that
library writes them out, and only a scrape pays for it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from fastfront.flow import FINISH_REASONS

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
#: Routes that vLLM leaves out: they are asked all the time and by machines.
_NOT_COUNTED = frozenset(("/metrics", "/health", "/load", "/ping", "/version"))
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_WHOLE = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


def token_buckets(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to `most` (tokens)."""
    steps = (step * 10**power for power in range(len(str(most))) for step in (1, 2, 5))
    return tuple(float(bound) for bound in steps if bound <= most)


class _Histogram:
    """How many values fell at or below each bound and not below the one before, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Bounds as Prometheus writes them, each with the count of all values up to it."""
        out: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            out.append((floatToGoString(bound), below))  # type: ignore[no-untyped-call]
        return out


class _Engine:
    """What is counted for one engine."""

    __slots__ = (
        "cache", "first_token", "generated", "generated_size", "prompt", "prompt_size", "running", "success", "waiting",
        "whole",
    )  # fmt: skip

    def __init__(self, sizes: tuple[float, ...]) -> None:
        self.prompt = 0
        self.generated = 0
        self.success = dict.fromkeys(FINISH_REASONS, 0)
        self.running = 0
        self.waiting = 0
        self.cache = 0.0
        self.first_token = _Histogram(_FIRST_TOKEN)
        self.whole = _Histogram(_WHOLE)
        self.prompt_size = _Histogram(sizes)
        self.generated_size = _Histogram(sizes)


class Metrics(Collector):
    """The process's metrics for one served model of `max_model_len` tokens; `engines` have series from the start."""

    def __init__(self, model_name: str, max_model_len: int, engines: Iterable[int] = (0,)) -> None:
        self.model_name = model_name
        self._sizes = token_buckets(max_model_len)
        self._engines = {index: _Engine(self._sizes) for index in engines}
        self._answers: dict[tuple[str, str, int], int] = {}
        self._created = time.time()
        self.registry = CollectorRegistry()
        for collector in (GCCollector, PlatformCollector, ProcessCollector):
            collector(registry=self.registry)
        self.registry.register(self)

    def _engine(self, index: int) -> _Engine:
        known = self._engines.get(index)
        if known is None:
            known = self._engines[index] = _Engine(self._sizes)
        return known

    def observe_scheduler(self, engine: int, running: int, waiting: int, kv_cache_usage: float) -> None:
        """The engine's own statistics; `kv_cache_usage` 0 to 1."""
        series = self._engine(engine)
        series.running = running
        series.waiting = waiting
        series.cache = kv_cache_usage

    def observe_first_token(self, engine: int, seconds: float) -> None:
        """A request's first output came `seconds` after it arrived."""
        self._engine(engine).first_token.observe(seconds)

    def observe_finished(
        self, engine: int, finish_reason: str, prompt_tokens: int, generated_tokens: int, seconds: float
    ) -> None:
        """A request ended (`finish_reason` of flow.FINISH_REASONS) `seconds` after it arrived."""
        series = self._engine(engine)
        series.success[finish_reason] += 1
        series.prompt += prompt_tokens
        series.generated += generated_tokens
        series.whole.observe(seconds)
        series.prompt_size.observe(prompt_tokens)
        series.generated_size.observe(generated_tokens)

    def observe_http(self, method: str, handler: str, status: int) -> None:
        """One HTTP answer; `handler` is the route's path or `none`, never what a client sent (that has no end)."""
        key = (method if method in _METHODS else "OTHER", handler, status)
        self._answers[key] = self._answers.get(key, 0) + 1

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and text, in the form that the Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self.registry)

    # --- prometheus_client's Collector

    def collect(self) -> Iterator[Metric]:
        """All families with what has been counted until now."""
        yield self._counter("vllm:prompt_tokens", "Prompt tokens of all requests.", "prompt")
        yield self._counter("vllm:generation_tokens", "Tokens generated.", "generated")
        yield self._success()
        yield self._gauge("vllm:num_requests_running", "Requests in the engine's batch.", "running")
        yield self._gauge("vllm:num_requests_waiting", "Requests in the engine's queue.", "waiting")
        yield self._gauge("vllm:kv_cache_usage_perc", "KV cache in use, 0 to 1.", "cache")
        yield self._histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", "first_token")
        yield self._histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", "whole")
        yield self._histogram("vllm:request_prompt_tokens", "Prompt tokens a request.", "prompt_size")
        yield self._histogram("vllm:request_generation_tokens", "Generated tokens a request.", "generated_size")
        yield self._http()

    def _series(self) -> Iterator[tuple[list[str], _Engine]]:
        for index, series in self._engines.items():
            yield [self.model_name, str(index)], series

    def _counter(self, name: str, text: str, field: str) -> Metric:
        family = CounterMetricFamily(name, text, labels=_LABELS)
        for labels, series in self._series():
            family.add_metric(labels, getattr(series, field), created=self._created)
        return family

    def _gauge(self, name: str, text: str, field: str) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_LABELS)
        for labels, series in self._series():
            family.add_metric(labels, getattr(series, field))
        return family

    def _histogram(self, name: str, text: str, field: str) -> Metric:
        family = HistogramMetricFamily(name, text, labels=_LABELS)
        for labels, series in self._series():
            histogram: _Histogram = getattr(series, field)
            family.add_metric(labels, histogram.buckets(), histogram.total)
        return family

    def _success(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:request_success", "Requests ended, by reason.", labels=(*_LABELS, "finished_reason")
        )
        for labels, series in self._series():
            for reason, count in series.success.items():
                family.add_metric([*labels, reason], count, created=self._created)
        return family

    def _http(self) -> Metric:
        classes: dict[tuple[str, str, str], int] = {}
        for (method, handler, status), count in self._answers.items():
            if handler not in _NOT_COUNTED:
                key = (method, f"{status // 100}xx", handler)
                classes[key] = classes.get(key, 0) + count
        family = CounterMetricFamily(
            "http_requests", "HTTP requests by method, status class and route.", labels=("method", "status", "handler")
        )
        for key, count in classes.items():
            family.add_metric(key, count, created=self._created)
        return family


_LABELS = ("model_name", "engine")
