"""Waves of data-parallel engines (wire b.3), from the frontend's side.

The ranks of a mixture-of-experts model step together. They run while any has a request, then all pause: that was a
wave, and the next has the next number. A request that comes while they pause must wake every rank: the one that gets it
wakes by the request, the others by START_DP_WAVE. Each request carries the wave that the frontend believes in; an
engine that gets one of a past wave asks for the next itself. Whether the engines run is known only from their own
words, so START_DP_WAVE is repeated with every request until they have said so: to an engine that runs it means nothing.

Two ways to it: vLLM's coordinator process, which we are a client of, or our own, for engines that `serve` looks after.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from fastfront import env
from fastfront.errors import StartError

log = logging.getLogger(__name__)

#: One engine's load: requests waiting, requests running, share of the cache in use (0 to 1).
Counts = tuple[int, int, float]
#: Takes the loads of all engines of the deployment, by global rank.
OnCounts = Callable[[list[Counts]], None]
ZmqSocket = zmq.Socket[bytes]

SUBSCRIBE, UNSUBSCRIBE = b"\x01", b"\x00"
READY: Final = b"READY"
START_DP_WAVE: Final = b"\x02"
#: After so many quiet seconds a step is taken to be complete: every rank has told its counts.
STEP_SETTLED_S: Final = 0.05

POLLIN: Final = int(zmq.POLLIN)

_pack = msgspec.msgpack.Encoder().encode


class Load(msgspec.Struct):
    """What of SchedulerStats (wire d.10) tells an engine's load, and in which step."""

    num_running_reqs: int
    num_waiting_reqs: int
    kv_cache_usage: float
    step_counter: int = 0
    current_wave: int = 0


class Report(msgspec.Struct, array_like=True):
    """What of an engine's message (wire d.7) is meant for the coordinator."""

    engine_index: int
    outputs: list[Any] = []
    scheduler_stats: Load | None = None
    timestamp: float = 0.0
    utility_output: Any = None
    finished_requests: Any = None
    wave_complete: int | None = None
    start_wave: int | None = None


class State(msgspec.Struct, array_like=True):
    """What vLLM's coordinator publishes; `counts` is nil when only the wave has changed."""

    counts: list[Counts] | None
    wave: int
    running: bool


_read_report = msgspec.msgpack.Decoder(Report).decode
_read_state = msgspec.msgpack.Decoder(State).decode


class Reader:
    """Gives each message of a ZMQ socket to `take`, on the running loop.

    ZMQ's file descriptor tells of changes only, and a send can use one up: whoever sends calls `look` afterwards.
    """

    def __init__(self, socket: ZmqSocket, take: Callable[[list[bytes]], None]) -> None:
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self.look()

    def look(self) -> None:
        """Reads soon what has come in the meantime."""
        self._loop.call_soon(self._drain)

    def close(self) -> None:
        """Stops; the socket stays open."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1

    def _drain(self) -> None:
        while self._fd >= 0 and int(self._socket.getsockopt(zmq.EVENTS)) & POLLIN:
            self._take(self._socket.recv_multipart())


def _socket(context: zmq.Context[ZmqSocket], kind: int) -> ZmqSocket:
    socket = context.socket(kind)
    for option in (zmq.LINGER, zmq.SNDHWM, zmq.RCVHWM):
        socket.setsockopt(option, 0)
    return socket


class CoordinatorClient:
    """A client of vLLM's coordinator at `address`; the supervisor gave it to us."""

    def __init__(self, address: str, on_counts: OnCounts | None = None) -> None:
        self.wave = 0
        self.running = False
        self._address = address
        self._on_counts = on_counts
        self._context: zmq.Context[ZmqSocket] | None = None
        self._socket: ZmqSocket | None = None
        self._reader: Reader | None = None

    async def start(self) -> None:
        """Connects and subscribes; StartError for an address that is none."""
        self._context = zmq.Context()
        self._socket = _socket(self._context, zmq.XSUB)
        try:
            self._socket.connect(self._address)
        except zmq.ZMQError as error:
            self.close()
            raise StartError(f"coordinator address {self._address!r}: {error}") from error
        self._socket.send(SUBSCRIBE)
        self._reader = Reader(self._socket, self._take)

    def before_add(self, engine_index: int) -> int:
        """A request goes to this engine (global rank) now; the wave to put in it. If all pause, they are woken."""
        if not self.running and self._socket is not None and self._reader is not None:
            # As vLLM's own client does: told once, then taken to be so until the coordinator says otherwise.
            self.running = True
            self._socket.send(_pack((engine_index, self.wave)))
            self._reader.look()
        return self.wave

    def on_wave_complete(self, engine_index: int, wave: int) -> None:
        """An engine said so on the output socket; with a coordinator it should not, and it is the one that counts."""

    def on_start_wave(self, engine_index: int, wave: int) -> None:
        """As `on_wave_complete`."""

    def close(self) -> None:
        """Leaves."""
        if self._reader is not None:
            self._reader.close()
        if self._socket is not None:
            self._socket.close()
        if self._context is not None:
            self._context.term()
        self._reader = self._socket = self._context = None

    def _take(self, frames: list[bytes]) -> None:
        try:
            state = _read_state(frames[0])
        except msgspec.MsgspecError as error:
            log.warning("a message of the coordinator that cannot be read: %s", error)
            return
        self.wave, self.running = state.wave, state.running
        if state.counts is not None and self._on_counts is not None:
            self._on_counts(state.counts)


class InProcessCoordinator:
    """Our own, for `engine_count` engines with the ranks from 0 on; `host` None: all of them are on this machine."""

    def __init__(self, engine_count: int, host: str | None = None, on_counts: OnCounts | None = None) -> None:
        self.wave = 0
        self.running = False
        #: Where the engines read from and write to: the handshake's coordinator_input and coordinator_output.
        self.addresses: tuple[str, str] = "", ""
        self._host = host
        self._on_counts = on_counts
        self._counts: list[Counts] = [(0, 0, 0.0)] * engine_count
        self._last_step = -1, -1
        self._settling: asyncio.TimerHandle | None = None
        self._subscribed = 0
        self._context: zmq.Context[ZmqSocket] | None = None
        self._publish: ZmqSocket | None = None
        self._pull: ZmqSocket | None = None
        self._readers: list[Reader] = []
        self._paths: list[Path] = []

    async def start(self) -> None:
        """Binds; `addresses` are known from then on. StartError where that fails."""
        self._context = zmq.Context()
        self._publish = _socket(self._context, zmq.XPUB)
        self._publish.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._pull = _socket(self._context, zmq.PULL)
        try:
            self.addresses = self._bind(self._publish), self._bind(self._pull)
        except zmq.ZMQError as error:
            self.close()
            raise StartError(f"the coordinator cannot listen on {self._host or 'a unix socket'}: {error}") from error
        self._readers = [Reader(self._publish, self._take_subscription), Reader(self._pull, self._take_report)]

    def _bind(self, socket: ZmqSocket) -> str:
        if self._host is None:
            path = Path(env.rpc_base_path() or tempfile.gettempdir()) / f"fastfront-{uuid.uuid4().hex}"
            self._paths.append(path)
            socket.bind(f"ipc://{path}")
        else:
            if ":" in self._host:
                socket.setsockopt(zmq.IPV6, 1)
            socket.bind(f"tcp://[{self._host}]:*" if ":" in self._host else f"tcp://{self._host}:*")
        endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        return endpoint.rstrip(b"\0").decode()

    def before_add(self, engine_index: int) -> int:
        """A request goes to this engine now; the wave to put in it. Wakes the other engines unless they run."""
        if not self.running:
            self._start_wave(engine_index)
        return self.wave

    def on_wave_complete(self, engine_index: int, wave: int) -> None:
        """All engines pause after this wave."""
        if wave >= self.wave:
            self.wave = wave + 1
            self.running = False

    def on_start_wave(self, engine_index: int, wave: int) -> None:
        """An engine runs in this wave: the others must."""
        if wave > self.wave or (wave == self.wave and not self.running):
            self.wave = wave
            self.running = True
            self._start_wave(engine_index)

    def close(self) -> None:
        """Stops, and removes its unix sockets."""
        if self._settling is not None:
            self._settling.cancel()
        for reader in self._readers:
            reader.close()
        for socket in (self._publish, self._pull):
            if socket is not None:
                socket.close()
        if self._context is not None:
            self._context.term()
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._publish = self._pull = self._context = self._settling = None
        self._readers, self._paths = [], []

    def _start_wave(self, exclude: int | None) -> None:
        if self._publish is not None:
            self._publish.send_multipart((START_DP_WAVE, _pack((self.wave, exclude))))
            self._readers[0].look()

    def _take_subscription(self, frames: list[bytes]) -> None:
        if frames == [SUBSCRIBE] and self._publish is not None:
            self._subscribed += 1
            # Later ones too: an engine that came back waits for it.
            if self._subscribed >= len(self._counts):
                self._publish.send(READY)
        elif frames != [UNSUBSCRIBE]:
            log.warning("an engine sent the coordinator something that is no subscription")

    def _take_report(self, frames: list[bytes]) -> None:
        try:
            report = _read_report(frames[0])
            if not 0 <= report.engine_index < len(self._counts):
                raise ValueError(f"engine {report.engine_index} of {len(self._counts)}")
        except (msgspec.MsgspecError, ValueError) as error:
            log.error("an engine's message to the coordinator cannot be read: %s", error)
            # It may have been the end of a wave; to wake engines that run does no harm.
            self.running = False
            return
        if report.scheduler_stats is not None:
            self._count(report.engine_index, report.scheduler_stats)
        if report.wave_complete is not None:
            self.on_wave_complete(report.engine_index, report.wave_complete)
        elif report.start_wave is not None:
            self.on_start_wave(report.engine_index, report.start_wave)

    def _count(self, engine_index: int, load: Load) -> None:
        """Counts are passed on when a step is complete, that is when the next begins or nothing more comes."""
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
