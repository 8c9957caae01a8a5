"""The connection to every engine on vLLM's wire: requests out, outputs in, and what happens when an engine goes.

Two sockets are bound: a ROUTER that the engines take their input from and a PULL that they push their outputs to. An
input connection has its engine's rank as its name; an output connection has none, and is its engine's from the first
message on. One read's messages are fed to the router one after the other, then every touched client connection is
written once.

An engine is dead when it says so, when a connection to it is lost, or when it sends nonsense; its requests fail at that
moment. One that is connected again (a lost connection that heals) or that registers anew is alive again, and is told to
abort what it may still be busy with.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from fastfront.engine import wire
from fastfront.engine.balance import Balancer, read_stats
from fastfront.engine.guard import Guard
from fastfront.engine.outstanding import Outstanding
from fastfront.engine.registration import EngineInfo, Registrations
from fastfront.engine.sockets import Peer, ZmtpServer
from fastfront.engine.utility import Utilities
from fastfront.engine.zmtp import MAX_MESSAGE, Message
from fastfront.errors import EngineDeadError, EngineError, EngineRequestError, RequestError, StartError, WireError
from fastfront.fast import Flusher, Router
from fastfront.flow import EngineRequest

if TYPE_CHECKING:
    from fastfront.fast.stream import Parsed

log = logging.getLogger(__name__)

_decode_names = msgspec.msgpack.Decoder(list[str]).decode


class Waves(Protocol):
    """Who keeps data-parallel engines in step (a coordinator)."""

    def before_add(self, engine_index: int) -> int:
        """A request goes to this engine now; the wave to put in it."""

    def on_wave_complete(self, engine_index: int, wave: int) -> None:
        """The engines have finished a wave and pause."""

    def on_start_wave(self, engine_index: int, wave: int) -> None:
        """An engine was given a request while all pause, and asks for a wave."""


class Engine:
    """One engine as the link sees it; `rank` is global."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.identity = wire.identity(rank)
        self.death: EngineDeadError | None = None
        self.heals = False  # a new connection is enough to be alive again, no registration needed
        self.times = 0  # how often it has registered: every frontend sees the same number
        self.broken_at = 0  # after so many registrations it was given up, here or by another frontend
        self.leaving: asyncio.Handle | None = None
        self.output: Peer | None = None
        self.orphans: list[str] = []  # requests that failed here and perhaps still run there
        self.stats: bytes | None = None  # the last scheduler_stats, as they came


class EngineLink:
    """All engines with the ranks `start` to `start + count - 1`.

    `vocab_size` is the width of the model's logits. This is frontend `client` of `clients` that share the engines.
    """

    def __init__(
        self,
        router: Router,
        flusher: Flusher,
        *,
        vocab_size: int,
        start: int = 0,
        count: int = 1,
        client: int = 0,
        clients: int = 1,
        waves: Waves | None = None,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        self.info: EngineInfo | None = None
        self.dead: EngineDeadError | None = None
        self.on_dead: Callable[[EngineDeadError], None] | None = None
        self.on_alive: Callable[[], None] | None = None
        #: Gets what `give_up` of the other frontends must be told of an engine that sent what cannot be handled.
        self.on_broken: Callable[[int, int, str], None] | None = None
        self.on_stats: Callable[[int, bytes], None] | None = None  # rank, scheduler_stats as msgpack
        self.waves = waves
        self.balancer = Balancer(start, count, client, clients)
        self.guard = Guard(vocab_size)
        #: All frames of the message that is being handled: arrays in a step's `raw` may lie in frames 1 and on.
        self.frames: Sequence[bytes] = ()
        self._router = router
        self._flusher = flusher
        self._client = client
        self._registrations = Registrations(start, count)
        self._registered: asyncio.Future[None] | None = None
        self._engines = {rank: Engine(rank) for rank in range(start, start + count)}
        self._outstanding = Outstanding(self.balancer, self._send_aborts)
        self._utilities = Utilities()
        self._inputs = ZmtpServer("ROUTER", self._on_inputs, self._on_input_peer, self._on_input_lost, max_message)
        self._outputs = ZmtpServer(
            "PULL", self._on_outputs, None, self._on_output_lost, max_message, take=self._take_read
        )

    # --- for the app ---

    async def start(self, input_listener: socket.socket, output_listener: socket.socket) -> None:
        """Takes over two bound stream sockets; the engines may have been connecting to them for a while."""
        self._registered = asyncio.get_running_loop().create_future()
        await self._inputs.serve(input_listener)
        await self._outputs.serve(output_listener)

    async def wait_ready(self, timeout: float) -> EngineInfo:  # noqa: ASYNC109
        """Returns once every engine has registered; StartError after `timeout` seconds or for a wrong registration."""
        if self._registered is None:
            raise StartError("the engine link was not started")
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._registered)
        except TimeoutError:
            raise self._registrations.too_late(timeout) from None
        assert self.info is not None
        return self.info

    def close(self) -> None:
        """Sends what waits to be sent and closes both sockets."""
        self._outstanding.flush()
        self._inputs.close()
        self._outputs.close()
        if self._registered is not None:
            self._registered.cancel()
        for rank in self._engines:
            self._utilities.fail(rank, EngineDeadError("the engine link is closed"))

    # --- for the pipeline ---

    def submit(self, request: EngineRequest) -> int:
        """Gives a request to an engine; the engine's rank.

        EngineDeadError when there is none to take it; RequestError for a request that an engine must not see.
        """
        info = self._alive()
        checked = self.guard.check(request, info.max_model_len)
        if request.request_id in self._outstanding:
            raise EngineError(f"the request id {request.request_id} is in use")
        engine = self._engines[self.balancer.choose(request.data_parallel_rank)]
        wave = self.waves.before_add(engine.rank) if self.waves is not None else 0
        try:
            frames = wire.add_frames(request, *checked, self._client, wave)
        except (TypeError, ValueError, OverflowError) as error:
            raise RequestError(f"the request cannot be written for the engine: {error}") from error
        self._outstanding.flush(engine.rank)
        if not self._inputs.send(engine.identity, frames):
            raise EngineDeadError(f"engine {engine.rank} is not connected")
        self._outstanding.add(request.request_id, engine.rank)
        return engine.rank

    def abort(self, request_ids: Iterable[str]) -> None:
        """Ends requests: nothing more comes for them. Ids that are not open are skipped."""
        for request_id in request_ids:
            self._router.close(request_id)
            self._outstanding.abort(request_id)

    async def utility(
        self,
        method: str,
        args: Sequence[Any] = (),
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[Any]:
        """Calls a method of every engine; the results in rank order. EngineError for a failure or after `timeout` s."""
        self._alive()
        calls = {engine.rank: self._utilities.open(engine.rank, method) for engine in self._engines.values()}
        futures = [future for _, future in calls.values()]
        try:
            for engine in self._engines.values():
                frames = wire.utility_frames(self._client, calls[engine.rank][0], method, args)
                self._outstanding.flush(engine.rank)
                if not self._inputs.send(engine.identity, frames):
                    raise EngineDeadError(f"engine {engine.rank} is not connected")
            async with asyncio.timeout(timeout):
                return list(await asyncio.gather(*futures))
        except TimeoutError:
            silent = [str(rank) for rank, (_, future) in calls.items() if future.cancelled() or not future.done()]
            raise EngineError(f"{method} was not answered within {timeout:g} s by engine {', '.join(silent)}") from None
        except (TypeError, OverflowError, UnicodeEncodeError) as error:
            raise RequestError(f"the arguments of {method} cannot be written for the engine: {error}") from error
        finally:
            self._utilities.forget(call_id for call_id, _ in calls.values())
            for future in futures:
                if not future.cancel() and not future.cancelled():
                    future.exception()  # seen: the first failure is the one that was told

    def take_counts(self, counts: Sequence[tuple[int, int, float]]) -> None:
        """What a coordinator says of every rank: (waiting, running, KV cache usage)."""
        for rank, load in self.balancer.loads.items():
            if rank < len(counts):
                load.stats = None
                load.tell(*counts[rank])

    def stats(self) -> dict[int, wire.SchedulerStats]:
        """Each engine's last word on itself, of those that speak of themselves."""
        read = {rank: read_stats(engine.stats) for rank, engine in self._engines.items() if engine.stats is not None}
        return {rank: stats for rank, stats in read.items() if stats is not None}

    def _alive(self) -> EngineInfo:
        if self.dead is not None:
            raise EngineDeadError(str(self.dead))
        if self.info is None:
            raise EngineDeadError("the engines have not all registered yet")
        return self.info

    def _send_aborts(self, rank: int, request_ids: list[str]) -> bool:
        return self._inputs.send(self._engines[rank].identity, wire.abort_frames(request_ids))

    # --- registration ---

    def _on_inputs(self, peer: Peer, messages: list[Message]) -> None:
        for message in messages:
            try:
                rank = self._registrations.add(peer.identity, message[0])
                self._join_registrations()
            except StartError as error:
                self._fail_start(error)
                continue
            log.info("engine %d has registered", rank)
            engine = self._engines[rank]
            engine.times += 1
            if engine.death is not None and engine.times > engine.broken_at:
                self._revive(engine)

    def _join_registrations(self) -> None:
        if not self._registrations.missing():
            self.info = self._registrations.info()
            if self._registered is not None and not self._registered.done():
                self._registered.set_result(None)

    def _fail_start(self, error: StartError) -> None:
        log.error("%s", error)
        if self._registered is not None and not self._registered.done():
            self._registered.set_exception(error)

    def _on_input_peer(self, peer: Peer) -> None:
        engine = self._engine_of(peer)
        if engine is None:
            return
        if self.info is None and self._registrations.restore(engine.rank):
            self._join_registrations()
        if engine.leaving is not None:
            engine.leaving.cancel()
            self._leave(engine, "it connected anew", newer=peer)
        if engine.death is not None and engine.heals:
            self._revive(engine)

    def _on_input_lost(self, peer: Peer, reason: str) -> None:
        engine = self._engine_of(peer)
        if engine is None:
            return
        if self.info is None:
            log.warning("engine %d went away before all engines were there: %s", engine.rank, reason)
            self._registrations.remove(engine.rank)
        elif engine.death is None and engine.leaving is None:
            # Once more round the loop: outputs, or its last word, may have come together with this.
            engine.leaving = asyncio.get_running_loop().call_soon(self._leave, engine, reason)

    def _engine_of(self, peer: Peer) -> Engine | None:
        rank = wire.engine_index(peer.identity)
        return self._engines.get(rank) if rank is not None else None

    # --- outputs ---

    def _take_read(self, peer: Peer, data: bytes) -> int:
        """Takes plain messages as they were read: where all goes well, no Python runs for a message."""
        at = 0
        if peer.owner is None:
            return at
        now = time.monotonic()
        try:
            while True:
                at, parsed = self._router.feed_read(data, at, now)
                if parsed is None or peer.reason:
                    return at
                self._took(peer, parsed)
        except Exception as error:
            self._malformed(peer, error, len(data))
            return at
        finally:
            self._flush()

    def _on_outputs(self, peer: Peer, messages: list[Message]) -> None:
        try:
            for message in messages:
                self._take(peer, message)
                if peer.reason:
                    break  # it was cut off for what it sent
        finally:
            self.frames = ()
            self._flush()

    def _flush(self) -> None:
        self._outstanding.flush()
        self._flusher.flush()

    def _take(self, peer: Peer, message: Message) -> None:
        self.frames = message
        if len(message) == 1 and message[0] == wire.ENGINE_CORE_DEAD:
            self._bury(peer, "it reported a fatal failure")
            return
        try:
            self._took(peer, self._router.feed(message[0], time.monotonic()))
        except Exception as error:
            self._malformed(peer, error, len(message[0]))

    def _took(self, peer: Peer, parsed: Parsed) -> None:
        """Goes on with what of a message is not text; raises for what cannot be handled."""
        engine = self._engines.get(parsed.engine_index)
        if engine is not None:
            engine.output = peer
            peer.owner = engine
        for step in parsed.steps:
            self._step(step)
        if parsed.stats is not None and engine is not None:
            self._take_stats(engine, parsed.stats)
        if parsed.utility is not None:
            self._utilities.answer(wire.decode(parsed.utility, wire.UtilityOutput))
        if parsed.finished_requests is not None:
            self._end_silent(_decode_names(parsed.finished_requests))
        if self.waves is not None and parsed.wave_complete is not None:
            self.waves.on_wave_complete(parsed.engine_index, parsed.wave_complete)
        if self.waves is not None and parsed.start_wave is not None:
            self.waves.on_start_wave(parsed.engine_index, parsed.start_wave)
        if parsed.error is not None:
            raise parsed.error

    def _malformed(self, peer: Peer, error: Exception, size: int) -> None:
        at = error.offset if isinstance(error, WireError) else None
        log.error("an output message (in %d bytes) cannot be handled (offset %s)", size, at, exc_info=error)
        reason = f"it sent a message that cannot be handled: {error}"
        for engine in self._bury(peer, reason):
            if self.on_broken is not None and not engine.heals:
                self._call(self.on_broken, engine.rank, engine.times, reason)
        peer.close("it sent a malformed message")

    def _step(self, step: Any) -> None:
        request_id = step.stream.request_id
        if step.finish_reason >= 0:
            if step.engine_done:
                self._outstanding.close(request_id)
            else:
                self._outstanding.abort(request_id)
        owner = step.stream.owner
        if owner is None:
            return  # its request was given up in this very turn
        try:
            owner.on_step(step)
        except Exception as error:
            log.exception("request %s failed in its owner", request_id)
            self.abort((request_id,))
            self._tell(step.stream, error)

    def _take_stats(self, engine: Engine, stats: bytes) -> None:
        engine.stats = self.balancer.loads[engine.rank].stats = stats
        if self.on_stats is not None:
            self._call(self.on_stats, engine.rank, stats)

    def _end_silent(self, request_ids: list[str]) -> None:
        """The engine has finished these. Whoever waits still was not told by an output and never will be."""
        for request_id in request_ids:
            if self._outstanding.close(request_id):
                self._fail({request_id}, EngineRequestError, f"the engine ended {request_id} without an answer")

    def _tell(self, stream: Any, error: Exception) -> None:
        owner = stream.owner
        if owner is None:
            return
        try:
            owner.on_error(error)
        except Exception:
            log.exception("the owner of %s failed to take an error", stream.request_id)

    def _fail(self, request_ids: set[str], kind: type[EngineError], message: str) -> None:
        for stream in self._router.streams():
            if stream.request_id in request_ids:
                self._router.close(stream.request_id)
                self._tell(stream, kind(message))

    # --- death and return ---

    def _on_output_lost(self, peer: Peer, reason: str) -> None:
        for engine in self._engines.values():
            if engine.output is peer:
                engine.output = None
                if self.info is not None and engine.death is None and engine.leaving is None:
                    engine.leaving = asyncio.get_running_loop().call_soon(self._leave, engine, reason)

    def _leave(self, engine: Engine, reason: str, newer: Peer | None = None) -> None:
        engine.leaving = None
        if engine.death is None:
            self._kill(engine, f"the connection was lost ({reason})", heals=True)
            self._cut_off(engine, keep=newer)
            self._flusher.flush()

    def _cut_off(self, engine: Engine, keep: Peer | None = None) -> None:
        """Closes what is left of its connections: if it lives it comes back, and so shows that it does."""
        for peer in (engine.output, self._inputs.peer(engine.identity)):
            if peer is not None and peer is not keep:
                peer.close("the engine's other connection was lost")
        engine.output = None

    def give_up(self, rank: int, times: int, reason: str) -> None:
        """Another frontend takes nothing more of this engine, which it saw register so often: until it does so anew."""
        engine = self._engines.get(rank)
        if engine is None or times < engine.times:  # it has done so meanwhile
            return
        engine.broken_at = times
        if engine.death is not None:
            engine.heals = False
            return
        self._kill(engine, reason, heals=False)
        if engine.orphans:  # it lives, and would go on with them
            self._outstanding.abort_at(engine.rank, engine.orphans)
            self._outstanding.flush(engine.rank)
            engine.orphans = []
        self._flusher.flush()

    def _bury(self, peer: Peer, reason: str) -> list[Engine]:
        """The engine behind an output connection is dead; if nobody knows which it is, all that it can be are."""
        if self.info is None:
            self._fail_start(StartError(f"an engine failed before all were there: {reason}"))
            return []
        known = [engine for engine in self._engines.values() if engine.output is peer]
        suspects = known or [engine for engine in self._engines.values() if engine.output is None]
        for engine in suspects:
            if engine.death is None:
                self._kill(engine, reason, heals=len(suspects) > 1)
                if engine.heals:
                    self._cut_off(engine)
            elif len(suspects) == 1:
                engine.heals = False
        return suspects

    def _kill(self, engine: Engine, reason: str, heals: bool) -> None:
        error = EngineDeadError(f"engine {engine.rank} is dead: {reason}")
        log.error("%s", error)
        engine.death = self.dead = error
        engine.heals = heals
        engine.orphans = self._outstanding.of(engine.rank)
        for request_id in engine.orphans:
            self._outstanding.close(request_id)
        self._fail(set(engine.orphans), EngineDeadError, str(error))
        self._utilities.fail(engine.rank, error)
        if self.on_dead is not None:
            self._call(self.on_dead, error)

    def _revive(self, engine: Engine) -> None:
        log.warning("engine %d is back", engine.rank)
        engine.death = None
        if engine.orphans:
            self._outstanding.abort_at(engine.rank, engine.orphans)
            self._outstanding.flush(engine.rank)
            engine.orphans = []
        self.dead = next((other.death for other in self._engines.values() if other.death is not None), None)
        if self.dead is None and self.on_alive is not None:
            self._call(self.on_alive)

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("a callback of the engine link failed")
