"""Waves (wire b.3): ranks of a mixture-of-experts model step together or not at all.

A step needs every rank: those without requests run a dummy batch, but only once START_DP_WAVE, or a request of their
own, has told them to. So a frontend that does not wake the others waits for ever, as with a real engine. When no rank
has a request left the wave is over: rank 0 tells the coordinator, and the next one has the next number. Lockstep is
kept among the ranks of one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fastfront.engine.mock.core import Core

#: Sends an EngineCoreOutputs with these leading fields to the coordinator.
Tell = Callable[[list[Any]], None]


class Member:
    """One rank in its waves."""

    def __init__(self, core: Core, tell: Tell) -> None:
        self.core = core
        self.wave = 0
        self.running = False
        self.was_running = False
        self._tell = tell

    @property
    def awake(self) -> bool:
        """Whether it takes part in a step."""
        return not self.core.frozen and (self.running or self.core.unfinished)

    def on_add(self, wave: int) -> None:
        """A request of `wave` has come."""
        if wave > self.wave:
            self.wave = wave
        elif wave < self.wave and not self.running and not self.core.paused:
            self.running = True
            self.say_start()

    def on_start(self, wave: int, exclude: int | None) -> None:
        """START_DP_WAVE has come."""
        if not self.core.paused and exclude != self.core.index and wave >= self.wave:
            self.wave = wave
            self.running = True

    def say_start(self) -> None:
        """Tells the coordinator that this wave has begun."""
        self._tell([self.core.index, [], None, time.monotonic(), None, None, None, self.wave])

    def say_complete(self) -> None:
        """Tells the coordinator that this wave is over."""
        self._tell([self.core.index, [], None, time.monotonic(), None, None, self.wave])


class Lockstep:
    """The ranks that step together; the first is the one that speaks for all."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self._step = 0

    @property
    def ready(self) -> bool:
        """Whether every rank takes part."""
        return all(member.awake for member in self.members)

    def before_input(self) -> None:
        """To be called before a turn's messages are read."""
        for member in self.members:
            member.was_running = member.running

    def resumed(self) -> None:
        """A pause is over: if any rank has kept requests, all go on."""
        if not any(m.core.paused for m in self.members) and any(m.core.unfinished for m in self.members):
            for member in self.members:
                member.running = True

    def after_step(self) -> None:
        """Every rank has stepped: does the wave go on?"""
        self._step += 1
        unfinished = any(member.core.unfinished for member in self.members)
        first = self.members[0]
        if not unfinished:
            first.say_complete()
            self._step = 0
        elif not first.was_running:
            first.say_start()
        for member in self.members:
            member.running = unfinished
            member.wave += not unfinished
            member.core.wave_step = member.wave, self._step
