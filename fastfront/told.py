"""What each of several workers tells of itself to whoever of them asks: on a unix socket for each, in a folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from fastfront.errors import WorkerError

#: How long a worker may take to answer (s).
ANSWER_S = 5.0

Tell = Callable[[], bytes]


class Told:
    """One worker, number `index` of `count`; `folder` is theirs alone."""

    def __init__(self, folder: Path, index: int, count: int) -> None:
        self.folder = folder
        self._index = index
        self._count = count
        self._server: asyncio.Server | None = None

    async def share(self, tell: Tell) -> None:
        """From now on the others may ask for what `tell` gives."""

        def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(tell())
            writer.close()

        self._server = await asyncio.start_unix_server(answer, self.folder / str(self._index))

    async def others(self) -> list[bytes]:
        """What the others tell; WorkerError where one does not answer."""
        others = [index for index in range(self._count) if index != self._index]
        return await asyncio.gather(*map(self._ask, others))

    def close(self) -> None:
        """Stops listening."""
        if self._server is not None:
            self._server.close()

    async def _ask(self, index: int) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self.folder / str(index))
                with contextlib.closing(writer):
                    return await reader.read()
        except (OSError, TimeoutError) as error:
            raise WorkerError(f"frontend worker {index} does not say what it has counted: {error!r}") from error
