"""The process that renders templates of requests: length-prefixed JSON jobs in, answers out, until its input ends."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from typing import Any

from fastfront.errors import RequestError, StartError
from fastfront.flow import ChatInput
from fastfront.prompt.formats.jinja import JinjaFormat
from fastfront.prompt.template import ChatTemplate


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Renders one job: {"text"}, or {"error", "param"}."""
    try:
        template = ChatTemplate(job["source"])
        format = JinjaFormat(
            {"default": template},
            special_tokens=job["special_tokens"],
            default_kwargs=job["default_kwargs"],
            content_format=job["content_format"],
            model=job["model"],
        )
        text = format.render(ChatInput(**job["chat"]))
    except RequestError as error:
        return {"error": error.message, "param": error.param}
    except StartError as error:
        return {"error": str(error), "param": "chat_template"}
    except (MemoryError, RecursionError, OverflowError):
        return {"error": "The chat template of the request needs too much memory.", "param": "chat_template"}
    if len(text) > job["max_output"]:
        message = f"The chat template of the request wrote {len(text)} characters, {job['max_output']} are allowed."
        return {"error": message, "param": "chat_template"}
    return {"text": text}


def _limit(memory: int, seconds: float) -> None:
    # The parent keeps the time; the CPU limit ends a process whose parent was killed.
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime + seconds) + 2 if seconds else resource.RLIM_INFINITY
    for kind, soft in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, cpu)):
        with contextlib.suppress(ValueError, OSError):  # some systems have no such limit
            resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))


def main() -> None:
    """Serves jobs from standard input."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(8):
        job = json.loads(source.read(int.from_bytes(head, "big")))
        _limit(job["max_memory"], job["seconds"])
        body = json.dumps(answer(job)).encode()
        sink.write(len(body).to_bytes(8, "big") + body)
        sink.flush()
