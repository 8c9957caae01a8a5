"""How many workers there are, and what a fork that fails leaves; what they do together is tests/e2e/test_workers.py."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest.mock import Mock

import pytest

from fastfront import cores, workers
from fastfront.errors import StartError, WorkerError
from fastfront.http.listener import Listener, bind_tcp_for, check_alone
from fastfront.workers.line import Line
from fastfront.workers.other import MOST_CHARS


def quota_files(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """The control group's files, of both versions, with these texts."""
    for name, text in files.items():
        (folder / name).write_text(text)
    both = ((str(folder / "max"),), (str(folder / "quota"), str(folder / "period")))
    monkeypatch.setattr(cores, "QUOTAS", both)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"max": "max 100000\n"}, None),
        ({"max": "200000 100000\n"}, 2),
        ({"max": "150000 100000\n"}, 2),
        ({"max": "5000 100000\n"}, 1),
        ({"quota": "-1\n", "period": "100000\n"}, None),
        ({"quota": "300000\n", "period": "100000\n"}, 3),
        ({"max": "max 100000\n", "quota": "300000\n", "period": "100000\n"}, 3),
    ],
)
def test_what_the_control_group_pays_for(
    files: dict[str, str], quota: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota_files(tmp_path, monkeypatch, **files)
    assert cores.quota() == quota


def test_usable_cores_and_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quota_files(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert (cores.usable(), workers.unasked()) == (64, 4)
    quota_files(tmp_path, monkeypatch, max="300000 100000")
    assert (cores.usable(), workers.unasked()) == (3, 3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert (cores.usable(), workers.unasked()) == (1, 1)


def test_one_worker_forks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", None)
    worker = workers.fork(1)
    assert (worker.index, worker.count) == (0, 1)


def test_no_room_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(StartError, match="cannot start 3 frontend workers: Resource temporarily unavailable"):
        workers.fork(3)


#: A process of three workers whose start is SCENE; it says how it ended, and what each worker noted comes in order.
SCRIPT = '''
import asyncio, os, signal, sys
from fastfront import workers
from fastfront.workers import first
from fastfront.errors import ConfigError, FastfrontError, StartError, WorkerError
from fastfront.process import run

def note(text):
    os.write(NOTES, f"{text}\\n".encode())

class Fake:
    def __init__(self, worker, stop):
        self.worker, self.stop, self.late = worker, stop, None

    def on_signal(self):
        if not self.stop.done():
            self.stop.set_result(None)

    def fail(self, error):
        if not self.stop.done():
            self.stop.set_exception(error)

    async def close(self):
        failed = self.stop.done() and self.stop.exception() is not None
        await self.worker.end(quick=failed, drain=0, hurry=asyncio.Event())

    async def start(self):
        worker, k = self.worker, self.worker.index
SCENE

NOTES = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
worker = workers.fork(3)
try:
    with worker.telling_errors():
        run(worker, lambda stop: Fake(worker, stop))
    note(f"end {worker.index}")
except FastfrontError as error:
    note(f"{worker.index}: {type(error).__name__} {error}")
'''


def played(tmp_path: Path, scene: str, says: str = "") -> list[str]:
    """What three workers note whose start is `scene`, in order; `says`: what they log."""
    script, notes = tmp_path / "script.py", tmp_path / "notes"
    script.write_text(SCRIPT.replace("SCENE", textwrap.indent(textwrap.dedent(scene), " " * 8)))
    done = subprocess.run([sys.executable, script, notes], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, says)
    return notes.read_text().splitlines()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("StartError('no model')", "StartError no model"),
        ("ConfigError('wrong flag')", "ConfigError wrong flag"),
        ("StartError('ä\\udcff\\n')", "StartError ä?"),
        ("StartError('x' * 300_000)", "StartError " + "x" * MOST_CHARS),
    ],
)
def test_the_error_of_another_is_the_firsts(error: str, said: str, tmp_path: Path) -> None:
    notes = played(
        tmp_path,
        f"""
        if k == 2:
            raise {error}
        await worker.all_ready(lambda: None)
        """,
    )
    assert f"0: {said}" in notes
    assert not any(note.startswith(("1: ", "2: ")) for note in notes)


def test_one_that_ends_by_itself(tmp_path: Path) -> None:
    notes = played(
        tmp_path,
        """
        if k == 1:
            os._exit(7)
        await worker.all_ready(lambda: None)
        """,
    )
    assert "0: StartError frontend worker 1 ended with exit code 7" in notes


def test_who_waits_for_whom(tmp_path: Path) -> None:
    notes = played(
        tmp_path,
        """
        await worker.before_finding()
        note(f"finds {k}")
        if k == 0:
            await asyncio.sleep(0.3)
        note(f"found {k}")
        worker.found()
        if k == 2:
            await asyncio.sleep(0.3)
        note(f"ready {k}")
        await worker.all_ready(lambda: note(f"check {k}"))
        note(f"listens {k}")
        if k == 0:
            await asyncio.sleep(0.3)
            os.kill(os.getpid(), signal.SIGTERM)
        """,
    )
    assert notes[:2] == ["finds 0", "found 0"]
    at = notes.index("check 0")
    assert {"ready 0", "ready 1", "ready 2"} <= set(notes[:at])
    assert {"listens 0", "listens 1", "listens 2"} == set(notes[at + 1 : at + 4])
    assert {"end 1", "end 2"} == set(notes[at + 4 : -1])
    assert notes[-1] == "end 0"


def test_what_the_first_decides_holds_for_all(tmp_path: Path) -> None:
    notes = played(tmp_path, "os.kill(os.getpid(), signal.SIGTERM) if k == 0 else None")
    assert sorted(notes) == ["end 0", "end 1", "end 2"]
    script = tmp_path / "script.py"
    agreed = script.read_text().replace(
        "        run(worker", '        note(worker.agree(lambda: f"decided by {worker.index}"))\n        run(worker'
    )
    script.write_text(agreed)
    (tmp_path / "notes").unlink()
    subprocess.run([sys.executable, script, tmp_path / "notes"], timeout=60, check=True)
    assert (tmp_path / "notes").read_text().count("decided by 0\n") == 3


def test_a_worker_that_does_not_answer_and_does_not_end(tmp_path: Path) -> None:
    notes = played(
        tmp_path,
        """
        first.ANSWER_S, first.GRACE_S = 2.0, 0.3
        asked = []
        def counts():
            asked.append(k)
            if k == 1 and len(asked) == 2:
                asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGSTOP)
            return b"%d" % k
        worker.counts = counts
        await worker.all_ready(lambda: None)
        if k == 1:
            await asyncio.sleep(60)
        others = await worker.others()
        note(f"{k} hears {sorted(others)}")
        await asyncio.sleep(1.5)
        try:
            await worker.others()
        except WorkerError as error:
            note(f"{k} {error}")
        if k == 0:
            await asyncio.sleep(1)
            os.kill(os.getpid(), signal.SIGTERM)
        """,
        says="frontend worker 1 does not end: it is killed\n",
    )
    assert {"0 hears [b'1', b'2']", "2 hears [b'0', b'1']"} <= set(notes)
    silent = "frontend worker 1 does not tell what it has counted: no answer within 2 s"
    assert {f"0 {silent}", f"2 {silent}"} <= set(notes)
    assert notes[-1] == "end 0"
    assert "end 1" not in notes


def test_a_signal_in_the_middle_of_a_fork(tmp_path: Path) -> None:
    """It is heard once all are there, and the others end without a word."""
    script, notes = tmp_path / "script.py", tmp_path / "notes"
    forks = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
NOTES = os.open"""
    script.write_text(SCRIPT.replace("SCENE", "        pass").replace("NOTES = os.open", forks))
    done = subprocess.run([sys.executable, script, notes], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr, notes.read_text()) == (0, "", "", "")


def test_what_is_said_before_a_line_is_open_is_heard() -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        line, other = Line(ours), Line(theirs)
        line.say("early")
        await line.open()
        await other.open()
        line.say("late")
        heard: list[str] = []

        async def answer(word: str) -> bytes:
            return b""

        following = asyncio.create_task(other.follow(lambda word, data: heard.append(word), answer))
        line.close()
        ours.close()
        await following
        other.close()
        theirs.close()
        assert heard == ["early", "late"]

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_question_to_who_has_ended_is_answered_at_once() -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        line = Line(ours)
        await line.open()
        theirs.close()
        await line.follow(lambda word, data: None, lambda word: asyncio.sleep(0, b""))
        with pytest.raises(WorkerError, match="has ended"):
            await line.ask("counts", 1000)
        line.close()
        ours.close()

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_what_cannot_be_taken_in_does_not_end_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        line, other = Line(ours), Line(theirs)
        await line.open()
        await other.open()
        heard: list[bytes] = []

        def hear(word: str, data: bytes) -> None:
            heard.append(data)
            raise ValueError(word)

        following = asyncio.create_task(other.follow(hear, lambda word: asyncio.sleep(0, b"")))
        line.say("one", b"1")
        line.say("two", b"2")
        line.close()
        ours.close()
        await following
        other.close()
        theirs.close()
        assert heard == [b"1", b"2"]

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_link_local_address_is_bound_with_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = Mock()
    monkeypatch.setattr("fastfront.http.listener.bind_tcp", bind)
    link_local = Mock(family=socket.AF_INET6)
    link_local.getsockname.return_value = ("fe80::1", 80, 0, 1)
    check_alone(Listener(link_local))
    bind.assert_called_once_with(f"fe80::1%{socket.if_indextoname(1)}", 80)


def test_too_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (100, 4096))
    workers.check_room(1)
    workers.check_room(7)
    with pytest.raises(StartError, match=r"8 frontend workers need 104 open files, and the limit is 100 \(ulimit -n\)"):
        workers.check_room(8)


@pytest.mark.skipif(sys.platform != "linux", reason="one socket for all elsewhere")
def test_a_port_that_is_shared_with_nobody_else() -> None:
    ours = bind_tcp_for(2, "127.0.0.1", 0)
    port = ours[0].port()
    assert port
    theirs = bind_tcp_for(2, "127.0.0.1", port)  # while nobody listens that is possible
    for listener in (*ours, *theirs):
        check_alone(listener)
    ours[1].sock.listen()
    with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1:{port}"):
        check_alone(theirs[0])
    with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1:{port}"):
        bind_tcp_for(2, "127.0.0.1", port)
    for listener in (*ours, *theirs):
        listener.sock.close()
