"""Where a model runs, in which numbers, and how much memory is free there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

from fastfront import cores
from fastfront.errors import ConfigError, StartError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: Where the two versions of Linux's control groups say: the limit, what is used, and of that what caches files.
CGROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def choose_device(wish: str) -> torch.device:
    """The device for `auto`, `cuda`, `cuda:N` or `cpu`; StartError if it is not there."""
    if wish == "cpu" or (wish == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    match = re.fullmatch(r"(?:auto|cuda)(?::(\d+))?", wish)
    if match is None:
        raise ConfigError(f"device {wish!r} is not one of auto, cuda, cuda:N, cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(match[1] or 0)
    if index >= count:
        raise StartError(
            f"device {wish}: torch {torch.__version__} sees {count} CUDA devices here; use --device cpu, "
            "or a torch that was built for the installed driver"
        )
    return torch.device("cuda", index)


def choose_dtype(wish: str, stored: str, device: torch.device) -> torch.dtype:
    """The type for `auto` or a name of DTYPES; `stored` is the one of the files. StartError if there is no such."""
    if wish != "auto":
        if wish not in DTYPES:
            raise ConfigError(f"dtype {wish!r} is not one of auto, {', '.join(DTYPES)}")
        return DTYPES[wish]
    if device.type == "cpu":
        return torch.bfloat16 if _multiplies_bfloat16() else torch.float32
    if stored == "float16" or not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    return torch.bfloat16


def _multiplies_bfloat16() -> bool:
    """Whether the processor does so itself; where it is emulated, float32 is faster."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def limit_threads() -> None:
    """Lets torch use no more threads than the control group lets it have processors."""
    quota = cores.quota()
    if quota is not None:
        torch.set_num_threads(min(torch.get_num_threads(), quota))


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min([_available(), *_left_by_cgroups()])


def out_of_memory(error: Exception) -> bool:
    """Whether something failed for want of memory, on whatever device."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def total_memory(device: torch.device) -> int:
    """Bytes of a CUDA device's memory."""
    return int(torch.cuda.mem_get_info(device)[1])


def _available() -> int:
    """What the system says is free, counting what it would give up; half of all where it does not say."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE)
    if match is not None:
        return int(match[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _left_by_cgroups() -> list[int]:
    left = []
    for folder, limit, used, cached in CGROUPS:
        numbers = _first_numbers(f"{folder}/{limit}") + _first_numbers(f"{folder}/{used}")
        if len(numbers) == 2:
            given_up = re.search(rf"^{cached} (\d+)$", _read(f"{folder}/memory.stat"), re.MULTILINE)
            left.append(max(0, numbers[0] - numbers[1] + int(given_up[1] if given_up else 0)))
    return left


def _first_numbers(file: str) -> list[int]:
    """The whole numbers of a file of one line; none if there is no such file."""
    return [int(word) for word in _read(file).split() if word.isdigit()]


def _read(file: str) -> str:
    """A small text file; "" if there is none."""
    try:
        return Path(file).read_text("ascii")
    except OSError:
        return ""
