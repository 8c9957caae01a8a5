"""Templates that come with a request are rendered in a process of their own, so that none can take the server down.

Bounded there: the memory (the process has a limit), the time from start to end (it is killed, and a new one is started
for the next request), the length of the template and of the prompt. One such request is rendered at a time; the event
loop only waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from msgspec.structs import asdict

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.formats.jinja import JinjaFormat

# What of a chat the worker process does without.
_STAYS = ("chat_template", "source")
MAX_SOURCE = 256 * 1024  # characters
MAX_OUTPUT = 16 * 1024 * 1024  # characters
MAX_MEMORY = 1024 * 1024 * 1024  # bytes of address space
_START = "import sys; sys.path[:] = sys.argv[1:]; from fastfront.prompt.sandbox_worker import main; main()"


class TemplateSandbox:
    """Renders untrusted templates; `seconds` is the time for one, 0 for no limit."""

    def __init__(self, format: JinjaFormat, seconds: float) -> None:
        self._format = format
        self._seconds = seconds
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def render(self, source: str, chat: ChatInput) -> str:
        """The prompt text of `chat` in the template `source`; raises RequestError at a limit."""
        if len(source) > MAX_SOURCE:
            raise RequestError(
                f"The chat template of the request has {len(source)} characters, {MAX_SOURCE} are allowed.",
                param="chat_template",
                limit=MAX_SOURCE,
            )
        job = json.dumps(
            {
                "source": source,
                "chat": {name: value for name, value in asdict(chat).items() if name not in _STAYS},
                "special_tokens": self._format.special_tokens,
                "default_kwargs": self._format.default_kwargs,
                "content_format": self._format.content_format,
                "model": self._format.model,
                "max_memory": MAX_MEMORY,
                "max_output": MAX_OUTPUT,
                "seconds": self._seconds,
            }
        ).encode()
        async with self._lock:
            try:
                answer = await asyncio.wait_for(self._ask(job), self._seconds or None)
            except TimeoutError:
                await self.close()
                raise RequestError(
                    f"The chat template of the request ran longer than {self._seconds:g} seconds.",
                    param="chat_template",
                    limit=self._seconds,
                ) from None
            except (asyncio.IncompleteReadError, ConnectionError):
                await self.close()
                raise RequestError(
                    "The chat template of the request could not be rendered within its memory limit.",
                    param="chat_template",
                    limit=MAX_MEMORY,
                ) from None
            except BaseException:  # a cancelled request leaves an answer in the pipe that nobody reads
                await self.close()
                raise
        if "error" in answer:
            raise RequestError(answer["error"], param=answer["param"])
        text: str = answer["text"]
        return text

    async def _ask(self, job: bytes) -> dict[str, Any]:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _START, *sys.path,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        into.write(len(job).to_bytes(8, "big") + job)
        await into.drain()
        size = int.from_bytes(await out.readexactly(8), "big")
        answer: dict[str, Any] = json.loads(await out.readexactly(size))
        return answer

    async def close(self) -> None:
        """Ends the process; the next rendering starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
