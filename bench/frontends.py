"""Starts a frontend with a mock engine behind it, and tells how much CPU time it has used."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

#: How each is started; the engine joins from outside.
COMMANDS = {
    "fastfront": f"{sys.executable} -m fastfront serve {{model}}",
    "vllm-rs": "{peers}/vllm-rs serve {model}",
}
OPTIONS = (
    "--served-model-name m --port {port} --data-parallel-size-local 0 --data-parallel-rpc-port {rpc_port} "
    "--tool-call-parser none --reasoning-parser none"
)
MOCK = f"{sys.executable} -m fastfront mock-engine --max-model-len 262144 --max-num-seqs 4096"


class Frontend:
    """One frontend and its engine while the `with` block runs; what they write goes to `log`."""

    def __init__(self, name: str, peers: Path, model: str, step_ms: float, log: Path) -> None:
        self.name = name
        self.port, rpc_port = _free_port(), _free_port()
        values = {"peers": peers, "model": peers / "models" / model, "port": self.port, "rpc_port": rpc_port}
        self._commands = [
            f"{COMMANDS[name]} {OPTIONS}".format(**values),
            f"{MOCK} --handshake tcp://127.0.0.1:{rpc_port} --step-ms {step_ms}",
        ]
        self._log = log
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Frontend:
        with self._log.open("ab") as out:
            for command in self._commands:
                words = shlex.split(command)
                environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
                self._running.append(subprocess.Popen(words, stdout=out, stderr=out, env=environment))
        self._wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """User and system time of its process and all below it."""
        return sum(map(_cpu, _tree(self._running[0].pid)))

    def _wait(self, limit: float = 180.0) -> None:
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if any(process.poll() is not None for process in self._running):
                sys.exit(f"{self.name} or its engine has ended; see {self._log}")
            try:
                with urllib.request.urlopen(f"{self.url}/v1/models", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        sys.exit(f"{self.name} was not ready in {limit:.0f} s; see {self._log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tree(pid: int) -> set[int]:
    found = {pid}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found |= _tree(int(child))
    return found


def _cpu(pid: int) -> float:
    """Of all its threads, also those that have ended, by the process's own CPU clock: /proc counts in hundredths."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it has ended
        return 0.0
