"""A whole server with a mock engine: what it does when clients, engines and signals come and go."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start, Started
from tests.e2e.serving import Serving, add_engine, serve
from tests.http.conftest import Client

pytestmark = pytest.mark.peer


@pytest.fixture
def server(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int]
) -> Callable[..., Serving]:
    """serve() with everything but the options."""

    def begin(*options: str, engine: tuple[str, ...] | None = ()) -> Serving:
        return serve(start, fastfront, peers, free_port, *options, engine=engine)

    return begin


def recorded(path: Path) -> list[dict[str, Any]]:
    """What a mock engine was sent so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def aborted(path: Path) -> list[str]:
    return [request_id for message in recorded(path) if message["kind"] == 1 for request_id in message["body"]]


def added(path: Path) -> list[list[Any]]:
    return [message["body"] for message in recorded(path) if message["kind"] == 0]


def request_bytes(**fields: Any) -> bytes:
    """A completion request as it goes over the wire."""
    body = json.dumps({"model": "m", "prompt": "Hello", **fields}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def send_request(serving: Serving, **fields: Any) -> socket.socket:
    """A completion request on a socket of its own, nothing read yet."""
    client = socket.create_connection(("127.0.0.1", serving.port), timeout=60)
    client.sendall(request_bytes(**{"max_tokens": 100_000 // 4, **fields}))
    return client


def test_streams_that_were_sent_for_together_come_one_after_the_other(
    server: Callable[..., Serving], tmp_path: Path
) -> None:
    """The end of one, within what was read of the engine, begins the next."""
    record = tmp_path / "record"
    serving = server(engine=("--record", str(record)))
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    asked: list[dict[str, Any]] = [{**streamed, "max_tokens": n % 5 + 1} for n in range(12)] + [{"max_tokens": 2}]
    client = Client(socket.create_connection(("127.0.0.1", serving.port)))
    client.send(b"".join(request_bytes(**fields) for fields in asked))
    for fields in asked[:-1]:
        answer = client.answer()
        assert answer.status == 200
        assert answer.body.endswith(b"data: [DONE]\n\n")
        events = [json.loads(line[6:]) for line in answer.body.split(b"\n\n")[:-2]]
        assert events[-2]["choices"][0]["finish_reason"] == "length"
        assert events[-1]["usage"]["completion_tokens"] == fields["max_tokens"]
    assert json.loads(client.answer().body)["usage"]["completion_tokens"] == 2
    client.close()
    assert serving.ask("/load")[1] == {"server_load": 0}
    assert len(added(record)) == len(asked)
    assert aborted(record) == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_request_in_the_engine(
    server: Callable[..., Serving], tmp_path: Path, stream: bool
) -> None:
    record = tmp_path / "record"
    serving = server(engine=("--record", str(record), "--step-ms", "20"))
    client = send_request(serving, stream=stream, n=2, temperature=1)
    serving.front.wait_for(lambda: len(added(record)) == 2, "both requests in the engine")
    assert aborted(record) == []
    client.close()
    serving.front.wait_for(lambda: len(aborted(record)) == 2, "both aborts")
    assert sorted(aborted(record)) == sorted(request[0] for request in added(record))


def test_a_queued_request_is_ended_too(server: Callable[..., Serving], tmp_path: Path) -> None:
    record = tmp_path / "record"
    serving = server(engine=("--record", str(record), "--step-ms", "20", "--max-num-seqs", "1"))
    first = send_request(serving)
    serving.front.wait_for(lambda: len(added(record)) == 1, "the first request")
    second = send_request(serving)
    serving.front.wait_for(lambda: len(added(record)) == 2, "the second request")
    second.close()
    serving.front.wait_for(lambda: aborted(record) == [added(record)[1][0]], "the abort of the queued one")
    first.close()


def test_late_outputs_are_dropped(server: Callable[..., Serving], tmp_path: Path) -> None:
    record = tmp_path / "record"
    serving = server(engine=("--record", str(record), "--step-ms", "5", "--late-outputs", "3"))
    send_request(serving, stream=True).close()
    serving.front.wait_for(lambda: len(aborted(record)) == 1, "the abort")
    status, answer = serving.complete(max_tokens=3)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 3)


def test_a_client_that_does_not_read_is_cut_off(server: Callable[..., Serving], tmp_path: Path) -> None:
    record = tmp_path / "record"
    serving = server(engine=("--record", str(record)))
    client = send_request(serving, stream=True, max_tokens=40_000, n=16, temperature=1)
    serving.front.wait_for(lambda: len(aborted(record)) > 0, "the abort", 120)
    client.close()
    assert serving.complete(max_tokens=2)[0] == 200


@pytest.mark.parametrize("fault", ["--die-after", "--crash-after", "--malformed-after"])
def test_an_engine_that_goes(server: Callable[..., Serving], start: Start, fastfront: list[str], fault: str) -> None:
    serving = server(engine=(fault, "5", "--step-ms", "5"))
    events = list(serving.events(max_tokens=1000))
    assert "error" in events[-1]
    assert events[-1]["error"]["type"] == "server_error"
    assert serving.complete()[0] == 500
    assert serving.ask("/health")[0] == 503
    serving.engines[0].end()
    add_engine(start, fastfront, serving)  # an engine that joins anew is taken
    serving.front.wait_http(f"{serving.base}/health")
    assert serving.complete(max_tokens=2)[0] == 200


def test_a_request_that_waits_whole_gets_an_error(server: Callable[..., Serving]) -> None:
    serving = server(engine=("--die-after", "3", "--step-ms", "5"))
    status, answer = serving.complete(max_tokens=1000)
    assert (status, answer["error"]["code"]) == (500, 500)


def test_two_engines_share_the_work(
    server: Callable[..., Serving], start: Start, fastfront: list[str], tmp_path: Path
) -> None:
    serving = server("--data-parallel-size", "2", engine=None)
    records = [tmp_path / "zero", tmp_path / "one"]
    for rank, record in enumerate(records):
        add_engine(start, fastfront, serving, "--index", str(rank), "--record", str(record), "--step-ms", "20")
    serving.front.wait_http(f"{serving.base}/health")
    clients = [send_request(serving) for _ in range(6)]
    serving.front.wait_for(lambda: [len(added(record)) for record in records] == [3, 3], "three requests each")
    for client in clients:
        client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_with_0(server: Callable[..., Serving], number: signal.Signals) -> None:
    serving = server(engine=None)  # still waiting for its engine
    serving.front.wait_for(lambda: "engines join at" in serving.front.output(), "the handshake")
    serving.front.process.send_signal(number)
    assert serving.front.process.wait(30) == 0


def test_a_running_stream_is_finished_within_the_drain(server: Callable[..., Serving]) -> None:
    serving = server("--shutdown-timeout", "30", engine=("--step-ms", "20"))
    events = serving.events(max_tokens=40)
    next(events)
    serving.front.process.send_signal(signal.SIGTERM)
    assert list(events)[-1]["choices"][0]["finish_reason"] == "length"
    assert serving.front.process.wait(30) == 0
    assert "told to end; requests under way in this process: 1, time for them: 30 s" in serving.front.output()
    assert "ended" in serving.front.output().splitlines()[-1]


def test_an_engine_in_time_or_none(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int]
) -> None:
    words = ["--port", str(free_port()), "--data-parallel-size-local", "0"]
    front = start(
        [*fastfront, "serve", peers / "models" / "qwen3", *words], env={"VLLM_ENGINE_READY_TIMEOUT_S": "1"}
    )
    assert front.process.wait(60) == 1
    assert "engine 0" in front.output()


def test_an_engine_of_its_own(start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    words = ["--served-model-name", "m", "--port", str(port), "--engine", "mock", "--", "--crash-after", "3"]
    front = start([*fastfront, "serve", peers / "models" / "qwen3", *words])
    serving = Serving(front, port, 0)
    front.wait_http(f"{serving.base}/health")
    assert serving.complete(max_tokens=1000)[0] == 500
    assert front.process.wait(60) == 1
    assert "the engine process ended with" in front.output()


class Inherited:
    """What vLLM's supervisor gives a frontend: three bound sockets, of which HTTP does not listen yet (wire a.2)."""

    def __init__(self, folder: Path) -> None:
        self.http = socket.socket()
        self.http.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.http.bind(("127.0.0.1", 0))
        self.port = int(self.http.getsockname()[1])
        self.engine = []
        for name in ("input", "output"):
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(str(folder / name))
            sock.listen()
            self.engine.append(sock)

    def words(self, **args: Any) -> list[str]:
        """The argv of wire a.3."""
        fds = [sock.fileno() for sock in (self.http, *self.engine)]
        names = ("--listen-fd", "--input-listener-fd", "--output-listener-fd")
        words = [word for name, fd in zip(names, fds, strict=True) for word in (name, str(fd))]
        words += ["--engine-start-index", "0", "--engine-count", "1", "--data-parallel-size", "1"]
        args = {"engine_ready_timeout_secs": 600, "http_timeout_keep_alive": 5, **args}
        return [*words, "--args-json", json.dumps(args)]

    def start(self, start: Start, fastfront: list[str], **args: Any) -> Started:
        """`fastfront frontend` with these sockets."""
        fds = tuple(sock.fileno() for sock in (self.http, *self.engine))
        front = start([*fastfront, "frontend", *self.words(**args)], pass_fds=fds)
        for sock in self.engine:  # as the supervisor does; it keeps the HTTP one
            sock.close()
        return front


def test_a_frontend_does_not_listen_before_its_engines_are_there(
    start: Start, fastfront: list[str], peers: Path, tmp_path: Path
) -> None:
    inherited = Inherited(tmp_path)
    front = inherited.start(start, fastfront, model_tag=str(peers / "models" / "qwen3"), dtype="auto", max_num_seqs=4)
    front.wait_for(lambda: "waiting for" in front.output(), "the wait for its engine")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", inherited.port))
    assert front.process.poll() is None
    assert front.end() == 0


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ({"model_tag": "MODEL", "lora_modules": ["a=b"]}, 2, "lora_modules"),
        ({"model_tag": 7}, 2, "model_tag"),
        ({}, 2, "model_tag"),
        ({"model_tag": "/no/such/model"}, 1, "/no/such/model"),
    ],
)
def test_a_frontend_that_cannot_begin(
    start: Start, fastfront: list[str], peers: Path, tmp_path: Path, args: dict[str, Any], code: int, told: str
) -> None:
    if args.get("model_tag") == "MODEL":
        args = {**args, "model_tag": str(peers / "models" / "qwen3")}
    front = Inherited(tmp_path).start(start, fastfront, **args)
    assert front.process.wait(60) == code
    assert told in front.output()


def test_the_benchmark_client_of_vllm_rs(server: Callable[..., Serving], peers: Path, tmp_path: Path) -> None:
    serving = server()
    out = tmp_path / "bench.json"
    words = ["bench", "serve", "--base-url", serving.base, "--model", "m"]
    words += ["--tokenizer", str(peers / "models" / "qwen3")]
    words += ["--dataset-name", "random", "--random-input-len", "64", "--random-output-len", "32", "--ignore-eos"]
    words += ["--num-prompts", "256", "--max-concurrency", "64", "--disable-tqdm", "--endpoint", "/v1/completions"]
    done = subprocess.run(
        [str(peers / "vllm-rs"), *words, "--save-result", "--result-filename", str(out)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(out.read_text())
    assert (result["completed"], result["failed"]) == (256, 0)


def test_a_broken_tokenizer_takes_the_engine_down_that_was_started_meanwhile(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    model, ended = tmp_path / "model", tmp_path / "record"
    model.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (model / name).write_bytes((peers / "models" / "qwen3" / name).read_bytes())
    (model / "tokenizer.json").write_text('{"version": "1.0", "model": 5}')
    words = ["serve", str(model), "--engine", "mock", "--port", str(free_port()), "--", "--record", str(ended)]
    front = start([*fastfront, *words])
    assert front.process.wait(60) == 1
    lines = front.output().splitlines()
    assert lines[-1].startswith("fastfront serve: error: cannot load ")
    assert sum("error" in line.lower() for line in lines) == 1
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(ended) not in listed
