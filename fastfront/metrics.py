"""Prometheus metrics under the names, types and labels of vLLM's Python frontend: those that can be counted here now.

Everything is counted once per request or per engine statistics message, nothing per token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

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


@dataclass(slots=True)
class _Engine:
    """The series of one engine, looked up once."""

    prompt: Counter
    generated: Counter
    success: dict[str, Counter]
    running: Gauge
    waiting: Gauge
    cache: Gauge
    first_token: Histogram
    whole: Histogram
    prompt_size: Histogram
    generated_size: Histogram


class Metrics:
    """The process's metrics for one served model of `max_model_len` tokens; `engines` have series from the start."""

    def __init__(self, model_name: str, max_model_len: int, engines: Iterable[int] = (0,)) -> None:
        self.model_name = model_name
        self.registry = CollectorRegistry()
        for collector in (GCCollector, PlatformCollector, ProcessCollector):
            collector(registry=self.registry)
        labels, registry = ("model_name", "engine"), self.registry
        sizes = token_buckets(max_model_len)
        self._prompt = Counter("vllm:prompt_tokens", "Prompt tokens of all requests.", labels, registry=registry)
        self._generated = Counter("vllm:generation_tokens", "Tokens generated.", labels, registry=registry)
        self._success = Counter(
            "vllm:request_success", "Requests ended, by reason.", (*labels, "finished_reason"), registry=registry
        )
        self._running = Gauge("vllm:num_requests_running", "Requests in the engine's batch.", labels, registry=registry)
        self._waiting = Gauge("vllm:num_requests_waiting", "Requests in the engine's queue.", labels, registry=registry)
        self._cache = Gauge("vllm:kv_cache_usage_perc", "KV cache in use, 0 to 1.", labels, registry=registry)
        self._first_token = Histogram(
            "vllm:time_to_first_token_seconds", "From arrival to the first token.", labels,
            registry=registry, buckets=_FIRST_TOKEN,
        )  # fmt: skip
        self._whole = Histogram(
            "vllm:e2e_request_latency_seconds", "From arrival to the end.", labels, registry=registry, buckets=_WHOLE
        )
        self._prompt_size = Histogram(
            "vllm:request_prompt_tokens", "Prompt tokens a request.", labels, registry=registry, buckets=sizes
        )
        self._generated_size = Histogram(
            "vllm:request_generation_tokens", "Generated tokens a request.", labels, registry=registry, buckets=sizes
        )
        self._http = Counter(
            "http_requests", "HTTP requests by method, status class and route.", ("method", "status", "handler"),
            registry=registry,
        )  # fmt: skip
        self._answers: dict[tuple[str, str, str], Counter] = {}
        self._engines: dict[int, _Engine] = {}
        for index in engines:
            self._engine(index)

    def _engine(self, index: int) -> _Engine:
        known = self._engines.get(index)
        if known is None:
            label = (self.model_name, str(index))
            known = self._engines[index] = _Engine(
                prompt=self._prompt.labels(*label),
                generated=self._generated.labels(*label),
                success={reason: self._success.labels(*label, reason) for reason in FINISH_REASONS},
                running=self._running.labels(*label),
                waiting=self._waiting.labels(*label),
                cache=self._cache.labels(*label),
                first_token=self._first_token.labels(*label),
                whole=self._whole.labels(*label),
                prompt_size=self._prompt_size.labels(*label),
                generated_size=self._generated_size.labels(*label),
            )
        return known

    def observe_scheduler(self, engine: int, running: int, waiting: int, kv_cache_usage: float) -> None:
        """The engine's own statistics; `kv_cache_usage` 0 to 1."""
        series = self._engine(engine)
        series.running.set(running)
        series.waiting.set(waiting)
        series.cache.set(kv_cache_usage)

    def observe_first_token(self, engine: int, seconds: float) -> None:
        """A request's first output came `seconds` after it arrived."""
        self._engine(engine).first_token.observe(seconds)

    def observe_finished(
        self, engine: int, finish_reason: str, prompt_tokens: int, generated_tokens: int, seconds: float
    ) -> None:
        """A request ended (`finish_reason` of flow.FINISH_REASONS) `seconds` after it arrived."""
        series = self._engine(engine)
        series.success[finish_reason].inc()
        series.prompt.inc(prompt_tokens)
        series.generated.inc(generated_tokens)
        series.whole.observe(seconds)
        series.prompt_size.observe(prompt_tokens)
        series.generated_size.observe(generated_tokens)

    def observe_http(self, method: str, handler: str, status: int) -> None:
        """One HTTP answer; `handler` is the route's path or `none`, never what a client sent (that has no end)."""
        if handler in _NOT_COUNTED:
            return
        key = (method if method in _METHODS else "OTHER", f"{status // 100}xx", handler)
        series = self._answers.get(key)
        if series is None:
            series = self._answers[key] = self._http.labels(*key)
        series.inc()

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and text, in the form that the Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self.registry)
