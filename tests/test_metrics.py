"""Metrics against the exposition of vLLM's Python frontend (names, types, labels, buckets), and the sum of several."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fastfront.metrics import Metrics, token_buckets

TEXT, OPENMETRICS = "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0"
ZERO = frozenset({("model_name", "qwen3"), ("engine", "0")})

#: What happens to the processes, each time to the next of them; halves and quarters, whose sums no order rounds.
EVENTS: tuple[Callable[[Metrics], None], ...] = (
    lambda to: to.observe_first_token(0, 0.25),
    lambda to: to.observe_first_token(0, 0.5),
    lambda to: to.observe_first_token(1, 4096.0),
    lambda to: to.observe_finished(0, "stop", prompt_tokens=7, generated_tokens=5, seconds=0.5),
    lambda to: to.observe_finished(0, "length", prompt_tokens=300, generated_tokens=20, seconds=1.25),
    lambda to: to.observe_finished(0, "stop", prompt_tokens=1, generated_tokens=2000, seconds=9000.0),
    lambda to: to.observe_finished(1, "abort", prompt_tokens=2, generated_tokens=0, seconds=0.25),
    lambda to: to.observe_finished(5, "stop", prompt_tokens=3, generated_tokens=1, seconds=0.75),
    lambda to: to.observe_http("POST", "/v1/completions", 200),
    lambda to: to.observe_http("POST", "/v1/completions", 201),
    lambda to: to.observe_http("POST", "/v1/completions", 200),
    lambda to: to.observe_http("BREW", "none", 405),
    lambda to: to.observe_scheduler(0, running=3, waiting=2, kv_cache_usage=0.25),
    lambda to: to.observe_scheduler(1, running=4, waiting=0, kv_cache_usage=0.5),
)


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.wall, self.mono = 1000.0, 5.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("fastfront.metrics.time", clock)
    return clock


def workers(count: int) -> list[Metrics]:
    return [Metrics("qwen3", 2048, engines=(0, 1), alone=False) for _ in range(count)]


def scrape(scraped: int, of: Sequence[Metrics], accept: str = TEXT) -> str:
    """The exposition of one of several."""
    others = [other.snapshot() for index, other in enumerate(of) if index != scraped]
    return of[scraped].render(accept, others)[1].decode()


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
    assert got["vllm:num_requests_running", ZERO] == 3
    assert got["vllm:num_requests_waiting", ZERO] == 2
    assert got["vllm:kv_cache_usage_perc", ZERO] == 0.25
    assert got["vllm:prompt_tokens_total", ZERO] == 7
    assert got["vllm:generation_tokens_total", ZERO] == 5
    assert got["vllm:request_success_total", ZERO | {("finished_reason", "stop")}] == 1
    assert got["vllm:request_success_total", ZERO | {("finished_reason", "abort")}] == 0
    assert got["vllm:time_to_first_token_seconds_bucket", ZERO | {("le", "0.02")}] == 0
    assert got["vllm:time_to_first_token_seconds_bucket", ZERO | {("le", "0.04")}] == 1
    assert got["vllm:e2e_request_latency_seconds_sum", ZERO] == 0.4
    served = {("method", "POST"), ("status", "2xx"), ("handler", "/v1/completions")}
    unknown = {("method", "OTHER"), ("status", "4xx"), ("handler", "none")}
    assert got["http_requests_total", frozenset(served)] == 1
    assert got["http_requests_total", frozenset(unknown)] == 1
    assert not any(("handler", "/health") in labels for _, labels in got)


def test_openmetrics_when_asked_for() -> None:
    content_type, body = filled().render(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_two_in_one_process() -> None:
    first, second = Metrics("a", 10), Metrics("b", 10)
    first.observe_first_token(0, 0.5)
    key = "vllm:time_to_first_token_seconds_count"
    assert samples(first.render("")[1].decode())[key, frozenset({("model_name", "a"), ("engine", "0")})] == 1
    assert samples(second.render("")[1].decode())[key, frozenset({("model_name", "b"), ("engine", "0")})] == 0


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


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS])
@pytest.mark.parametrize("scraped", [0, 1, 2])
def test_three_count_as_one(clock: Clock, accept: str, scraped: int) -> None:
    """Whichever is scraped, it shows what a single process shows that saw everything; only the order is its own."""
    three, (one,) = workers(3), workers(1)
    for index, event in enumerate(EVENTS):
        event(three[index % 3])
        event(one)
    got, want = scrape(scraped, three, accept), one.render(accept)[1].decode()
    assert sorted(got.splitlines()) == sorted(want.splitlines())
    assert got.endswith("# EOF\n") == (accept == OPENMETRICS)
    assert 'prompt_tokens_total{engine="0",model_name="qwen3"} 308.0\n' in got
    # Each family has something to add, so one that is not added shows.
    for family in text_string_to_metric_families(one.render(TEXT)[1].decode()):
        assert any(sample.value for sample in family.samples), family.name


@pytest.mark.parametrize("last", [0, 1, 2])
@pytest.mark.parametrize("scraped", [0, 1, 2])
def test_an_engines_own_numbers_are_those_heard_last(clock: Clock, scraped: int, last: int) -> None:
    three = workers(3)
    for index, metrics in enumerate(three):
        clock.mono = 9.0 if index == last else float(index)
        metrics.observe_scheduler(0, running=index + 1, waiting=10 * index + 1, kv_cache_usage=index / 4)
    got = samples(scrape(scraped, three))
    assert got["vllm:num_requests_running", ZERO] == last + 1
    assert got["vllm:num_requests_waiting", ZERO] == 10 * last + 1
    assert got["vllm:kv_cache_usage_perc", ZERO] == last / 4


@pytest.mark.parametrize("scraped", [0, 1])
def test_never_heard_is_older_than_any(clock: Clock, scraped: int) -> None:
    clock.mono = 0.0
    two = workers(2)
    two[1].observe_scheduler(0, running=3, waiting=0, kv_cache_usage=0.0)
    assert samples(scrape(scraped, two))["vllm:num_requests_running", ZERO] == 3


def test_created_is_the_earliest(clock: Clock) -> None:
    three = []
    for began in (3000.0, 2000.0, 4000.0):
        clock.wall = began
        three += workers(1)
    three[2].observe_http("GET", "/v1/models", 200)
    created = {value for (name, _), value in samples(scrape(0, three)).items() if name.endswith("_created")}
    assert created == {2000.0}


def test_a_sum_is_the_same_whoever_is_scraped() -> None:
    """Not even the last bit may shrink from one scrape to the next: that reads as a counter's restart."""
    three = workers(3)
    for metrics, seconds in zip(three, (0.1, 0.3, 0.7), strict=True):
        metrics.observe_first_token(0, seconds)
    key = "vllm:time_to_first_token_seconds_sum", ZERO
    assert len({samples(scrape(index, three))[key] for index in range(3)}) == 1


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS])
def test_a_scrape_changes_nothing(accept: str) -> None:
    one, other = workers(2)
    for event in EVENTS:
        event(one)
        event(other)
    before, alone, others = one.snapshot(), one.render(accept), [other.snapshot()] * 2
    first = one.render(accept, others)
    assert first != alone
    assert one.render(accept, others) == first
    assert one.render(accept) == alone
    assert one.snapshot() == before


def test_a_process_among_several_tells_nothing_of_itself() -> None:
    def families(metrics: Metrics) -> set[str]:
        return set(re.findall(r"^# TYPE (\S+)", metrics.render(TEXT)[1].decode(), re.MULTILINE))

    alone, among = Metrics("qwen3", 2048), Metrics("qwen3", 2048, alone=False)
    of_process = {name for name in families(alone) if name.startswith(("python_", "process_"))}
    # What it tells in process_* is read from /proc.
    if Path("/proc/self/stat").exists():
        assert "process_cpu_seconds_total" in of_process
    assert {"python_info", "python_gc_objects_collected_total"} <= of_process
    assert families(among) == families(alone) - of_process


def changed(**fields: object) -> bytes:
    """A snapshot with other fields; None leaves one out."""
    whole = msgspec.msgpack.decode(workers(1)[0].snapshot()) | fields
    return msgspec.msgpack.encode({name: value for name, value in whole.items() if value is not None})


@pytest.mark.parametrize(
    "snapshot, told",
    [
        (b"", "no snapshot"),
        (b"\xc1", "no snapshot"),
        (workers(1)[0].snapshot()[:-1], "no snapshot"),
        (changed(answers=None), "answers"),
        (changed(since=1), "since"),
        (changed(created="today"), "created"),
        (Metrics("qwen3", 9).snapshot(), "bounds"),
    ],
    ids=["empty", "noise", "cut", "a field less", "a field more", "another type", "another model"],
)
def test_a_snapshot_that_cannot_be_read_is_told(snapshot: bytes, told: str) -> None:
    metrics = filled()
    before = metrics.snapshot()
    with pytest.raises(ValueError, match=told):
        metrics.render(TEXT, [workers(1)[0].snapshot(), snapshot])
    assert metrics.snapshot() == before
