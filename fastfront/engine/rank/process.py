"""An engine's process: how it joins a frontend, reads what comes, and the ways it ends.

Ends with 0 on SIGTERM or SIGINT (running requests get an abort output, as from a real engine) and, if it was started as
a child (`local`), when its parent is gone; with 1 after ENGINE_CORE_DEAD or a handshake that failed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket as sockets
import sys
import time
from abc import ABC, abstractmethod
from types import FrameType
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import zmq

from fastfront.engine.rank.desk import Call
from fastfront.engine.rank.frames import READY, Message
from fastfront.engine.rank.request import UnreadableError, read_list
from fastfront.engine.rank.sockets import LINGER_MS, Rank, Socket
from fastfront.engine.wire import ABORT, ADD, START_DP_WAVE, UTILITY
from fastfront.errors import WireError

HANDSHAKE_S = 600
IDLE_MS = 1000
#: For what is still to be sent when the process was asked to end.
SHORT_LINGER_MS = 500
POLLIN = int(zmq.POLLIN)


class Stopped(Exception):
    """The process shall end; `code` is its exit status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Seat(Protocol):
    """One rank with all that belongs to it: what comes in for it."""

    rank: Rank

    def registration(self) -> dict[str, Any]:
        """EngineCoreReadyResponse."""

    def add(self, payload: list[bytes]) -> None:
        """ADD; UnreadableError."""

    def abort(self, request_ids: list[str]) -> None:
        """ABORT."""

    def call(self, call: Call) -> None:
        """UTILITY."""

    def start_wave(self, wave: int, exclude: int | None) -> None:
        """START_DP_WAVE."""

    def abort_all(self) -> list[Message]:
        """The last words to requests that the end of the process ends."""


S = TypeVar("S", bound=Seat)


class Process(ABC, Generic[S]):
    """All ranks of one process called `name`; whoever derives from it fills `seats`."""

    #: Of the READY message where there are several ranks.
    parallel_config_hash: str | None = None

    def __init__(self, name: str, *, local: bool) -> None:
        self.seats: list[S] = []
        self.context: zmq.Context[Socket] = zmq.Context()
        self._name = name
        self._local = local
        self._parent = os.getppid()
        self._signalled = False
        self._loading = False
        self._wake, self._waker = sockets.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._poller = zmq.Poller()
        self._poller.register(self._wake.fileno(), zmq.POLLIN)

    def say(self, line: str) -> None:
        """A line for whoever reads the log."""
        sys.stderr.write(f"{self._name}: {line}\n")
        sys.stderr.flush()

    @abstractmethod
    def turn(self) -> None:
        """Reads what has come, and steps once or idles."""

    def load(self) -> None:
        """What takes its time between HELLO and the registration; a signal ends it at once."""

    # --- start and end --------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Joins, serves, ends; returns the exit status. To be called once, from the main thread."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        fd = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        linger = SHORT_LINGER_MS
        try:
            self._join()
            while True:
                self.turn()
        except Stopped as stopped:
            if stopped.code:
                linger = LINGER_MS
            return stopped.code
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close(linger)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        if self._loading:
            raise Stopped(0)

    def close(self, linger_ms: int) -> None:
        """Closes all sockets."""
        for seat in self.seats:
            seat.rank.close(linger_ms)
        self.context.term()
        self._wake.close()
        self._waker.close()

    def die(self, seat: S, why: str) -> NoReturn:
        """Tells the frontends of this rank that it is dead, and ends."""
        self.say(why)
        seat.rank.send_dead()
        raise Stopped(1)

    def wake(self) -> None:
        """Ends a wait that is going on; from any thread."""
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: there is nothing to wake
            self._waker.send(b"\0")

    def idle(self) -> None:
        """Waits until something has come, not for ever; Stopped."""
        if dict(self._poller.poll(IDLE_MS)).get(self._wake.fileno()):
            self._wake.recv(4096)
        self.check_end()

    def pause(self, seconds: float) -> None:
        """Lets time pass, whatever comes in; a signal cuts it short."""
        if select.select([self._wake], [], [], seconds)[0]:
            self._wake.recv(4096)

    def check_end(self) -> None:
        """Stopped if a signal has come or the parent is gone."""
        if self._signalled:
            for seat in self.seats:
                if seat.rank.clients:
                    for client, frames in seat.abort_all():
                        seat.rank.send(client, frames)
            raise Stopped(0)
        if self._local and os.getppid() != self._parent:
            raise Stopped(0)

    def _await(self, socket: Socket, what: str) -> None:
        """Returns when `socket` has a message."""
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._wake.fileno(), zmq.POLLIN)
        end = time.monotonic() + HANDSHAKE_S
        while not dict(poller.poll(IDLE_MS)).get(socket):
            self.check_end()
            if time.monotonic() > end:
                self.say(f"no {what} came in {HANDSHAKE_S} s")
                raise Stopped(1)

    def _join(self) -> None:
        ranks = [seat.rank for seat in self.seats]
        for rank in ranks:
            rank.hello()
        for rank in ranks:
            self._await(rank.handshake, "init message")
            try:
                rank.take_init()
            except WireError as error:
                self._unusable(error)
        self._loading = True
        self.check_end()
        self.load()
        self._loading = False
        for seat in self.seats:
            try:
                seat.rank.register(seat.registration())
            except zmq.ZMQError as error:
                self._unusable(error)
        for rank in ranks:
            if rank.coordinator is not None:
                self._await(rank.coordinator, "READY of the coordinator")
                if rank.coordinator.recv() != READY:
                    self.say("the coordinator's first message was not READY")
                    raise Stopped(1)
                self._poller.register(rank.coordinator, zmq.POLLIN)
            rank.ready(self.parallel_config_hash)
            for socket in rank.inputs:
                self._poller.register(socket, zmq.POLLIN)

    def _unusable(self, error: Exception) -> NoReturn:
        self.say(f"an init message that cannot be used: {error!r}")
        raise Stopped(1) from error

    # --- in -------------------------------------------------------------------------------------------------------

    def read(self, seat: S) -> None:
        """Takes all that has come in for one rank."""
        for socket in seat.rank.inputs:
            while seat.rank.inputs and waiting(socket):
                self.take(seat, socket.recv_multipart())
        coordinator = seat.rank.coordinator
        if coordinator is not None:
            while waiting(coordinator):
                self.take(seat, coordinator.recv_multipart())

    def take(self, seat: S, frames: list[bytes]) -> None:
        """One message; one that cannot be read is dropped."""
        kind, *payload = frames
        if kind == READY:
            return
        try:
            self.obey(seat, kind, payload)
        except UnreadableError as error:
            self.unreadable(seat, error)

    def unreadable(self, seat: S, error: UnreadableError) -> None:
        """Says that a message could not be read."""
        self.say(f"rank {seat.rank.index} cannot read a message: {error}")

    def go_deaf(self, seat: S) -> None:
        """Reads nothing more for this rank."""
        for socket in seat.rank.inputs:
            self._poller.unregister(socket)
        seat.rank.go_deaf()

    def obey(self, seat: S, kind: bytes, payload: list[bytes]) -> None:
        """Does what a message says; UnreadableError."""
        if kind == ADD:
            seat.add(payload)
        elif kind == ABORT:
            seat.abort(read_list(payload, "ABORT"))
        elif kind == UTILITY:
            body = read_list(payload, "UTILITY")
            if len(body) != 4:
                raise UnreadableError("UTILITY: not [client, call id, method, arguments]")
            check_client(seat.rank, body[0])
            seat.call(Call(*body))
        elif kind == START_DP_WAVE:
            body = read_list(payload, "START_DP_WAVE")
            if len(body) != 2 or not isinstance(body[0], int):
                raise UnreadableError("START_DP_WAVE: not [wave, engine to exclude]")
            seat.start_wave(*body)
        else:
            raise UnreadableError(f"unknown kind {kind[:16]!r}")


def check_client(rank: Rank, client: object) -> None:
    """UnreadableError for the number of a frontend process that is not there."""
    if not isinstance(client, int) or not 0 <= client < rank.clients:
        raise UnreadableError(f"client {client} of {rank.clients}")


def waiting(socket: Socket) -> bool:
    """Whether a message has come."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & POLLIN)
