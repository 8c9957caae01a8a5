"""The mock engine's process: its ranks, one loop over them, and the faults it was told to have."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, TextIO

import msgspec

from fastfront.engine.mock.core import Core
from fastfront.engine.mock.lane import Ring
from fastfront.engine.mock.options import Options
from fastfront.engine.mock.request import FatalError, read_add
from fastfront.engine.mock.stats import BLOCK_SIZE, BLOCKS
from fastfront.engine.mock.utility import Methods
from fastfront.engine.mock.waves import Lockstep, Member
from fastfront.engine.rank.desk import Desk
from fastfront.engine.rank.frames import FULL, SHORT, Message, unpack
from fastfront.engine.rank.process import Process as RankProcess
from fastfront.engine.rank.process import check_client
from fastfront.engine.rank.request import UnreadableError
from fastfront.engine.rank.sockets import LINGER_MS, Rank, registration
from fastfront.errors import ConfigError

#: Not msgpack: 0xc1 is no type.
MALFORMED = b"\x94\x00\x91\xc1\xc0"


class Seat:
    """One rank with all that belongs to it."""

    def __init__(self, engine: Process, rank: Rank, scripts: dict[str, Any]) -> None:
        self.rank = rank
        self.core = Core(engine.options, rank.index, engine.ring, scripts, engine.say)
        self.member = Member(self.core, rank.tell)
        self._options = engine.options
        methods = Methods(self.core, self.send, engine.resumed)
        self.desk = Desk(rank.index, methods, self.send, full=engine.options.full_arrays)
        self.call, self.abort, self.abort_all = self.desk.call, self.core.abort, self.core.abort_all
        self.start_wave = self.member.on_start
        self._told = (0, 0)

    def registration(self) -> dict[str, Any]:
        """EngineCoreReadyResponse."""
        return registration(
            index=self.rank.index,
            stats_address=self.rank.stats_address,
            dtype="bfloat16",
            instance="mock",
            max_model_len=self._options.max_model_len,
            num_blocks=BLOCKS,
            block_size=BLOCK_SIZE,
            max_num_seqs=self._options.max_num_seqs,
            max_num_batched_tokens=8192,
            data_parallel_size=self._options.data_parallel_size,
        )

    def add(self, payload: list[bytes]) -> None:
        """ADD."""
        request = read_add(payload, strict=self._options.strict)
        check_client(self.rank, request.client)
        self.core.add(request)
        self.member.on_add(request.wave)

    def send(self, message: Message) -> None:
        """Sends what the core or the desk has made."""
        self.rank.send(*message)

    def tell_counts(self) -> None:
        """Tells the coordinator how many requests run and wait, if that has changed."""
        if self.rank.coordinator is not None and self.core.counts != self._told:
            self._told = self.core.counts
            self.rank.tell([self.core.index, [], self.core.statistics(), time.monotonic()])


class Process(RankProcess[Seat]):
    """All ranks of one mock engine process; with `crash_after` it ends by SIGKILL."""

    def __init__(self, options: Options) -> None:
        super().__init__("mock engine", local=options.local)
        self.options = options
        self.ring = Ring(options.token_limit, options.seed, FULL if options.full_arrays else SHORT)
        if options.data_parallel_size > 1:
            self.parallel_config_hash = "mock"
        self._record: TextIO | None = None
        self._sent = 0
        faults = (options.die_after, options.crash_after, options.malformed_after)
        self._faulty = faults != (None, None, None)
        scripts: dict[str, Any] = {}
        try:
            if options.scripts:
                scripts = json.loads(Path(options.scripts).read_text())
            if options.record:
                self._record = Path(options.record).open("a")  # noqa: SIM115 - open as long as the process runs
        except (OSError, ValueError) as error:
            raise ConfigError(f"mock engine: {error}") from error
        for index in range(options.index, options.index + options.data_parallel_size):
            rank = Rank(self.context, options.handshake, index, local=options.local)
            self.seats.append(Seat(self, rank, scripts))
        self.lockstep = Lockstep([seat.member for seat in self.seats]) if options.moe else None

    def resumed(self) -> None:
        """A rank's pause is over."""
        if self.lockstep:
            self.lockstep.resumed()

    def close(self, linger_ms: int) -> None:
        """Closes all sockets and the record."""
        super().close(linger_ms)
        if self._record:
            self._record.close()

    # --- one turn -------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Reads what has come, and steps once, for at least `step_ms`, or idles."""
        began = time.monotonic()
        if self.lockstep:
            self.lockstep.before_input()
        for seat in self.seats:
            self.read(seat)
            seat.tell_counts()
        if not self._can_step():
            for seat in self.seats:
                seat.desk.after_step()
            self.idle()
            return
        self._step()
        if self.options.step_ms:
            pause = self.options.step_ms / 1000 - (time.monotonic() - began)
            if pause > 0:
                self.pause(pause)
        self.check_end()

    def _can_step(self) -> bool:
        stall = self.options.stall_after
        if stall is not None and self._sent >= stall:
            return False
        if self.lockstep:
            return self.lockstep.ready
        return any(seat.core.runnable for seat in self.seats)

    def _step(self) -> None:
        for seat in self.seats:
            for message in seat.core.step():
                if self._faulty:
                    self._fail(seat)
                seat.rank.send(*message)
                self._sent += 1
            seat.tell_counts()
            if seat.desk.pending:
                seat.desk.after_step()
        if self.lockstep:
            self.lockstep.after_step()
        if self._faulty:
            self._fail(self.seats[0])

    def _fail(self, seat: Seat) -> None:
        """Does the fault whose count is full."""
        if self._sent == self.options.malformed_after:
            self._sent += 1
            seat.rank.send(0, [MALFORMED])
        if self._sent == self.options.die_after:
            self.die(seat, f"died after {self._sent} messages, as told")
        if self._sent == self.options.crash_after:
            self.close(LINGER_MS)
            os.kill(os.getpid(), signal.SIGKILL)

    # --- in -------------------------------------------------------------------------------------------------------

    def take(self, seat: Seat, frames: list[bytes]) -> None:
        """One message; what breaks a real engine breaks this one if it is `strict`."""
        try:
            super().take(seat, frames)
        except FatalError as error:
            self.die(seat, f"rank {seat.rank.index}: {error}")

    def unreadable(self, seat: Seat, error: UnreadableError) -> None:
        """Says so, and reads on unless it is `strict`."""
        super().unreadable(seat, error)
        if self.options.strict:
            self.go_deaf(seat)

    def obey(self, seat: Seat, kind: bytes, payload: list[bytes]) -> None:
        """Records a message and does what it says."""
        if self._record:
            try:
                line = {"kind": kind[0], "body": unpack(payload[0])}
            except (msgspec.MsgspecError, IndexError, UnicodeDecodeError) as error:
                raise UnreadableError(str(error)) from error
            self._record.write(json.dumps(line, default=repr) + "\n")
            self._record.flush()
        super().obey(seat, kind, payload)


def run(options: Options) -> int:
    """Runs a mock engine until it ends; returns the exit status."""
    return Process(options).run()
