"""How long /health takes to answer (ms: median, p99, worst) while the same server does other work.

    python bench/micro/health_under_load.py MODEL [--seconds 10] [--only prompts,templates,bodies,lists,stream64,...]

Two clients a kind of work, each with one request after the other; /health is asked every 5 ms on a connection of its
own. The worst time bounds how long the event loop stood still, the client's own waiting for a processor included.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LENGTH = 262144
RENDER = [
    "render", "--max-model-len", str(LENGTH), "--trust-request-chat-template", "--tool-call-parser", "hermes",
]  # fmt: skip
SERVE = ["serve", "--engine", "mock"]
PAUSE = 0.005

Request = tuple[str, bytes]


def words(count: int) -> str:
    """So many words, each another, of about a token and a half."""
    rng = random.Random(count)
    return " ".join("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 5))) for _ in range(count))


def prompts() -> list[Request]:
    """131072 tokens as a text, and as a conversation."""
    text = words(80_000)
    chat = {"messages": [{"role": "user", "content": text[i : i + 2000]} for i in range(0, len(text), 2000)]}
    return [("/v1/completions/render", body({"prompt": text})), ("/v1/chat/completions/render", body(chat))]


def templates() -> list[Request]:
    """Chat templates that come with the request and take their time."""
    template = "{% for i in range(20000) %}{{ messages[0].content }}{{ i }} {% endfor %}"
    chat = {"messages": [{"role": "user", "content": "x"}], "chat_template": template}
    return [("/v1/chat/completions/render", body(chat))] * 2


def bodies() -> list[Request]:
    """JSON of almost 32 MiB: a text that is much too long, and many small messages."""
    much = "word " * 6_400_000
    many = {"messages": [{"role": "user", "content": "word"}] * 700_000}
    return [("/v1/completions/render", body({"prompt": much})), ("/v1/chat/completions/render", body(many))]


def lists() -> list[Request]:
    """Many ids to turn into text, and many prompts of one request, whose answer is long."""
    ids = [random.Random(1).randrange(30_000) for _ in range(2_000_000)]
    many = {"prompt": ["word " * 50] * 1024}
    return [("/detokenize", body({"tokens": ids})), ("/v1/completions/render", body(many))]


WORK: dict[str, Callable[[], list[Request]]] = {
    "prompts": prompts, "templates": templates, "bodies": bodies, "lists": lists,
}  # fmt: skip


def body(value: Any) -> bytes:
    """As JSON."""
    return json.dumps(value).encode()


@contextmanager
def server(model: str, arguments: list[str], folder: Path) -> Iterator[int]:
    """A running fastfront; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command, *rest = arguments
    with (folder / "server.log").open("ab") as log:
        line = [
            sys.executable,
            "-m",
            "fastfront",
            command,
            model,
            *rest,
            "--port",
            str(port),
            "--served-model-name",
            "m",
            "--api-server-count",  # of several workers another one may do the work
            "1",
        ]
        process = subprocess.Popen(line, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        while not answers(port):
            if process.poll() is not None:
                sys.exit(f"the server ended: {(folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.05)
        time.sleep(3)  # what comes after listening
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def answers(port: int) -> bool:
    """Whether it listens."""
    try:
        ask(http.client.HTTPConnection("127.0.0.1", port, timeout=5), "/health", None)
    except OSError:
        return False
    return True


def ask(connection: http.client.HTTPConnection, path: str, data: bytes | None) -> int:
    """Sends and reads one request; the status."""
    connection.request("POST" if data else "GET", path, data, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def keep_asking(port: int, request: Request, stop: threading.Event, counts: dict[int, int]) -> None:
    """One request after the other until `stop`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while not stop.is_set():
        status = ask(connection, *request)
        counts[status] = counts.get(status, 0) + 1


def health(port: int, seconds: float) -> list[float]:
    """Milliseconds of each answer, in their order of size. In a process of its own: this one's threads do the work."""
    code = (
        "import http.client, time, sys; port, seconds, pause = int(sys.argv[1]), *map(float, sys.argv[2:])\n"
        "c = http.client.HTTPConnection('127.0.0.1', port, timeout=60); end = time.monotonic() + seconds\n"
        "while time.monotonic() < end:\n"
        "    began = time.perf_counter(); c.request('GET', '/health'); c.getresponse().read()\n"
        "    print((time.perf_counter() - began) * 1e3); time.sleep(pause)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(port), str(seconds), str(PAUSE)], capture_output=True, text=True, check=True
    ).stdout
    return sorted(map(float, out.split()))


def told(name: str, times: list[float], what: str) -> None:
    """Prints a row."""
    p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
    print(f"{name:10s} p50 {times[len(times) // 2]:7.2f}  p99 {p99:7.2f}  worst {times[-1]:7.2f}  {what}", flush=True)


def under_requests(port: int, name: str, seconds: float) -> None:
    """While two clients send what `name` makes."""
    stop, counts = threading.Event(), dict[int, int]()
    threads = [threading.Thread(target=keep_asking, args=(port, r, stop, counts)) for r in WORK[name]()]
    for thread in threads:
        thread.start()
    times = health(port, seconds)
    stop.set()
    for thread in threads:
        thread.join()
    told(name, times, f"answers by status: {counts}")


def under_streams(port: int, model: str, name: str, seconds: float) -> None:
    """While the load generator has so many streams open, with an engine that is always ahead."""
    count = int(name.removeprefix("stream"))
    line = [
        sys.executable, "-m", "fastfront", "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", "--model", "m",
        "--tokenizer", model, "--dataset-name", "random", "--random-input-len", "512", "--random-output-len", "128",
        "--num-prompts", "100000", "--max-concurrency", str(count), "--ignore-eos",
    ]  # fmt: skip
    load = subprocess.Popen(
        line, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while running(port) < count:
            if load.poll() is not None:
                sys.exit("the load generator ended")
            time.sleep(0.1)
        told(name, health(port, seconds), "")
    finally:
        load.kill()
        load.wait()


def running(port: int) -> int:
    """Requests that the server works on."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/load")
    return int(json.loads(connection.getresponse().read())["server_load"])


def main() -> None:
    """Starts the servers, works them, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", default=",".join((*WORK, "stream64", "stream512")))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the server's log")
    args = parser.parse_args()
    names = args.only.split(",")
    if any(name in WORK for name in names):
        with server(args.model, RENDER, args.folder) as port:
            told("idle", health(port, args.seconds), "")
            for name in filter(WORK.__contains__, names):
                under_requests(port, name, args.seconds)
    for name in (name for name in names if name.startswith("stream")):
        with server(args.model, SERVE, args.folder) as port:
            under_streams(port, args.model, name, args.seconds)


if __name__ == "__main__":
    main()
