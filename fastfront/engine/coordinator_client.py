"""A frontend as the client of a coordinator: vLLM's own, or that of this server's first process."""

from __future__ import annotations

import logging

import zmq

from fastfront.engine import wire
from fastfront.engine.coordinator_wire import SUBSCRIBE, OnCounts, State
from fastfront.engine.zmq_channel import Channel, ZmqContext, open_socket
from fastfront.errors import StartError, WireError

log = logging.getLogger(__name__)


class CoordinatorClient:
    """A client of the coordinator whose front is at `address`."""

    def __init__(self, address: str, on_counts: OnCounts | None = None) -> None:
        self.wave = 0
        self.running = False
        self._address = address
        self._on_counts = on_counts
        self._context: ZmqContext | None = None
        self._channel: Channel | None = None

    async def start(self) -> None:
        """Connects and subscribes; StartError for an address that is none."""
        self._context = zmq.Context()
        socket = open_socket(self._context, zmq.XSUB)
        try:
            socket.connect(self._address)
        except zmq.ZMQError as error:
            self.close()
            raise StartError(f"coordinator address {self._address!r}: {error}") from error
        self._channel = Channel(socket, self._take)
        self._channel.send(SUBSCRIBE)

    def before_add(self, engine_index: int) -> int:
        """A request goes to this engine (global rank) now; the wave to put in it. If all pause, they are woken."""
        if not self.running and self._channel is not None:
            # As vLLM's own client does: told once, then taken to be so until the coordinator says otherwise.
            self.running = True
            # By its socket's identity, as vLLM's Python client names it: one that is named by its number is left out
            # when all are woken, and sleeps on if the request is aborted before it is seen (see coordinator.py).
            self._channel.send(wire.encode((wire.identity(engine_index), self.wave)))
        return self.wave

    def on_wave_complete(self, engine_index: int, wave: int) -> None:
        """An engine said so on the output socket; with a coordinator it should not, and it is the one that counts."""

    def on_start_wave(self, engine_index: int, wave: int) -> None:
        """As `on_wave_complete`."""

    def close(self) -> None:
        """Leaves."""
        if self._channel is not None:
            self._channel.close()
        if self._context is not None:
            self._context.destroy(linger=0)
        self._channel = self._context = None

    def _take(self, frames: list[bytes]) -> None:
        try:
            state = wire.decode(frames[0], State)
        except WireError as error:
            log.warning("a message of the coordinator that cannot be read: %s", error)
            return
        self.wave, self.running = state.wave, state.running
        if state.counts is not None and self._on_counts is not None:
            self._on_counts(state.counts)
