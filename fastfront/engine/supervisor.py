"""Starts, watches and ends an engine process: of `serve`, which has no supervisor above it (wire a.6).

The child is a session and process group of its own, so that a terminal's Ctrl-C reaches only us and one signal reaches
all that it started. When we end it, it gets SIGTERM and, if it takes too long, SIGKILL; whatever of its group has
outlived it is ended too. When we are killed ourselves, Linux sends the child SIGTERM (PR_SET_PDEATHSIG) and leaves the
rest to it, as vLLM does; elsewhere an engine notices by itself or stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fastfront.engine.said import Said
from fastfront.errors import ConfigError, StartError

#: How long a child has after SIGTERM (s).
GRACE_S = 30.0
#: How long what a child has left behind has after SIGTERM (s), and how often it is looked for.
LEFTOVER_S, LOOK_S = 5.0, 0.05
PR_SET_PDEATHSIG = 1


class Launch(NamedTuple):
    """What an engine has to be told; `size` ranks in all, `size_local` of them here (None: not said, all)."""

    model: str
    host: str
    port: int
    size: int = 1
    size_local: int | None = None
    #: Further words, for the engine alone.
    arguments: tuple[str, ...] = ()
    #: The Python that has vLLM.
    python: str = sys.executable
    #: How long a text may be by the model's files, for the mock, which reads none.
    max_model_len: int | None = None


def vllm_command(launch: Launch) -> list[str]:
    """vLLM's engines without a frontend: they join through the handshake at host and port."""
    local = [] if launch.size_local is None else ["--data-parallel-size-local", str(launch.size_local)]
    return [
        *(launch.python, "-m", "vllm.entrypoints.cli.main", "serve", launch.model, "--headless"),
        *("--data-parallel-address", launch.host, "--data-parallel-rpc-port", str(launch.port)),
        *("--data-parallel-size", str(launch.size), *local),
        *launch.arguments,
    ]


def mock_command(launch: Launch) -> list[str]:
    """Our mock engine, one process for all ranks."""
    host = f"[{launch.host}]" if ":" in launch.host else launch.host
    ranks = launch.size if launch.size_local is None else launch.size_local
    return [
        *(sys.executable, "-m", "fastfront.cli.mock_engine", "--local"),
        *("--handshake", f"tcp://{host}:{launch.port}", "--data-parallel-size", str(ranks)),
        *(() if launch.max_model_len is None else ("--max-model-len", str(launch.max_model_len))),
        *launch.arguments,
    ]


def torch_command(launch: Launch) -> list[str]:
    """The built-in engine, which is one rank."""
    host = f"[{launch.host}]" if ":" in launch.host else launch.host
    return [
        *(sys.executable, "-m", "fastfront.engine.torch", launch.model, "--local"),
        *("--handshake", f"tcp://{host}:{launch.port}"),
        *launch.arguments,
    ]


COMMANDS: dict[str, Callable[[Launch], list[str]]] = {
    "torch": torch_command,
    "vllm": vllm_command,
    "mock": mock_command,
}


def command_for(kind: str, launch: Launch) -> list[str]:
    """The words that start an engine of this kind; ConfigError where there is none such."""
    if kind not in COMMANDS:
        raise ConfigError(f"no engine {kind!r} can be started; there are {', '.join(COMMANDS)}")
    return COMMANDS[kind](launch)


class Exit(NamedTuple):
    """How a child ended: its status (minus the signal that killed it) and the last lines of its standard error."""

    code: int
    last_lines: tuple[str, ...]
    #: Why it ended, in its own words.
    reason: str | None = None

    def __str__(self) -> str:
        how = f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code} ({_signal_name(-self.code)})"
        return "\n  ".join([f"the engine process ended with {how}", *self.last_lines])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _pdeathsig() -> Callable[[], None] | None:
    """What a child calls so that it gets SIGTERM when its parent ends; None where the system cannot do that."""
    if sys.platform != "linux":
        return None
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None
    parent = os.getpid()
    args = (PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

    def ask() -> None:
        prctl(*args)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)

    return ask


class _Child(asyncio.SubprocessProtocol):
    """What the loop tells of a child. Its end is its own: what it left behind may hold its standard error open."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.closed = asyncio.Event()
        self.said = Said()

    def process_exited(self) -> None:
        self.ended.set()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Passes the child's standard error on to ours."""
        _pass_on(self.said.feed(data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        _pass_on(self.said.finish())
        self.closed.set()


def _pass_on(data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # ours may be closed
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


class Supervisor:
    """One child process. `on_exit` is told when it ends without having been asked to, on the loop."""

    def __init__(
        self,
        command: Sequence[str],
        on_exit: Callable[[Exit], None],
        *,
        environment: Mapping[str, str] | None = None,
        grace: float = GRACE_S,
    ) -> None:
        self.command = list(command)
        #: The child's id, which is its group's too; None before the start.
        self.pid: int | None = None
        self._on_exit = on_exit
        self._environment = environment
        self._grace = grace
        self._watch: asyncio.Task[Exit] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Starts the child, from the main thread; StartError if that is not possible. Its output is ours."""
        try:
            transport, child = await asyncio.get_running_loop().subprocess_exec(
                _Child,
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=None,
                stderr=asyncio.subprocess.PIPE,
                env=None if self._environment is None else dict(self._environment),
                start_new_session=True,
                # Safe only while no other thread holds a lock that it needs: at start there is none.
                preexec_fn=_pdeathsig(),
            )
        except (OSError, ValueError) as error:
            raise StartError(f"the engine cannot be started: {self.command[0]}: {error}") from error
        self.pid = transport.get_pid()
        self._watch = asyncio.get_running_loop().create_task(self._until_end(transport, child))

    async def stop(self) -> int | None:
        """Ends the child and all of its group; its exit status, or None if it was never started."""
        if self._watch is None:
            return None
        self._stopping = True
        if not self._watch.done():
            self._kill_group(signal.SIGTERM)
            done, _ = await asyncio.wait([self._watch], timeout=self._grace)
            if not done:
                self._kill_group(signal.SIGKILL)
        return (await self._watch).code

    async def _until_end(self, transport: asyncio.SubprocessTransport, child: _Child) -> Exit:
        await child.ended.wait()
        code = transport.get_returncode()
        assert code is not None
        await self._end_leftovers()
        # The group is gone, so standard error ends, unless someone outside of it has got hold of it.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.closed.wait(), 1.0)
        transport.close()
        ended = Exit(code, tuple(child.said.tail), child.said.reason)
        if not self._stopping:
            self._on_exit(ended)
        return ended

    async def _end_leftovers(self) -> None:
        """Ends what the child has started and not ended."""
        if not self._kill_group(signal.SIGTERM):
            return
        for _ in range(round(LEFTOVER_S / LOOK_S)):
            await asyncio.sleep(LOOK_S)
            if not self._kill_group(0):
                return
        self._kill_group(signal.SIGKILL)

    def _kill_group(self, number: int) -> bool:
        """Sends a signal (0: none, only looks); whether there was anyone to get it."""
        assert self.pid is not None
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True
