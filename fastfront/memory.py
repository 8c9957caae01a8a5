"""Resident memory: what loading needed goes back to the system, and what a burst of requests leaves behind does too.

The C library would keep both. Where it is not glibc, or the system not Linux, only Python's collector is told.
"""

from __future__ import annotations

import ctypes
import gc
import math
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

#: What a request makes is freed without the collector: it may look at young objects less often than Python lets it.
COLLECT_AT = (20_000, 20, 20)
#: Pieces of at least so many bytes are mapped one by one, and are gone when they are freed. Left alone, glibc learns
#: from the first large piece that is freed to keep up to 32 MiB: a tokenizer's tables then lie between holes.
LOADING_PIECE = 128 * 1024
#: The same while requests are served, when a piece that is returned and taken again costs time.
SERVING_PIECE = 1024 * 1024
#: Free bytes at the end of the heap that may stay for the next requests.
KEPT = 16 * 1024 * 1024
#: Bytes that the process must have grown by for it to look for free ones.
GROWN = 2 * 1024 * 1024

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MADV_DONTNEED = 4

_libc: ctypes.CDLL | None = ctypes.CDLL(None) if sys.platform == "linux" else None
_serving = False
_glibc = _libc if hasattr(_libc, "mallopt") and hasattr(_libc, "malloc_trim") else None


def begin_loading() -> None:
    """To be called before anything large is loaded."""
    if _glibc is not None:
        _glibc.mallopt(_M_MMAP_THRESHOLD, LOADING_PIECE)


def begin_serving() -> None:
    """To be called once all is loaded. What is there lives as long as the process: the collector leaves it alone."""
    global _serving
    _serving = True
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)
    if _glibc is not None:
        _glibc.mallopt(_M_MMAP_THRESHOLD, SERVING_PIECE)
        _glibc.mallopt(_M_TRIM_THRESHOLD, KEPT)
    _return_free()
    _return_library_pages()


class Spare:
    """What requests have left behind, returned when there is enough of it."""

    def __init__(self) -> None:
        self._needed = math.inf

    def look(self) -> None:
        """To be called when nothing is under way. Takes some 15 us, or a few ms where there is much to return."""
        if not _serving:
            return  # what grows is what is loaded
        now = resident()
        if now > self._needed + GROWN:
            gc.collect()
            _return_free()
            self._needed = resident()
        else:
            self._needed = min(self._needed, now)


def resident() -> int:
    """Bytes of resident memory, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def as_in_file(smaps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Address and size of each mapping of a file (lines of proc(5) smaps) that nobody has written or can write to."""
    mapping: tuple[int, int] | None = None
    for line in smaps:
        words = line.split()
        if "-" in words[0]:
            start, end = (int(address, 16) for address in words[0].split("-"))
            is_file = len(words) > 5 and words[5].startswith("/")
            mapping = (start, end - start) if is_file and words[1] in ("r-xp", "r--p") else None
        elif words[0] == "Anonymous:" and words[1] != "0":
            mapping = None  # addresses in it were relocated before it was made read-only
        elif words[0] == "VmFlags:" and mapping is not None:
            yield mapping


def _return_free() -> None:
    if _glibc is not None:
        _glibc.malloc_trim(0)


def _return_library_pages() -> None:
    """Two thirds of the code that has run by now was for loading; a page that is missed comes from the page cache."""
    if _libc is None:
        return
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
    except OSError:
        return
    for start, size in as_in_file(lines):
        _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)
