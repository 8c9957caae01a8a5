"""How many processor cores this process may use."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Where the two versions of Linux's control groups say how much time in how long: both numbers, or one each.
QUOTAS = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)


def usable() -> int:
    """Cores that the process is bound to, or as many as its container's quota pays for."""
    bound = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(bound, quota() or bound)


def quota() -> int | None:
    """Cores that the control group pays for, a part of one as one; None where there is no limit."""
    for files in QUOTAS:
        numbers = [int(word) for file in files for word in _words(file) if word.isdigit()]
        if len(numbers) == 2:
            return max(1, -(-numbers[0] // numbers[1]))
    return None


def _words(file: str) -> list[str]:
    try:
        return Path(file).read_text("ascii").split()
    except OSError:
        return []
