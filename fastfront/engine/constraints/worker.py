"""The process that checks constraints: jobs from standard input until it ends, verdicts to standard output.

Run as `python -c START isolated|"" PATH...`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from typing import Any

from fastfront.engine.constraints.libraries import load_guidance, load_xgrammar
from fastfront.engine.constraints.verdict import Judge

MAX_MEMORY = 4 << 30  # bytes of address space


def main() -> None:
    """Serves jobs."""
    source = sys.stdin.buffer
    # What libraries print must not come between the answers.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    judge = Judge(load_guidance(), None if sys.argv[1] == "isolated" else load_xgrammar())
    with contextlib.suppress(ValueError, OSError):  # some systems have no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer: dict[str, Any] = {}
    while True:
        body = json.dumps(answer).encode()
        sink.write(len(body).to_bytes(8, "big") + body)
        sink.flush()
        head = source.read(8)
        if len(head) < 8:
            return
        job = json.loads(source.read(int.from_bytes(head, "big")))
        answer = judge(job["kind"], job["text"], job["backend"])
