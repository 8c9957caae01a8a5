"""The child process of `serve`: its words, its end, ours, and what it may leave behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from fastfront.engine.supervisor import Exit, Launch, Supervisor, command_for
from fastfront.errors import ConfigError, StartError
from tests.conftest import Started
from tests.engine.front import Front

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on both kinds of loop."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def go(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(work, 60))

    return go


def python(code: str) -> list[str]:
    """The words that run this code."""
    return [sys.executable, "-c", textwrap.dedent(code)]


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def until(true: Callable[[], bool]) -> None:
    """Returns when `true()`."""
    while not true():  # noqa: ASYNC110 - what is waited for happens in other processes
        await asyncio.sleep(0.01)


def supervisor(command: list[str], **options: Any) -> tuple[Supervisor, list[Exit]]:
    """A supervisor and the exits that it was told of."""
    exits: list[Exit] = []
    return Supervisor(command, exits.append, **options), exits


# --- the words -----------------------------------------------------------------------------------------------------


def test_vllm_is_started_as_the_rust_frontend_does() -> None:
    launch = Launch("m/x", "127.0.0.1", 5001, size=4, python="/opt/python")
    assert command_for("vllm", launch) == [
        *("/opt/python", "-m", "vllm.entrypoints.cli.main", "serve", "m/x", "--headless"),
        *("--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", "5001", "--data-parallel-size", "4"),
    ]
    more = launch._replace(size_local=2, arguments=("--dtype", "float32"))
    assert command_for("vllm", more) == [
        *command_for("vllm", launch),
        *("--data-parallel-size-local", "2", "--dtype", "float32"),
    ]


def test_the_mock_is_started_for_all_ranks_here() -> None:
    words = command_for("mock", Launch("m", "127.0.0.1", 5001, size=4, size_local=2, arguments=("--stats",)))
    assert words[0] == sys.executable
    assert words[3:] == [*"--local --handshake tcp://127.0.0.1:5001 --data-parallel-size 2 --stats".split()]
    assert "tcp://[::1]:7" in command_for("mock", Launch("m", "::1", 7))
    long = command_for("mock", Launch("m", "::1", 7, arguments=("--max-model-len", "9"), max_model_len=8192))
    assert long[-4:] == ["--max-model-len", "8192", "--max-model-len", "9"]  # the last one counts


def test_the_built_in_engine_is_started_with_a_place() -> None:
    words = command_for("torch", Launch("/m/x", "::1", 7, python="/opt/python", arguments=("--dtype", "half")))
    assert words[0] == sys.executable, "it is ours, whoever has vLLM"
    assert words[1:] == [*"-m fastfront.engine.torch /m/x --local --handshake tcp://[::1]:7 --dtype half".split()]


def test_no_other_engine_can_be_started() -> None:
    with pytest.raises(ConfigError, match="no engine 'none' can be started; there are torch, vllm, mock"):
        command_for("none", Launch("m", "h", 1))


# --- the child's end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 42])
def test_a_child_that_ends_is_told_of(run: Run, code: int) -> None:
    async def work() -> None:
        child, exits = supervisor(python(f"import sys; print('first\\nlast ü', file=sys.stderr); sys.exit({code})"))
        await child.start()
        await until(lambda: bool(exits))
        assert exits == [Exit(code, ("first", "last ü"))]
        assert str(exits[0]) == f"the engine process ended with exit code {code}\n  first\n  last ü"
        assert await child.stop() == code
        assert len(exits) == 1

    run(work())


def test_a_killed_child_is_told_of(run: Run) -> None:
    async def work() -> None:
        child, exits = supervisor(python("import time; time.sleep(1000)"))
        await child.start()
        assert child.pid
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda: bool(exits))
        assert str(exits[0]) == "the engine process ended with signal 9 (SIGKILL)"
        with pytest.raises(ProcessLookupError):  # nor a zombie
            os.kill(child.pid, 0)

    run(work())


def test_only_the_end_of_standard_error_is_kept(run: Run) -> None:
    async def work() -> None:
        code = "import sys; [print(i, file=sys.stderr) for i in range(5000)]; sys.stderr.write('x' * 300000 + 'end')"
        child, exits = supervisor(python(code))
        await child.start()
        await until(lambda: bool(exits))
        lines = exits[0].last_lines
        assert len(lines) == 20 and lines[0] == "4981"
        assert lines[-1].endswith("xxend") and len(lines[-1]) <= 2000

    run(work())


def test_standard_error_is_passed_on(start: Callable[..., Started]) -> None:
    code = """
    import asyncio, sys
    from fastfront.engine.supervisor import Supervisor
    async def work():
        done = asyncio.Event()
        words = [sys.executable, "-c", "import sys; sys.stderr.write('hello from below')"]
        child = Supervisor(words, lambda _: done.set())
        await child.start()
        await done.wait()
    asyncio.run(work())
    """
    started = start(python(code))
    assert started.process.wait(60) == 0 and started.output() == "hello from below"


def test_what_cannot_be_started_is_an_error(run: Run) -> None:
    child, _ = supervisor(["/no/such/program"])
    with pytest.raises(StartError, match="/no/such/program"):
        run(child.start())


def test_standard_input_is_empty_and_the_group_its_own(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        file = tmp_path / "said"
        said = "f'{sys.stdin.read()!r} {os.getpgrp()} {os.getsid(0)}'"
        code = f"import os, sys; open({str(file)!r}, 'w').write({said})"
        child, exits = supervisor(python(code))
        await child.start()
        await until(lambda: bool(exits))
        assert file.read_text() == f"'' {child.pid} {child.pid}"

    run(work())


# --- our wish ------------------------------------------------------------------------------------------------------


def test_stop_ends_the_child_politely(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        ready = tmp_path / "ready"
        code = f"""
        import pathlib, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        pathlib.Path({str(ready)!r}).touch()
        time.sleep(1000)
        """
        child, exits = supervisor(python(code))
        await child.start()
        await until(ready.exists)
        assert await child.stop() == 7
        assert exits == [], "an end that was asked for is no news"

    run(work())


def test_stop_kills_what_does_not_listen_and_its_children(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        ready = tmp_path / "ready"
        code = f"""
        import os, pathlib, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pid = os.fork()
        if pid:
            pathlib.Path({str(ready)!r} + ".part").write_text(str(pid))
            os.rename({str(ready)!r} + ".part", {str(ready)!r})
        time.sleep(1000)
        """
        child, _ = supervisor(python(code), grace=0.1)
        await child.start()
        await until(ready.exists)
        grandchild = int(ready.read_text())
        assert alive(grandchild)
        assert await child.stop() == -signal.SIGKILL
        await until(lambda: not alive(grandchild))

    run(work())


def test_what_a_dead_child_leaves_behind_is_ended(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        said = tmp_path / "pid"
        code = f"""
        import os, pathlib, time
        pid = os.fork()
        if not pid:
            time.sleep(1000)
        pathlib.Path({str(said)!r}).write_text(str(pid))
        """
        child, exits = supervisor(python(code))
        await child.start()
        await until(lambda: bool(exits))
        assert exits[0].code == 0
        await until(lambda: not alive(int(said.read_text())))

    run(work())


def test_stop_before_start_does_nothing(run: Run) -> None:
    child, _ = supervisor(["x"])
    assert run(child.stop()) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tell a child of its parent's death")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_our_own_death_ends_the_child(start: Callable[..., Started], loop: str) -> None:
    code = f"""
    import asyncio, sys, {loop}
    from fastfront.engine.supervisor import Supervisor
    async def work():
        child = Supervisor([sys.executable, "-c", "import time; time.sleep(1000)"], print)
        await child.start()
        print(child.pid, flush=True)
        await asyncio.Event().wait()
    with asyncio.Runner(loop_factory={loop}.new_event_loop) as runner:
        runner.run(work())
    """
    started = start(python(code))
    started.wait_for(lambda: started.output().endswith("\n"), "pid")
    child = int(started.output())
    assert alive(child)
    started.process.kill()
    started.process.wait()
    while alive(child):
        os.sched_yield()


def test_the_mock_engine_under_it_joins_serves_and_dies(run: Run) -> None:
    async def work() -> None:
        with Front() as front:
            host, port = front.address.removeprefix("tcp://").split(":")
            words = ("--die-after", "1", "--max-model-len", "99")
            launch = Launch("m", host, int(port), size=2, arguments=words)
            child, exits = supervisor(command_for("mock", launch))
            await child.start()
            await asyncio.to_thread(front.join, 2)
            assert {info["max_model_len"] for info in front.registered.values()} == {99}
            front.add("a", rank=1, max_tokens=5)
            await until(lambda: bool(exits))
            assert exits[0].code == 1 and exits[0].last_lines == ("mock engine: died after 1 messages, as told",)

    run(work())


def test_the_mock_engine_ends_when_its_parent_does(start: Callable[..., Started]) -> None:
    with Front() as front:
        engine = [sys.executable, "-m", "fastfront.cli.mock_engine", "--local", "--handshake", front.address]
        parent = start(
            python(f"import subprocess; p = subprocess.Popen({engine!r}); print(p.pid, flush=True); p.wait()")
        )
        front.join()
        child = int(parent.output())
        parent.process.kill()
        parent.process.wait()
        while alive(child):
            os.sched_yield()
