"""Starts fastfront with a mock engine behind it, and speaks HTTP to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import Start, Started


@dataclass
class Serving:
    """A running `fastfront serve` (model qwen3, named m) and its mock engines."""

    front: Started
    port: int
    rpc_port: int
    engines: list[Started] = field(default_factory=list)

    @property
    def base(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, body: dict[str, Any] | None = None, timeout: float = 60) -> tuple[int, Any]:
        """Status and decoded body of one request; a body makes it a POST."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if body is None:
                connection.request("GET", path)
            else:
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data else None
        finally:
            connection.close()

    def complete(self, **fields: Any) -> tuple[int, Any]:
        """A completion of "Hello"."""
        return self.ask("/v1/completions", {"model": "m", "prompt": "Hello", **fields})

    def events(self, **fields: Any) -> Iterator[dict[str, Any]]:
        """The events of a streamed completion, as they come; the stream must end with [DONE]."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            body = {"model": "m", "prompt": "Hello", "stream": True, **fields}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200
            done = False
            while line := answer.readline():
                if line.strip():
                    assert line.startswith(b"data: ")
                    done = line == b"data: [DONE]\n"
                    if not done:
                        yield json.loads(line[6:])
            assert done
        finally:
            connection.close()


def serve(
    start: Start,
    fastfront: list[str],
    peers: Path,
    free_port: Callable[[], int],
    *options: str,
    engine: tuple[str, ...] | None = (),
    model: str = "qwen3",
) -> Serving:
    """Starts the server and one mock engine with the words `engine` (None: no engine yet); waits until it answers."""
    port, rpc_port = free_port(), free_port()
    words = ["--served-model-name", "m", "--port", str(port), "--data-parallel-rpc-port", str(rpc_port)]
    front = start([*fastfront, "serve", peers / "models" / model, *words, "--data-parallel-size-local", "0", *options])
    serving = Serving(front, port, rpc_port)
    if engine is not None:
        add_engine(start, fastfront, serving, *engine)
        front.wait_http(f"{serving.base}/health")
    return serving


def add_engine(start: Start, fastfront: list[str], serving: Serving, *options: str) -> Started:
    """One more mock engine process."""
    where = ["--handshake", f"tcp://127.0.0.1:{serving.rpc_port}"]
    serving.engines.append(start([*fastfront, "mock-engine", *where, *options]))
    return serving.engines[-1]
