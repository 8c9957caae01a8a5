"""How one process becomes several workers, and how many."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys

from fastfront import cores, log
from fastfront.errors import StartError
from fastfront.workers.first import Child, First
from fastfront.workers.other import Other
from fastfront.workers.worker import SIGNALS, Worker

#: Workers where nobody said how many: one for each core, but no more than these.
MOST_UNASKED = 4
#: Files that a server needs open, and for each worker: sockets for HTTP and engines, and a line.
FILES, FILES_A_WORKER = 64, 5


def unasked() -> int:
    """How many workers there are where nobody said."""
    return min(cores.usable(), MOST_UNASKED)


def check_room(count: int) -> None:
    """StartError where the process may not have as many files open as so many workers need."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = FILES + FILES_A_WORKER * count
    if count > 1 and limit != resource.RLIM_INFINITY and limit < needed:
        raise StartError(
            f"{count} frontend workers need {needed} open files, and the limit is {limit} (ulimit -n); "
            "--api-server-count takes fewer workers"
        )


def fork(count: int) -> Worker:
    """Makes `count` workers of this process, and tells which of them it is now. Raises StartError if that cannot be.

    To be called before there is a loop or a thread: of those only the caller would go on in the others. SIGTERM and
    SIGINT wait from here until `telling_errors` (the first) and `begin` (another): what runs at a fork must not be cut.
    """
    if count == 1:
        return Worker()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be none, or it is closed
            stream.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    children: list[Child] = []
    for index in range(1, count):
        try:
            ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError as error:  # those that are there notice that this one ends
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            raise StartError(f"cannot start {count} frontend workers: {error.strerror}") from error
        if pid == 0:
            for sock in (ours, *(child.line.sock for child in children)):
                sock.close()
            log.name_worker(index)
            return Other(index, count, theirs)
        theirs.close()
        children.append(Child(index, pid, ours))
    log.name_worker(0)
    return First(count, children)
