"""The requests that engines are busy with, and the aborts that wait to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastfront.engine.balance import Balancer


class Outstanding:
    """Request id -> rank of its engine.

    Aborts are collected and sent together: at the end of this turn of the loop, or earlier by `flush`, which must come
    before anything else that goes to the same engine. `send(rank, request_ids)` sends them.
    """

    def __init__(self, balancer: Balancer, send: Callable[[int, list[str]], object]) -> None:
        self._balancer = balancer
        self._send = send
        self._ranks: dict[str, int] = {}
        self._aborts: dict[int, list[str]] = {}
        self._handle: asyncio.Handle | None = None

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._ranks

    def __len__(self) -> int:
        return len(self._ranks)

    def of(self, rank: int) -> list[str]:
        """The ids of one engine's requests."""
        return [request_id for request_id, where in self._ranks.items() if where == rank]

    def add(self, request_id: str, rank: int) -> None:
        """The engine has been given the request."""
        self._ranks[request_id] = rank
        self._balancer.loads[rank].open += 1

    def close(self, request_id: str) -> bool:
        """The request is over; False if it was already."""
        rank = self._ranks.pop(request_id, None)
        if rank is None:
            return False
        self._balancer.loads[rank].open -= 1
        return True

    def abort(self, request_id: str) -> None:
        """The request is over here and its engine will be told; nothing happens if it was over already."""
        rank = self._ranks.get(request_id)
        if rank is not None:
            self.close(request_id)
            self.abort_at(rank, (request_id,))

    def abort_at(self, rank: int, request_ids: list[str] | tuple[str, ...]) -> None:
        """An engine will be told to end these, whatever it knows of them."""
        self._aborts.setdefault(rank, []).extend(request_ids)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self, rank: int | None = None) -> None:
        """Sends the aborts of one engine, or of all, now."""
        if rank is not None:
            aborts = self._aborts.pop(rank, None)
            if aborts:
                self._send(rank, aborts)
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._aborts:
            self._send(*self._aborts.popitem())
