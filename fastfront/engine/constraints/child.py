"""One checking process, as its parent sees it: JSON with its length before it, there and back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

#: How long a process may take until it is ready (s): it loads libraries, perhaps from a cold disk.
START_TIME = 60.0
_START = "import sys; sys.path[:] = sys.argv[2:]; from fastfront.engine.constraints.worker import main; main()"


class ChildError(Exception):
    """The process died of what it was asked; `code` is its exit code, or the negative number of a signal."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the process ended with {code}")
        self.code = code


class Child:
    """Starts with the first question, and again after it died."""

    def __init__(self, isolated: bool) -> None:
        self._isolated = isolated
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer. TimeoutError, ChildError: the process is gone then; OSError: it does not start."""
        try:
            return await self._ask(job, seconds)
        except ChildError as error:
            if error.code != -signal.SIGKILL:
                raise
        return await self._ask(job, seconds)  # somebody killed it, perhaps before it was asked

    async def _ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        try:
            into, out = await self._ready()
            message = json.dumps(job).encode()
            into.write(len(message).to_bytes(8, "big") + message)
            answer: dict[str, Any] = await asyncio.wait_for(_read(out), seconds or None)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ChildError(await self.close()) from error
        except BaseException:  # of a cancelled question an answer would stay in the pipe
            await self.close()
            raise
        return answer

    async def _ready(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _START, "isolated" if self._isolated else "", *sys.path,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            try:
                assert self._process.stdout is not None
                await asyncio.wait_for(_read(self._process.stdout), START_TIME)
            except (TimeoutError, asyncio.IncompleteReadError) as error:
                raise OSError("the process for checking does not start") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    async def close(self) -> int | None:
        """Ends the process; what it ended with, if there was one."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.returncode is None:
            # Not by process.kill(): that looks for the exit code first, and asyncio, too late then, knows none.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return await process.wait()


async def _read(out: asyncio.StreamReader) -> dict[str, Any]:
    size = int.from_bytes(await out.readexactly(8), "big")
    answer: dict[str, Any] = json.loads(await out.readexactly(size))
    return answer
