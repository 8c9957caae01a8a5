"""How many workers there are, and what a fork that fails leaves; what they do together is tests/e2e/test_workers.py."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from fastfront import cores, workers
from fastfront.errors import StartError


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


def test_no_room_for_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(StartError, match="cannot start 3 frontend workers: Resource temporarily unavailable"):
        workers.fork(3)
    assert list(tmp_path.iterdir()) == []
