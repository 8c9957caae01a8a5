"""Handlers that may, but need not, wait before they have all that they need."""

from __future__ import annotations

from collections.abc import Coroutine

from fastfront.flow import Running, Work


async def settled(work: Work | Running | None) -> Running | None:
    """What goes on, if anything does, once there is nothing more to wait for."""
    return await work if isinstance(work, Coroutine) else work
