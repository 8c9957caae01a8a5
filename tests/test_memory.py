"""What goes back to the system: in a process of its own for the real thing, on made-up figures for the rule."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fastfront import memory

SMAPS = """\
55d0-55d4 r--p 00000000 08:01 11 /usr/bin/python3.11
Rss:                  16 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
55d4-55e4 r-xp 00004000 08:01 11 /usr/bin/python3.11
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
55e4-55e8 r--p 00014000 08:01 11 /usr/bin/python3.11
Anonymous:             8 kB
VmFlags: rd mr mw me ac sd
55e8-55ea rw-p 00018000 08:01 11 /usr/bin/python3.11
Anonymous:             0 kB
VmFlags: rd wr mr mw me ac sd
55f0-5600 rw-p 00000000 00:00 0 [heap]
Anonymous:            64 kB
VmFlags: rd wr mr mw me ac sd
7f00-7f10 r--p 00000000 00:00 0
Anonymous:             0 kB
VmFlags: rd mr mw me ac sd
7f10-7f18 r--s 00000000 08:01 12 /a folder/shared
Anonymous:             0 kB
VmFlags: rd mr mw me ms sd
7f20-7f28 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
VmFlags: rd ex mr mw me de sd
7f30-7f38 r-xp 00000000 08:01 13 /a folder/a library.so (deleted)
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
"""

#: Loads libraries, leaves holes among small pieces, and says how much memory was resident before and after.
REAL = """
import hashlib, ssl, sqlite3
from fastfront import memory
memory.begin_loading()
pieces = [bytes(1000) for _ in range(100_000)]
pieces = pieces[::100]
before = memory.resident()
memory.begin_serving()
after = memory.resident()
# All still works, what was dropped included.
assert hashlib.sha256(b"abc").hexdigest().startswith("ba7816bf")
assert sqlite3.connect(":memory:").execute("select 6 * 7").fetchone() == (42,)
ssl.create_default_context()
assert pieces == [bytes(1000)] * 1000
print(before - after)
"""


def test_only_mappings_that_are_as_their_file_is() -> None:
    assert [*memory.as_in_file(SMAPS.splitlines())] == [(0x55D0, 4), (0x55D4, 16), (0x7F30, 8)]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux and glibc are told to return memory")
def test_holes_and_pages_of_libraries_are_returned() -> None:
    run = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 50 * 1024 * 1024


def test_spare_memory_is_returned_once_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    held = 100 * 1024 * 1024
    returned: list[int] = []

    def give_back() -> None:
        nonlocal held
        returned.append(held)
        held -= memory.GROWN

    monkeypatch.setattr(memory, "resident", lambda: held)
    monkeypatch.setattr(memory, "_return_free", give_back)
    spare = memory.Spare()
    monkeypatch.setattr(memory, "_serving", False)
    for _ in range(2):  # while the model loads nothing is
        spare.look()
        held += 2 * memory.GROWN
    monkeypatch.setattr(memory, "_serving", True)
    spare.look()  # the first time says what is needed
    held += memory.GROWN
    spare.look()
    assert returned == []
    held += 1
    spare.look()
    assert returned == [held + memory.GROWN]
    spare.look()  # what could not be returned is needed from now on
    held += memory.GROWN
    spare.look()
    assert len(returned) == 1
    held = 50 * 1024 * 1024  # others returned some
    spare.look()
    held += memory.GROWN + 1
    spare.look()
    assert len(returned) == 2


def test_resident_memory_is_told() -> None:
    assert (memory.resident() > 1024 * 1024) == (sys.platform == "linux")
