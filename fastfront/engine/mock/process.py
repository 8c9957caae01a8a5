"""The mock engine's process: its ranks, one loop over them, and the ways it ends.

Ends with 0 on SIGTERM or SIGINT (running requests get an abort output, as from a real engine) and, if it was started as
a child (`local`), when its parent is gone; with 1 after ENGINE_CORE_DEAD or a handshake that failed; by SIGKILL with
`crash_after`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket as sockets
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import msgspec
import zmq

from fastfront.engine.mock.core import Core, Message
from fastfront.engine.mock.lane import Ring
from fastfront.engine.mock.options import Options
from fastfront.engine.mock.rank import LINGER_MS, Rank
from fastfront.engine.mock.request import FatalError, UnreadableError, read_add, read_list
from fastfront.engine.mock.utility import Call, Desk
from fastfront.engine.mock.waves import Lockstep, Member
from fastfront.engine.mock.wire import ABORT, ADD, FULL, MALFORMED, READY, SHORT, START_DP_WAVE, UTILITY, unpack
from fastfront.errors import ConfigError

HANDSHAKE_S = 600
IDLE_MS = 1000
POLLIN = int(zmq.POLLIN)


class Stopped(Exception):
    """The process shall end; `code` is its exit status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Seat:
    """One rank with all that belongs to it."""

    def __init__(self, engine: Process, rank: Rank, scripts: dict[str, Any]) -> None:
        self.rank = rank
        self.core = Core(engine.options, rank.index, engine.ring, scripts, engine.say)
        self.member = Member(self.core, rank.tell)
        self.desk = Desk(self.core, self.send, engine.resumed)
        self._told = (0, 0)

    def send(self, message: Message) -> None:
        """Sends what the core or the desk has made."""
        self.rank.send(*message)

    def tell_counts(self) -> None:
        """Tells the coordinator how many requests run and wait, if that has changed."""
        if self.core.counts != self._told:
            self._told = self.core.counts
            self.rank.tell([self.core.index, [], self.core.statistics(), time.monotonic()])


class Process:
    """All ranks of one mock engine process."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.ring = Ring(options.token_limit, options.seed, FULL if options.full_arrays else SHORT)
        self._record: TextIO | None = None
        self._parent = os.getppid()
        self._sent = 0
        self._signalled = False
        faults = (options.die_after, options.crash_after, options.malformed_after)
        self._faulty = faults != (None, None, None)
        self._wake, self._waker = sockets.socketpair()
        self._waker.setblocking(False)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._poller.register(self._wake.fileno(), zmq.POLLIN)
        scripts: dict[str, Any] = {}
        try:
            if options.scripts:
                scripts = json.loads(Path(options.scripts).read_text())
            if options.record:
                self._record = Path(options.record).open("a")  # noqa: SIM115 - open as long as the process runs
        except (OSError, ValueError) as error:
            raise ConfigError(f"mock engine: {error}") from error
        indices = range(options.index, options.index + options.data_parallel_size)
        self.seats = [Seat(self, Rank(self._context, options, index), scripts) for index in indices]
        self.lockstep = Lockstep([seat.member for seat in self.seats]) if options.moe else None

    def say(self, line: str) -> None:
        """A line for whoever reads the log."""
        sys.stderr.write(f"mock engine: {line}\n")
        sys.stderr.flush()

    def resumed(self) -> None:
        """A rank's pause is over."""
        if self.lockstep:
            self.lockstep.resumed()

    # --- start and end --------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Joins, serves, ends; returns the exit status. To be called once, from the main thread."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        fd = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        linger = 500
        try:
            self._join()
            while True:
                self._turn()
        except Stopped as stopped:
            if stopped.code:
                linger = LINGER_MS
            return stopped.code
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._close(linger)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True

    def _close(self, linger: int) -> None:
        for seat in self.seats:
            seat.rank.close(linger)
        self._context.term()
        self._wake.close()
        self._waker.close()
        if self._record:
            self._record.close()

    def _check_end(self) -> None:
        """Stopped if a signal has come or the parent is gone."""
        if self._signalled:
            for seat in self.seats:
                if seat.rank.clients:
                    for message in seat.core.abort_all():
                        seat.send(message)
            raise Stopped(0)
        if self.options.local and os.getppid() != self._parent:
            raise Stopped(0)

    def _await(self, socket: zmq.Socket[bytes], what: str) -> None:
        """Returns when `socket` has a message."""
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._wake.fileno(), zmq.POLLIN)
        end = time.monotonic() + HANDSHAKE_S
        while not dict(poller.poll(IDLE_MS)).get(socket):
            self._check_end()
            if time.monotonic() > end:
                self.say(f"no {what} came in {HANDSHAKE_S} s")
                raise Stopped(1)

    def _join(self) -> None:
        for seat in self.seats:
            seat.rank.hello()
        for seat in self.seats:
            self._await(seat.rank.handshake, "init message")
            try:
                seat.rank.register()
            except (msgspec.MsgspecError, KeyError, TypeError, zmq.ZMQError) as error:
                self.say(f"an init message that cannot be used: {error!r}")
                raise Stopped(1) from error
        for seat in self.seats:
            if seat.rank.coordinator is not None:
                self._await(seat.rank.coordinator, "READY of the coordinator")
                if seat.rank.coordinator.recv() != READY:
                    self.say("the coordinator's first message was not READY")
                    raise Stopped(1)
                self._poller.register(seat.rank.coordinator, zmq.POLLIN)
            seat.rank.ready()
            for socket in seat.rank.inputs:
                self._poller.register(socket, zmq.POLLIN)

    # --- one turn -------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        began = time.monotonic()
        if self.lockstep:
            self.lockstep.before_input()
        for seat in self.seats:
            self._read(seat)
        if not self._can_step():
            for seat in self.seats:
                seat.desk.after_step()
            self._poller.poll(IDLE_MS)
            self._check_end()
            return
        self._step()
        if self.options.step_ms:
            pause = self.options.step_ms / 1000 - (time.monotonic() - began)
            if pause > 0:
                select.select([self._wake], [], [], pause)
        self._check_end()

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
            if seat.rank.coordinator is not None:
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
            self._die(seat, f"died after {self._sent} messages, as told")
        if self._sent == self.options.crash_after:
            self._close(LINGER_MS)
            os.kill(os.getpid(), signal.SIGKILL)

    def _die(self, seat: Seat, why: str) -> None:
        self.say(why)
        seat.rank.send_dead()
        raise Stopped(1)

    # --- in -------------------------------------------------------------------------------------------------------

    def _read(self, seat: Seat) -> None:
        """Takes all that has come in for one rank."""
        for socket in seat.rank.inputs:
            while seat.rank.inputs and waiting(socket):
                self._take(seat, socket.recv_multipart())
        coordinator = seat.rank.coordinator
        if coordinator is not None:
            while waiting(coordinator):
                self._take(seat, coordinator.recv_multipart())
            seat.tell_counts()

    def _take(self, seat: Seat, frames: list[bytes]) -> None:
        kind, *payload = frames
        if kind == READY:
            return
        try:
            self._keep(kind, payload)
            self._obey(seat, kind, payload)
        except UnreadableError as error:
            self.say(f"rank {seat.rank.index} cannot read a message: {error}")
            if self.options.strict:
                for socket in seat.rank.inputs:
                    self._poller.unregister(socket)
                seat.rank.go_deaf()
        except FatalError as error:
            self._die(seat, f"rank {seat.rank.index}: {error}")

    def _keep(self, kind: bytes, payload: list[bytes]) -> None:
        if self._record:
            try:
                line = {"kind": kind[0], "body": unpack(payload[0])}
            except (msgspec.MsgspecError, IndexError, UnicodeDecodeError) as error:
                raise UnreadableError(str(error)) from error
            self._record.write(json.dumps(line, default=repr) + "\n")
            self._record.flush()

    def _obey(self, seat: Seat, kind: bytes, payload: list[bytes]) -> None:
        if kind == ADD:
            request = read_add(payload, strict=self.options.strict)
            self._check_client(seat, request.client)
            seat.core.add(request)
            seat.member.on_add(request.wave)
        elif kind == ABORT:
            seat.core.abort(read_list(payload, "ABORT"))
        elif kind == UTILITY:
            body = read_list(payload, "UTILITY")
            if len(body) != 4:
                raise UnreadableError("UTILITY: not [client, call id, method, arguments]")
            self._check_client(seat, body[0])
            seat.desk.call(Call(*body))
        elif kind == START_DP_WAVE:
            body = read_list(payload, "START_DP_WAVE")
            if len(body) != 2 or not isinstance(body[0], int):
                raise UnreadableError("START_DP_WAVE: not [wave, engine to exclude]")
            seat.member.on_start(*body)
        else:
            raise UnreadableError(f"unknown kind {kind[:16]!r}")

    def _check_client(self, seat: Seat, client: object) -> None:
        if not isinstance(client, int) or not 0 <= client < seat.rank.clients:
            raise UnreadableError(f"client {client} of {seat.rank.clients}")


def waiting(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message has come."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & POLLIN)


def run(options: Options) -> int:
    """Runs a mock engine until it ends; returns the exit status."""
    return Process(options).run()
