"""The built-in engine's process: one rank, whose loop reads, steps and tells."""

from __future__ import annotations

import contextlib
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from fastfront.engine.rank.desk import Call, Desk
from fastfront.engine.rank.frames import Message
from fastfront.engine.rank.process import Process as RankProcess
from fastfront.engine.rank.process import check_client
from fastfront.engine.rank.request import UnreadableError, decode_add
from fastfront.engine.rank.sockets import Rank, registration
from fastfront.engine.torch.engine import INDEX, Engine
from fastfront.engine.torch.guided import Guided
from fastfront.engine.torch.settings import EngineSettings, RunnerSettings
from fastfront.engine.torch.utility import Methods
from fastfront.progress import Progress


class Seat:
    """The rank, and the engine once it is loaded: no message comes before that."""

    engine: Engine
    methods: Methods
    desk: Desk

    def __init__(self, rank: Rank, runner: RunnerSettings) -> None:
        self.rank = rank
        self._settings = runner

    def registration(self) -> dict[str, Any]:
        """EngineCoreReadyResponse."""
        runner = self.engine.runner
        return registration(
            index=INDEX,
            stats_address=self.rank.stats_address,
            dtype=str(getattr(runner, "dtype", "float32")).removeprefix("torch."),
            instance=uuid.uuid4().hex,
            max_model_len=runner.max_model_len,
            num_blocks=self.engine.pool.size,
            block_size=runner.block_size,
            max_num_seqs=self._settings.max_num_seqs,
            max_num_batched_tokens=self._settings.max_num_batched_tokens,
        )

    def add(self, payload: list[bytes]) -> None:
        """ADD; of one that cannot be read the client is told as far as its name can be."""
        try:
            add = decode_add(payload[0])
        except (msgspec.MsgspecError, IndexError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(payload)
            raise UnreadableError(f"ADD: {error}") from error
        check_client(self.rank, add.client_index)
        self._send_all(self.engine.add(add))

    def _refuse(self, payload: list[bytes]) -> None:
        with contextlib.suppress(msgspec.MsgspecError, IndexError, UnicodeDecodeError, RecursionError):
            request_id, client = named(payload[0])
            if 0 <= client < self.rank.clients:
                self._send_all(self.engine.refusal(request_id, client))

    def abort(self, request_ids: list[str]) -> None:
        """ABORT."""
        self.engine.abort(request_ids)

    def call(self, call: Call) -> None:
        """UTILITY."""
        self.desk.call(call)

    def start_wave(self, wave: int, exclude: int | None) -> None:
        """START_DP_WAVE: one rank alone has no waves."""

    def abort_all(self) -> list[Message]:
        """The last words to all requests."""
        return self.engine.abort_all()

    def send(self, message: Message) -> None:
        """One message to a frontend."""
        self.rank.send(*message)

    def _send_all(self, messages: list[Message]) -> None:
        for message in messages:
            self.send(message)


def named(payload: bytes) -> tuple[str, int]:
    """The id and the client of an ADD whose rest is wrong; MsgspecError or IndexError if those are, too."""
    fields = msgspec.msgpack.decode(payload, type=list[msgspec.Raw])
    client = msgspec.msgpack.decode(fields[11], type=int) if len(fields) > 11 else 0
    return msgspec.msgpack.decode(fields[0], type=str), client


class Process(RankProcess[Seat]):
    """A process with the model that `load_runner` loads."""

    def __init__(
        self, runner: RunnerSettings, settings: EngineSettings, load_runner: Callable[[RunnerSettings], Any]
    ) -> None:
        super().__init__("torch engine", local=settings.local)
        self._runner = runner
        self._load_runner = load_runner
        self._settings = settings
        self._guided: Guided | None = None
        self._seat = Seat(Rank(self.context, settings.handshake, INDEX, local=settings.local), runner)
        self.seats.append(self._seat)

    def load(self) -> None:
        """Loads the model; StartError."""
        runner, seat = self._load_runner(self._runner), self._seat
        self._guided = Guided(self._runner.model, runner.vocab_size, self.wake)
        seat.engine = Engine(
            runner,
            self._guided,
            max_num_seqs=self._runner.max_num_seqs,
            max_num_batched_tokens=self._runner.max_num_batched_tokens,
            seed=self._settings.seed,
            log_stats=self._settings.log_stats,
            caching=self._settings.enable_prefix_caching,
            say=self.say,
        )
        seat.methods = Methods(seat.engine, runner, seat.send, self._settings.torch_profiler_dir)
        seat.desk = Desk(INDEX, seat.methods, seat.send)

    def turn(self) -> None:
        """Reads what has come, and steps once, or waits for more."""
        seat = self._seat
        self.read(seat)
        if not seat.engine.runnable:
            seat.desk.after_step()
            self.idle()
            return
        try:
            messages = seat.engine.step()
        except Exception:
            self.die(seat, f"the step failed:\n{traceback.format_exc()}")
        for message in messages:
            seat.send(message)
        seat.methods.after_step()
        seat.desk.after_step()
        self.check_end()

    def close(self, linger_ms: int) -> None:
        """Closes the sockets and lets the threads go."""
        super().close(linger_ms)
        if self._guided is not None:
            self._guided.close()


def run(runner: RunnerSettings, settings: EngineSettings) -> int:
    """Runs an engine until it ends; the exit status. StartError where it cannot begin."""
    from fastfront.engine.torch.runner import Runner

    def load(settings: RunnerSettings) -> Runner:
        with Progress("loading weights", unit="tensors") as progress:
            return Runner(settings, progress.at)

    return Process(runner, settings, load).run()
