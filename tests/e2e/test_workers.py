"""Several processes on one port: what clients, engines and signals see of them, and what is left when one goes."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DIRECT, Start, Started
from tests.e2e.serving import Serving, add_engine, serve
from tests.test_metrics import samples

pytestmark = pytest.mark.peer

#: Connections that all end up with one worker of two once in 2**39 times.
CONNECTIONS = 40


@pytest.fixture
def server(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Serving]:  # fmt: skip
    """serve() with two workers, whose temporary files are in tmp_path/tmp."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))

    def begin(
        *options: str, engine: tuple[str, ...] | None = (), model: str = "qwen3", workers: int = 2
    ) -> Serving:
        words = ("--api-server-count", str(workers), *options)
        return serve(start, fastfront, peers, free_port, *words, engine=engine, model=model)

    return begin


def workers_of(front: Started) -> list[int]:
    """The ids of the processes beside the first."""
    pid = front.process.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and not just its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sockets_of(pid: int) -> int:
    """How many sockets a process has."""
    links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    return sum(link.startswith("socket:") for link in links)


def metrics(serving: Serving) -> dict[str, float]:
    """Samples of /metrics by name, those of all labels added."""
    with DIRECT.open(f"{serving.base}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    sums: dict[str, float] = {}
    for (name, _), value in samples(text).items():
        sums[name] = sums.get(name, 0.0) + value
    return sums


@pytest.fixture
def spread() -> Iterator[Callable[[Serving], list[http.client.HTTPConnection]]]:
    """Opens connections, enough that every worker has some."""
    opened: list[http.client.HTTPConnection] = []

    def begin(serving: Serving) -> list[http.client.HTTPConnection]:
        for _ in range(CONNECTIONS):
            opened.append(http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60))
            opened[-1].connect()
        return opened

    yield begin
    for connection in opened:
        connection.close()


Spread = Callable[[Serving], list[http.client.HTTPConnection]]


def complete(connection: http.client.HTTPConnection) -> None:
    """A completion of two tokens."""
    head = {"content-type": "application/json"}
    connection.request("POST", "/v1/completions", b'{"model": "m", "prompt": "Hello", "max_tokens": 2}', head)
    answer = connection.getresponse()
    assert (answer.status, len(answer.read()) > 0) == (200, True)


def test_all_serve_and_any_of_them_tells_the_sum(server: Callable[..., Serving], spread: Spread) -> None:
    serving = server(workers=3)
    pids = [serving.front.process.pid, *workers_of(serving.front)]
    assert len(pids) == 3
    before = [sockets_of(pid) for pid in pids]
    connections = spread(serving)
    for connection in connections:
        complete(connection)
    assert all(sockets_of(pid) > then for pid, then in zip(pids, before, strict=True))
    for _ in range(8):  # whoever answers
        counted = metrics(serving)
        assert counted["vllm:request_success_total"] == CONNECTIONS
        assert counted["vllm:generation_tokens_total"] == 2 * CONNECTIONS
        assert counted["vllm:e2e_request_latency_seconds_count"] == CONNECTIONS
        assert "process_resident_memory_bytes" not in counted


def test_load_is_that_of_all(server: Callable[..., Serving], spread: Spread) -> None:
    serving = server(engine=("--step-ms", "20"))
    for connection in spread(serving):
        connection.request(
            "POST", "/v1/completions", b'{"model": "m", "prompt": "Hello", "max_tokens": 20000}',
            {"content-type": "application/json"},
        )  # fmt: skip
    serving.front.wait_for(lambda: serving.ask("/load")[1] == {"server_load": CONNECTIONS}, "all of them", 30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_every_worker_finishes_its_streams(
    server: Callable[..., Serving], number: signal.Signals, tmp_path: Path
) -> None:
    serving = server("--shutdown-timeout", "30", engine=("--step-ms", "10"))
    pids = workers_of(serving.front)
    streams = [serving.events(max_tokens=60) for _ in range(12)]
    for stream in streams:
        next(stream)
    os.killpg(serving.front.process.pid, number)  # as a terminal and some supervisors do it: all get it
    for stream in streams:
        assert list(stream)[-1]["choices"][0]["finish_reason"] == "length"
    assert serving.front.process.wait(30) == 0
    assert not any(map(is_alive, pids))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_second_signal_hurries_all(server: Callable[..., Serving]) -> None:
    serving, streams = draining(server)
    assert len(streams) == 8
    serving.front.process.send_signal(signal.SIGTERM)
    assert serving.front.process.wait(30) == 0


def draining(server: Callable[..., Serving]) -> tuple[Serving, list[Iterator[dict[str, Any]]]]:
    """A server that was asked to end, and the streams that it still has."""
    serving = server("--shutdown-timeout", "600", engine=("--step-ms", "20"))
    streams = [serving.events(max_tokens=30_000) for _ in range(8)]
    for stream in streams:
        next(stream)
    serving.front.process.send_signal(signal.SIGTERM)
    serving.front.wait_for(lambda: not accepts(serving.port), "a closed port", 30)
    return serving, streams


def accepts(port: int) -> bool:
    """Whether somebody listens."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_worker_that_is_killed_while_all_drain(server: Callable[..., Serving]) -> None:
    serving, streams = draining(server)
    assert len(streams) == 8
    killed = workers_of(serving.front)[0]
    os.kill(killed, signal.SIGKILL)
    serving.front.wait_for(lambda: not is_alive(killed), "its end", 30)
    serving.front.process.send_signal(signal.SIGTERM)
    assert serving.front.process.wait(30) == 1
    assert "frontend worker 1 ended with signal 9" in serving.front.output().splitlines()[-1]


@pytest.mark.parametrize("workers", [1, 2])
def test_without_standard_files(
    start: Start, peers: Path, free_port: Callable[[], int], workers: int
) -> None:
    port = free_port()
    words = f"{sys.executable} -m fastfront render {peers}/models/qwen3 --port {port} --api-server-count {workers}"
    front = start(["bash", "-c", f"exec {words} <&- >&- 2>&-"])
    front.wait_http(f"http://127.0.0.1:{port}/health")
    assert front.end() == 0


def test_they_end_when_one_is_killed(server: Callable[..., Serving], tmp_path: Path) -> None:
    serving = server(workers=3)
    pids = workers_of(serving.front)
    os.kill(pids[0], signal.SIGKILL)
    assert serving.front.process.wait(30) == 1
    last = serving.front.output().splitlines()[-1]
    assert re.search(r"frontend worker [12] ended with signal 9$", last), last
    assert not any(map(is_alive, pids))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_they_end_when_the_first_is_killed(server: Callable[..., Serving]) -> None:
    serving = server()
    pids = workers_of(serving.front)
    serving.front.process.kill()
    serving.front.process.wait(30)
    for _ in range(600):
        if not any(map(is_alive, pids)):
            break
        time.sleep(0.05)
    assert not any(map(is_alive, pids))


def test_an_engine_that_goes_and_one_that_comes(
    server: Callable[..., Serving], start: Start, fastfront: list[str], spread: Spread
) -> None:
    serving = server(engine=("--crash-after", "5"))
    connections = spread(serving)
    connections[0].request(
        "POST", "/v1/completions", b'{"prompt": "Hello", "max_tokens": 100}', {"content-type": "application/json"}
    )
    assert connections[0].getresponse().status == 500
    for connection in connections[1:]:
        serving.front.wait_for(lambda one=connection: not healthy(one), "an unhealthy worker", 30)  # type: ignore[misc]
    serving.engines[0].end()
    add_engine(start, fastfront, serving)
    serving.front.wait_http(f"{serving.base}/health")
    for connection in connections[1:]:
        serving.front.wait_for(lambda one=connection: healthy(one), "health", 30)  # type: ignore[misc]
        complete(connection)


def healthy(connection: http.client.HTTPConnection) -> bool:
    """What /health says on this connection."""
    connection.request("GET", "/health")
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


def test_what_one_cannot_load_is_said_once(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (model / name).write_bytes((peers / "models" / "qwen3" / name).read_bytes())
    (model / "tokenizer.json").write_text('{"version": "1.0", "model": 5}')
    words = ["--port", str(free_port()), "--api-server-count", "3"]
    front = start([*fastfront, "render", model, *words])
    assert front.process.wait(60) == 1
    lines = front.output().splitlines()
    assert lines[-1].startswith("fastfront render: error: cannot load ")
    assert sum("error" in line.lower() for line in lines) == 1


def test_a_wrong_option_keeps_its_exit_code(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int]
) -> None:
    words = ["--port", str(free_port()), "--api-server-count", "2", "--chat-template", "{% if %}"]
    front = start([*fastfront, "render", peers / "models" / "qwen3", *words])
    alone = start([*fastfront, "render", peers / "models" / "qwen3", *words[:2], "--api-server-count", "1", *words[4:]])
    assert front.process.wait(60) == alone.process.wait(60) != 0
    assert front.output().splitlines()[-1] == alone.output().splitlines()[-1]


def test_a_port_that_others_share_is_in_use(
    server: Callable[..., Serving], start: Start, fastfront: list[str], peers: Path
) -> None:
    serving = server(engine=())
    words = ["--port", str(serving.port), "--api-server-count", "2"]
    second = start([*fastfront, "render", peers / "models" / "qwen3", *words])
    assert second.process.wait(60) == 1
    assert f"cannot listen on 127.0.0.1:{serving.port}" in second.output()


def test_a_unix_socket(start: Start, fastfront: list[str], peers: Path, tmp_path: Path) -> None:
    path = tmp_path / "http"
    front = start([*fastfront, "render", peers / "models" / "qwen3", "--uds", path, "--api-server-count", "2"])
    front.wait_for(lambda: "serving" in front.output(), "the line that says so")
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /load HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert client.makefile("rb").read().endswith(b'{"server_load":0}')
    assert front.end() == 0
    assert not path.exists()


def test_an_engine_that_is_broken_for_one_is_so_for_all(
    server: Callable[..., Serving], start: Start, fastfront: list[str], spread: Spread
) -> None:
    serving = server(engine=("--malformed-after", "5", "--step-ms", "2"), workers=3)
    assert "error" in list(serving.events(max_tokens=1000))[-1]
    connections = spread(serving)

    def health() -> set[int]:
        seen = set()
        for connection in connections:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            answer.read()
            seen.add(answer.status)
        return seen

    serving.front.wait_for(lambda: health() == {503}, "all to tell the same")
    serving.engines[0].end()
    add_engine(start, fastfront, serving)
    serving.front.wait_for(lambda: health() == {200}, "the new engine, for all")
    for connection in connections:
        complete(connection)


def with_experts(model: str, tmp_path: Path) -> str:
    """A copy of the model whose configuration names experts."""
    model = str(shutil.copytree(model, tmp_path / "experts"))
    config = json.loads(Path(model, "config.json").read_text())
    Path(model, "config.json").write_text(json.dumps({**config, "n_routed_experts": 8}))
    return model


@pytest.mark.parametrize("experts", [False, True], ids=["dense", "experts"])
def test_several_ranks(
    server: Callable[..., Serving], start: Start, fastfront: list[str], experts: bool, spread: Spread,
    peers: Path, tmp_path: Path,
) -> None:  # fmt: skip
    model, words = str(peers / "models" / "qwen3"), ["--step-ms", "1", "--stats"]
    if experts:
        model, words = with_experts(model, tmp_path), [*words, "--moe"]
    serving = server("--data-parallel-size", "2", engine=None, model=model)
    add_engine(start, fastfront, serving, "--data-parallel-size", "2", *words)
    serving.front.wait_http(f"{serving.base}/health")
    connections = spread(serving)
    for _ in range(2):
        for connection in connections:
            complete(connection)
    ranks = {}
    with DIRECT.open(f"{serving.base}/metrics", timeout=30) as answer:
        for (name, labels), value in samples(answer.read().decode()).items():
            if name == "vllm:generation_tokens_total":
                ranks[dict(labels)["engine"]] = value
    assert sum(ranks.values()) == 4 * CONNECTIONS
    assert all(ranks[rank] > 0 for rank in ("0", "1"))


@pytest.mark.parametrize("workers", [1, 2])
def test_who_leaves_at_once_lets_no_rank_sleep(
    server: Callable[..., Serving], start: Start, fastfront: list[str], peers: Path, tmp_path: Path, workers: int
) -> None:
    """Ranks that step together wait for each other: one that is not woken holds all up."""
    model = with_experts(str(peers / "models" / "qwen3"), tmp_path)
    serving = server("--data-parallel-size", "2", engine=None, model=model, workers=workers)
    add_engine(start, fastfront, serving, "--data-parallel-size", "2", "--step-ms", "1", "--moe")
    serving.front.wait_http(f"{serving.base}/health")
    host, port = serving.base.removeprefix("http://").split(":")
    for _ in range(40):
        left = http.client.HTTPConnection(host, int(port))
        ask_rank(left, 1, 1000)
        left.close()
        serving.front.wait_for(lambda: serving.ask("/load")[1] == {"server_load": 0}, "the server to notice")
        stays = http.client.HTTPConnection(host, int(port), timeout=30)
        ask_rank(stays, 0, 2)
        assert stays.getresponse().status == 200
        stays.close()


def ask_rank(connection: http.client.HTTPConnection, rank: int, tokens: int) -> None:
    """A completion by one rank."""
    body = json.dumps({"prompt": "a", "max_tokens": tokens, "ignore_eos": True})
    headers = {"content-type": "application/json", "x-data-parallel-rank": str(rank)}
    connection.request("POST", "/v1/completions", body, headers)
