"""Waves of data-parallel engines (wire b.3), and who leads them: our own coordinator, in the process that owns them.

The ranks of a mixture-of-experts model step together. They run while any has a request, then all pause: that was a
wave, and the next has the next number. A request that comes while they pause must wake every rank, by START_DP_WAVE.
The one that gets it would wake by the request, unless that is aborted before it is seen: then the others would wait for
a rank that sleeps, and with them all requests. So nobody is left out. Each request carries the wave that the frontend
believes in; an engine that gets one of a past wave asks for the next itself. Whether the engines run is known only from
their own words, so START_DP_WAVE is repeated with every request until they have said so: to an engine that runs it
means nothing.

The frontend of this process asks the coordinator itself; those of other processes are clients of its front, as they
would be of vLLM's coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zmq

from fastfront import env
from fastfront.engine import wire
from fastfront.engine.coordinator_wire import READY, SUBSCRIBE, UNSUBSCRIBE, Counts, Load, Note, OnCounts, Report, State
from fastfront.engine.zmq_channel import Channel, ZmqContext, open_socket
from fastfront.errors import StartError, WireError

log = logging.getLogger(__name__)

#: After so many quiet seconds a step is taken to be complete: every rank has told its counts.
STEP_SETTLED_S: Final = 0.05
#: So many seconds after a frontend's note it is told whether the engines run.
NOTE_ANSWERED_S: Final = 0.05
#: A frontend that has stopped reading misses states beyond so many rather than fills our memory. It may then send
#: requests of a past wave, and the engine that gets one asks for the next wave itself.
FRONT_BACKLOG: Final = 1000


class InProcessCoordinator:
    """Leads `engine_count` engines with the ranks from 0 on; `host` None: all of them are on this machine.

    `front` is the ZMQ endpoint for the frontends of other processes, None: there are none; the folder of an `ipc://`
    path is the caller's. Without `lockstep` (a dense model) every rank steps on its own: nobody pauses or is woken,
    only loads are passed on.
    """

    def __init__(
        self,
        engine_count: int,
        host: str | None = None,
        on_counts: OnCounts | None = None,
        *,
        front: str | None = None,
        lockstep: bool = True,
    ) -> None:
        self.wave = 0
        self.running = not lockstep
        #: Where the engines read from and write to: the handshake's coordinator_input and coordinator_output.
        self.addresses: tuple[str, str] = "", ""
        self._host = host
        self._on_counts = on_counts
        self._front_endpoint = front
        self._lockstep = lockstep
        self._counts: list[Counts] = [(0, 0, 0.0)] * engine_count
        self._last_step = -1, -1
        self._settling: asyncio.TimerHandle | None = None
        self._answering: asyncio.TimerHandle | None = None
        self._subscribed = 0
        self._context: ZmqContext | None = None
        self._engines: Channel | None = None
        self._reports: Channel | None = None
        self._front: Channel | None = None
        self._paths: list[Path] = []

    async def start(self) -> None:
        """Binds; `addresses` are known from then on. StartError where that fails."""
        self._context = zmq.Context()
        self._engines, reads = self._listen(zmq.XPUB, self._endpoint(), self._take_subscription)
        self._reports, writes = self._listen(zmq.PULL, self._endpoint(), self._take_report)
        if self._front_endpoint is not None:
            self._front, _ = self._listen(zmq.XPUB, self._front_endpoint, self._take_front, FRONT_BACKLOG)
        self.addresses = reads, writes

    def before_add(self, engine_index: int) -> int:
        """A request goes to this engine now; the wave to put in it. Wakes the engines unless they run."""
        if not self.running:
            self._start_wave()
        return self.wave

    def on_wave_complete(self, engine_index: int, wave: int) -> None:
        """All engines pause after this wave."""
        if self._lockstep and wave >= self.wave:
            self._turn(wave + 1, running=False)

    def on_start_wave(self, engine_index: int, wave: int) -> None:
        """An engine runs in this wave: the others must."""
        if self._lockstep and (wave > self.wave or (wave == self.wave and not self.running)):
            self._turn(wave, running=True)
            self._start_wave()

    def close(self) -> None:
        """Stops, and removes the unix sockets that it has named itself."""
        for timer in (self._settling, self._answering):
            if timer is not None:
                timer.cancel()
        for channel in (self._engines, self._reports, self._front):
            if channel is not None:
                channel.close()
        if self._context is not None:
            self._context.destroy(linger=0)
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._settling = self._answering = None
        self._engines = self._reports = self._front = self._context = None
        self._paths = []

    def _endpoint(self) -> str:
        """A new one for the engines."""
        if self._host is not None:
            return f"tcp://[{self._host}]:*" if ":" in self._host else f"tcp://{self._host}:*"
        path = Path(env.rpc_base_path() or tempfile.gettempdir()) / f"fastfront-{uuid.uuid4().hex[:12]}"
        self._paths.append(path)
        return f"ipc://{path}"

    def _listen(
        self, kind: int, endpoint: str, take: Callable[[list[bytes]], None], send_limit: int = 0
    ) -> tuple[Channel, str]:
        """A bound socket, and where others connect to it."""
        assert self._context is not None
        socket = open_socket(self._context, kind, send_limit)
        if kind == zmq.XPUB:
            # Every subscription is answered, not only the first.
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        if "[" in endpoint:
            socket.setsockopt(zmq.IPV6, 1)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise StartError(f"the coordinator cannot listen on {endpoint}: {error}") from error
        bound = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        return Channel(socket, take), bound.rstrip(b"\0").decode()

    # --- to and from the engines ---

    def _start_wave(self) -> None:
        if self._engines is not None:
            self._engines.send(wire.START_DP_WAVE, wire.encode((self.wave, None)))

    def _take_subscription(self, frames: list[bytes]) -> None:
        if frames == [SUBSCRIBE] and self._engines is not None:
            self._subscribed += 1
            # Later ones too: an engine that came back waits for it.
            if self._subscribed >= len(self._counts):
                self._engines.send(READY)
        elif frames != [UNSUBSCRIBE]:
            log.warning("an engine sent the coordinator something that is no subscription")

    def _take_report(self, frames: list[bytes]) -> None:
        try:
            report = wire.decode(frames[0], Report)
            self._check(report.engine_index)
        except WireError as error:
            log.error("an engine's message to the coordinator cannot be read: %s", error)
            # It may have been the end of a wave; to wake engines that run does no harm.
            self._turn(self.wave, running=not self._lockstep)
            return
        if report.scheduler_stats is not None:
            self._count(report.engine_index, report.scheduler_stats)
        if report.wave_complete is not None:
            self.on_wave_complete(report.engine_index, report.wave_complete)
        elif report.start_wave is not None:
            self.on_start_wave(report.engine_index, report.start_wave)

    def _check(self, engine_index: int) -> None:
        if not 0 <= engine_index < len(self._counts):
            raise WireError(f"engine {engine_index} of {len(self._counts)}")

    def _count(self, engine_index: int, load: Load) -> None:
        """Counts are passed on when a step is complete, that is when the next begins or nothing more comes.

        Ranks that step on their own number no steps: theirs are passed on at that distance.
        """
        step = load.current_wave, load.step_counter
        if step > self._last_step:
            if self._settling is not None:
                self._settled()
            self._last_step = step
        self._counts[engine_index] = load.num_waiting_reqs, load.num_running_reqs, load.kv_cache_usage
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(STEP_SETTLED_S, self._settled)

    def _settled(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if self._on_counts is not None:
            self._on_counts(list(self._counts))
        self._publish(self._counts)

    # --- to and from the other frontends ---

    def _turn(self, wave: int, running: bool) -> None:
        """What holds from now on; the other frontends are told if that is new."""
        if (wave, running) != (self.wave, self.running):
            self.wave, self.running = wave, running
            self._publish(None)

    def _publish(self, counts: list[Counts] | None) -> None:
        if self._front is not None:
            self._front.send(wire.encode(State(counts, self.wave, self.running)))

    def _take_front(self, frames: list[bytes]) -> None:
        if frames == [SUBSCRIBE]:
            self._publish(self._counts)
        elif frames != [UNSUBSCRIBE]:
            self._take_note(frames)

    def _take_note(self, frames: list[bytes]) -> None:
        try:
            if len(frames) != 1:
                raise WireError(f"{len(frames)} frames")
            note = wire.decode(frames[0], Note)
            self._check(note.engine_index)
        except WireError as error:
            log.warning("a frontend's message to the coordinator cannot be read: %s", error)
            return
        if self.running:
            return
        self._start_wave()
        # The frontend takes the engines to run now and sends no more notes. Engines that were told to pause do not wake
        # and say nothing either: so it is told what holds.
        if self._answering is None:
            self._answering = asyncio.get_running_loop().call_later(NOTE_ANSWERED_S, self._answer)

    def _answer(self) -> None:
        self._answering = None
        self._publish(None)
