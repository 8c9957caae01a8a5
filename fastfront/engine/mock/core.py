"""One rank's scheduler: requests in, a step's messages out; it does no I/O.

A request waits until one of `max_num_seqs` places is free, then runs until its tokens end or it is aborted. Plain ones
run in a lane, others as a play. A paused core takes requests and starts none; kept ones also stand still.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from fastfront.engine.mock import stats
from fastfront.engine.mock.lane import Lane, Plain, Ring
from fastfront.engine.mock.options import Options
from fastfront.engine.mock.play import Play, drawn, scripted
from fastfront.engine.mock.request import FatalError, Request, check
from fastfront.engine.rank.frames import FINISH, FULL, NIL, SHORT, Message, pack
from fastfront.engine.rank.parts import Part, Parts


class Core:
    """The requests of rank `index`; `say` takes a line for the log."""

    def __init__(
        self,
        options: Options,
        index: int,
        ring: Ring,
        scripts: dict[str, Any],
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.index = index
        self.options = options
        self.ring = ring
        self.layout = FULL if options.full_arrays else SHORT
        self.steps = 0
        #: Set by whoever pauses: no request is started; with `frozen` no running one goes on either.
        self.paused = False
        self.frozen = False
        #: For the statistics of a core in a wave (wire b.3).
        self.wave_step: tuple[int, int] = (0, 0)
        self._scripts = scripts
        self._say = say
        self._ids: set[str] = set()
        self._waiting: deque[Request] = deque()
        self._lanes: dict[int, Lane] = {}
        self._plays: dict[str, Play] = {}
        self._late: dict[str, list[Any]] = {}
        self._held = 0
        self._shown: tuple[int, int] | None = None
        self._new = [0, 0, 0]

    # --- what there is --------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Requests that have a place."""
        return len(self._ids) - len(self._waiting)

    @property
    def counts(self) -> tuple[int, int]:
        """Running and waiting requests."""
        return self.running, len(self._waiting)

    @property
    def unfinished(self) -> bool:
        """Whether any request still has something to come, or waits for a place that it can get."""
        return bool(self.running or self._late or (self._waiting and not self.paused))

    @property
    def runnable(self) -> bool:
        """Whether a step would say anything."""
        if not self.frozen:
            for lane in self._lanes.values():  # no any(): this runs every step
                if lane.members:
                    return True
            if self._late or any(not play.idle for play in self._plays.values()):
                return True
            if self._waiting and not self.paused and self.running < self.options.max_num_seqs:
                return True
        return self.options.stats and self._shown is not None and self.counts != self._shown

    def statistics(self) -> dict[str, Any]:
        """SchedulerStats as of now, without what is new since the last one."""
        running, waiting = self.counts
        wave, step = self.wave_step
        return stats.scheduler_stats(running=running, waiting=waiting, tokens=self._held, step=step, wave=wave)

    # --- in -------------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Takes a request; FatalError, if strict, for one that breaks a real engine."""
        if self.options.strict:
            check(request, max_model_len=self.options.max_model_len, vocab=self.options.vocab)
            if request.id in self._ids:
                raise FatalError(f"duplicate request id {request.id}")
        elif request.id in self._ids:
            self._say(f"request {request.id} came twice: the second replaces the first")
            self._drop(request.id)
        if not request.abort_immediately:
            self._ids.add(request.id)
            self._waiting.append(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forgets requests without a word, as a real engine does; unknown ids are ignored."""
        for request_id in request_ids:
            client = self._drop(request_id)
            if client is not None and self.options.late_outputs:
                self._late[request_id] = [client, self.options.late_outputs]

    def abort_all(self) -> list[Message]:
        """Ends every request by the engine's own will: each gets an output that says so."""
        parts = self._parts()
        for request_id in sorted(self._ids):
            client = self._drop(request_id)
            if client is not None:
                parts.add(client, self.layout.output([request_id, [], None, None, None, FINISH["abort"]]))
                parts.of(client).done.append(request_id)
        return self._messages(parts, finished=True)

    def _drop(self, request_id: str) -> int | None:
        """The client of a request that is no more; None if it was not there."""
        if request_id not in self._ids:
            return None
        self._ids.discard(request_id)
        play = self._plays.pop(request_id, None)
        if play:
            self._held -= len(play.request.prompt) + play.tokens
            return play.request.client
        for client, lane in self._lanes.items():
            plain = lane.remove(request_id)
            if plain:
                self._held -= len(plain.request.prompt) + self.steps - plain.start
                return client
        request = next(r for r in self._waiting if r.id == request_id)
        self._waiting.remove(request)
        return request.client

    # --- out ------------------------------------------------------------------------------------------------------

    def step(self) -> list[Message]:
        """One step: a message to each client whose requests gave something."""
        parts = self._parts()
        if not self.frozen:
            if self._waiting and not self.paused:
                self._start()
            self.steps += 1
            if self._plays:
                for play in list(self._plays.values()):
                    if not play.idle:
                        self._turn(play, parts.of(play.request.client))
            for client, lane in self._lanes.items():
                if lane.members:
                    self._run(lane, parts.of(client))
            if self._late:
                for request_id, (client, left) in list(self._late.items()):
                    self._be_late(request_id, left, parts.of(client))
        if not parts and self.options.stats and self._shown is not None and self.counts != self._shown:
            parts.of(0)
        return self._messages(parts, finished=self.options.data_parallel_size > 1)

    def _start(self) -> None:
        """Gives waiting requests the free places."""
        while self._waiting and self.running < self.options.max_num_seqs:
            request = self._waiting.popleft()
            self._held += len(request.prompt)
            self._new[0] += 1
            self._new[1] += len(request.prompt)
            self._new[2] += self._cached(request)
            most = request.max_tokens
            room = max(1, self.options.max_model_len - len(request.prompt))
            limit = room if most is None else max(1, min(most, room))
            play = self._play(request, limit)
            if play:
                self._plays[request.id] = play
                continue
            lane = self._lanes.get(request.client)
            if lane is None:
                opening = self._opening if self.options.stats else None
                lane = self._lanes[request.client] = Lane(self.ring, self.layout, opening)
            lane.add(request, self.steps, limit)

    def _play(self, request: Request, limit: int) -> Play | None:
        """The play of a request that is more than plain."""
        params = request.params
        vocab = self.options.token_limit
        script = self._scripts.get(str(params.get("seed")))
        if script:
            return Play(
                request,
                scripted(script["steps"]),
                limit=limit,
                vocab=vocab,
                finish=script.get("finish", "length"),
                stop_reason=script.get("stop_reason"),
            )
        stops = {params.get("_eos_token_id"), *(params.get("stop_token_ids") or ())}
        plain = all(params.get(name) is None for name in ("logprobs", "prompt_logprobs", "logprob_token_ids"))
        if plain and stops.isdisjoint(self.ring.known):
            return None
        masked = frozenset(stops) | frozenset(params.get("_all_stop_token_ids") or ())
        return Play(request, drawn(self.ring, masked, params.get("min_tokens") or 0), limit=limit, vocab=vocab)

    def _turn(self, play: Play, part: Part) -> None:
        before = play.tokens
        fields, finished = play.turn(part.arrays)
        self._held += play.tokens - before
        if self.options.stats and not play.begun:
            fields += self._first(play.request)
        play.begun = True
        part.count += 1
        part.pieces.append(self.layout.output(fields))
        if finished:
            part.done.append(play.request.id)
            self._drop(play.request.id)

    def _run(self, lane: Lane, part: Part) -> None:
        given = len(lane.members)
        part.count += given
        self._held += given
        for plain in lane.step(self.steps, part.pieces):
            self._held -= len(plain.request.prompt) + plain.end - plain.start
            self._ids.discard(plain.request.id)
            part.done.append(plain.request.id)

    def _be_late(self, request_id: str, left: int, part: Part) -> None:
        """An output that a real engine would not send: its request was aborted."""
        part.count += 1
        part.pieces.append(self.layout.output([request_id, [self.ring.draw()]]))
        if left > 1:
            self._late[request_id][1] = left - 1
        else:
            del self._late[request_id]

    def _opening(self, plain: Plain, token: int, finished: bool) -> bytes:
        fields = [plain.request.id, [token], None, None, None, FINISH["length"] if finished else None, None]
        return self.layout.output(fields + self._first(plain.request))

    def _first(self, request: Request) -> list[Any]:
        """The fields from `events` on of a request's first output."""
        shown = stats.prefill_stats(len(request.prompt), self._cached(request))
        return [stats.events(request.arrived, time.monotonic()), None, None, None, shown]

    def _cached(self, request: Request) -> int:
        return max(0, min(self.options.cached_tokens, len(request.prompt) - 1))

    def _parts(self) -> Parts:
        return Parts(self.index, self.layout, self.options.inline_below)

    def _messages(self, parts: Parts, *, finished: bool) -> list[Message]:
        stats = pack(self._fresh_statistics()) if parts and self.options.stats else NIL
        return parts.messages(stats, finished=finished)

    def _fresh_statistics(self) -> dict[str, Any]:
        """SchedulerStats with what is new since the last ones that were shown."""
        self._shown = self.counts
        running, waiting = self.counts
        requests, tokens, cached = self._new
        self._new = [0, 0, 0]
        wave, step = self.wave_step
        return stats.scheduler_stats(
            running=running,
            waiting=waiting,
            tokens=self._held,
            step=step,
            wave=wave,
            new_requests=requests,
            new_tokens=tokens,
            cached_tokens=cached,
        )
