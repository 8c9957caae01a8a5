"""Health, version, load, metrics, models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from fastfront.api import ops
from fastfront.api.state import ApiState, Limits
from fastfront.config import ApiConfig
from fastfront.errors import EngineDeadError, WorkerError
from tests.api.fakes import Client

if TYPE_CHECKING:
    from fastfront.api import state
    from fastfront.pipeline import Pipeline

    def fits(real: Pipeline) -> state.Pipeline:
        """The real pipeline is what the handlers ask for (checked by mypy)."""
        return real


@pytest.mark.parametrize("method, path", [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")])
def test_health(client: Client, method: str, path: str) -> None:
    alive = client.call(method, path, b"", {})
    assert (alive.status, alive.body, alive.content_type) == (200, b"", None)
    client.dead = EngineDeadError("gone")
    dead = client.call(method, path, b"", {})
    assert (dead.status, dead.body) == (503, b"")


def test_version(client: Client) -> None:
    assert client.get("/version").json == {"version": "0.32.0", "fastfront_version": "0.1.0", "native": False}


def test_load(client: Client) -> None:
    assert client.get("/load").body == b'{"server_load":0}'
    client.state.in_flight = 3
    assert client.get("/load").json == {"server_load": 3}
    others = [Client(metrics=Counts(b"a")), Client()]
    for number, other in enumerate(others, 1):
        other.state.in_flight = number
    client.state.others = told_by(others)
    assert client.get("/load").json == {"server_load": 6}


class Counts:
    """Metrics that are a name."""

    def __init__(self, name: bytes) -> None:
        self.name = name

    def snapshot(self) -> bytes:
        return self.name

    def render(self, accept: str, others: Iterable[bytes] = ()) -> tuple[str, bytes]:
        return f"for {accept}", b"+".join([self.name, *others])


def told_by(clients: list[Client]) -> Callable[[], Awaitable[list[bytes]]]:
    """What these processes tell."""

    async def tell() -> list[bytes]:
        return [ops.snapshot(client.state) for client in clients]

    return tell


def test_metrics() -> None:
    client = Client(metrics=Counts(b"a"))
    answer = client.get("/metrics", {"accept": "x"})
    assert (answer.body, answer.content_type) == (b"a", "for x")
    client.state.others = told_by([Client(metrics=Counts(b"b")), Client(metrics=Counts(b"c"))])
    assert client.get("/metrics", {"accept": "x"}).body == b"a+b+c"
    assert ("GET", "/metrics") not in Client().handlers


def test_a_process_that_does_not_tell() -> None:
    client = Client(metrics=Counts(b"a"))

    async def silent() -> list[bytes]:
        raise WorkerError("worker 1 does not say")

    client.state.others = silent
    for path in ("/metrics", "/load"):
        answer = client.get(path)
        assert (answer.status, answer.json["error"]["message"]) == (503, "worker 1 does not say")


def test_models(client: Client) -> None:
    data = client.get("/v1/models").json["data"]
    assert [(card["id"], card["root"], card["max_model_len"]) for card in data] == [
        ("m", "models/qwen3", 2048),
        ("alias", "models/qwen3", 2048),
    ]
    assert data[0]["created"] == data[0]["permission"][0]["created"] == 1796024516


def test_limits_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Limits.from_env() == Limits()
    monkeypatch.setenv("VLLM_MAX_STOP_STRINGS", "7")
    monkeypatch.setenv("VLLM_SKIP_MODEL_NAME_VALIDATION", "1")
    assert Limits.from_env() == Limits(stop_strings=7, any_model_name=True)


@pytest.mark.parametrize(
    ("settings", "told"), [({"fingerprint_mode": "none"}, None),
                           ({"fingerprint_mode": "custom", "fingerprint_value": "mine"}, "mine")],
)  # fmt: skip
def test_fingerprint_of_ones_own(settings: dict[str, Any], told: str | None) -> None:
    client = Client(settings=ApiConfig(**settings))
    for answer in (client.chat(), client.complete()):
        assert answer.json["system_fingerprint"] == told
    for options in ({}, {"stream_options": {"include_usage": True}}):
        for answer in (client.chat(stream=True, **options), client.complete(stream=True, **options)):
            assert answer.events[-1].get("system_fingerprint") == told
            assert ("system_fingerprint" in answer.events[-1]) == (told is not None)


def test_fingerprint_tells_models_apart(client: Client) -> None:
    def fingerprint(version: str) -> str:
        return str(ApiState(client.pipeline, version, "0", False, lambda: None).fingerprint)

    assert fingerprint("0.32.0") == fingerprint("0.32.0") == client.state.fingerprint
    assert fingerprint("0.32.1").startswith("vllm-0.32.1-")
