"""Who runs in the next step, and with how many tokens.

Requests wait, or run. All that run have one token to compute (they decode) or the rest of their prompt. A step has a
budget of tokens: decoders come first, then running prompts, then those that wait, each by rank (priority, arrival), and
a prompt takes as much of the budget as is left: the rest of it waits for the next step. A request is let in when there
are blocks for all of its tokens, so that only decoders ask for more. Where there is none, the lowest in rank gives up
its blocks and waits again; what it had computed is computed anew, as far as the cache has forgotten it.
"""

from __future__ import annotations

import heapq
import time
from bisect import insort
from typing import NamedTuple

from fastfront.engine.rank.stats import PREEMPTED, SCHEDULED, event
from fastfront.engine.torch.kv import BlockPool, block_hashes, root_hash
from fastfront.engine.torch.request import Request

#: Logits are as wide as the vocabulary, so a step computes those of this many prompt tokens at most.
PROMPT_LOGPROBS_PER_STEP = 256


class Work(NamedTuple):
    """What a request does in a step: its next `amount` tokens; one is sampled if these are all it has."""

    request: Request
    amount: int
    samples: bool


class CacheCounts:
    """What the prefix cache was asked for and had, since the last time that was told."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """They have been told."""
        #: Requests, the tokens they looked for, and those they found; then the same of preempted ones.
        self.fresh = (0, 0, 0)
        self.preempted = (0, 0, 0)
        self.reset = False

    def add(self, request: Request, found: int) -> None:
        """A request looked for all its tokens and found that many."""
        requests, asked, hits = self.preempted if request.preemptions else self.fresh
        counts = requests + 1, asked + len(request.tokens), hits + found
        if request.preemptions:
            self.preempted = counts
        else:
            self.fresh = counts


class Scheduler:
    """The requests of an engine; every block that it has taken from `pool` belongs to a running request."""

    def __init__(
        self, pool: BlockPool, *, max_num_seqs: int, max_num_batched_tokens: int, caching: bool = True
    ) -> None:
        self.pool = pool
        #: Requests that run at once, and tokens of a step; lowered where memory turns out not to suffice.
        self.max_num_seqs = max_num_seqs
        self.budget = max_num_batched_tokens
        #: By rank, the first to be served first.
        self.running: list[Request] = []
        #: No request is started; with `frozen`, none goes on either.
        self.paused = False
        self.frozen = False
        self.counts = CacheCounts()
        self._caching = caching
        self._waiting: list[tuple[tuple[int, int], Request]] = []
        #: Hashes of the blocks that this step fills.
        self._coming: set[bytes] = set()

    # --- what there is --------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Request]:
        """Those that wait, in no order."""
        return [request for _, request in self._waiting]

    @property
    def blocked(self) -> int:
        """Waiting requests whose grammar is not ready yet."""
        return sum(not ready(request) for _, request in self._waiting)

    @property
    def runnable(self) -> bool:
        """Whether a step would compute anything."""
        if self.frozen:
            return False
        return bool(self.running) or any(ready(request) and self._may(request) for _, request in self._waiting)

    @property
    def started(self) -> bool:
        """Whether any request runs, or ran and was preempted."""
        return bool(self.running) or any(request.preemptions for _, request in self._waiting)

    def _may(self, request: Request) -> bool:
        """Whether a waiting request may run: a pause lets those go on that were preempted."""
        return not self.paused or request.preemptions > 0

    # --- in and out -----------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """A request to wait for its turn."""
        heapq.heappush(self._waiting, (request.rank, request))

    def remove(self, request: Request) -> None:
        """Forgets a request, wherever it is."""
        if request.running:
            self.running.remove(request)
            self._release(request)
        else:
            self._waiting.remove((request.rank, request))
            heapq.heapify(self._waiting)

    def preempt(self, request: Request) -> None:
        """Takes a running request's blocks; it waits again."""
        self.running.remove(request)
        self._release(request)
        request.preemptions += 1
        request.events.append(event(PREEMPTED, time.monotonic()))
        if request.prompt_rows:
            request.prompt_rows = []
        self.add(request)

    def reset_cache(self, *, running: bool) -> bool:
        """Forgets what the cache knows, `running`: also by preempting all that runs; whether it has."""
        if running:
            for request in list(self.running):
                self.preempt(request)
        done = self.pool.reset()
        self.counts.reset |= done
        return done

    def _release(self, request: Request) -> None:
        self.pool.release(request.blocks)
        request.blocks = []
        request.computed = request.known = 0
        request.running = False

    # --- a step ---------------------------------------------------------------------------------------------------

    def plan(self) -> list[Work]:
        """The next step's work; blocks for all of it are taken."""
        works: list[Work] = []
        if self.frozen:
            return works
        budget = self.budget
        rows = PROMPT_LOGPROBS_PER_STEP
        self._coming.clear()
        decoding = [request for request in self.running if request.left == 1]
        for request in decoding:
            if budget and request.running and self._grow(request):
                works.append(Work(request, 1, True))
                budget -= 1
        # After the decoders, since one of those may have preempted it.
        for request in [request for request in self.running if request.left > 1]:
            count = self._chunk(request, budget, rows)
            if count:
                works.append(self._work(request, count))
                budget -= count
                rows -= count * wants_prompt_rows(request)
        self._let_in(works, budget, rows)
        return works

    def _let_in(self, works: list[Work], budget: int, rows: int) -> None:
        """Starts waiting requests as far as budget, places and blocks go."""
        passed = []
        while budget and self._waiting and len(self.running) < self.max_num_seqs:
            request = self._waiting[0][1]
            found = self._found(request) if ready(request) and self._may(request) else None
            count = 0 if found is None else self._chunk(request, budget, rows, len(found) * self.pool.block_size)
            if found is None or not count:
                passed.append(heapq.heappop(self._waiting))
                continue
            if not self._start(request, found):
                break  # those behind it must not overtake it for ever
            heapq.heappop(self._waiting)
            works.append(self._work(request, count))
            budget -= count
            rows -= count * wants_prompt_rows(request)
        for item in passed:
            heapq.heappush(self._waiting, item)

    def _found(self, request: Request) -> list[int] | None:
        """The blocks in which the cache has its beginning; None: wait, this step computes more of it."""
        if not self._caching:
            return []
        if len(request.hashes) < len(request.tokens) // self.pool.block_size:
            request.hashes = block_hashes(request.tokens, self.pool.block_size, root_hash(request.salt))
        if request.params.skip_reading_prefix_cache or wants_prompt_rows(request):
            return []
        # At least one token must be computed, for its logits.
        asked = request.hashes[: (len(request.tokens) - 1) // self.pool.block_size]
        found = self.pool.find(asked)
        if len(found) < len(asked) and asked[len(found)] in self._coming:
            return None
        return found

    def _start(self, request: Request, found: list[int]) -> bool:
        """Gives a waiting request its blocks; False if there are not enough."""
        pool = self.pool
        new = pool.blocks_for(len(request.tokens)) - len(found)
        # Those that run need a block now and then; without this they would soon take it from the one just started.
        spare = min(len(self.running), pool.size // 100)
        if new + pool.cost(found) + spare > pool.free:
            return False
        pool.hold(found)
        request.blocks = found + pool.take(new)
        request.computed = len(found) * pool.block_size
        request.known = len(found)
        request.running = True
        request.events.append(event(SCHEDULED, time.monotonic()))
        if self._caching:
            self.counts.add(request, request.computed)
        if request.cached is None:
            request.cached = request.computed
        insort(self.running, request, key=lambda running: running.rank)
        return True

    def _chunk(self, request: Request, budget: int, rows: int, computed: int | None = None) -> int:
        """How many tokens it computes in this step."""
        left = len(request.tokens) - (request.computed if computed is None else computed)
        return min(left, budget, rows) if wants_prompt_rows(request) else min(left, budget)

    def _work(self, request: Request, count: int) -> Work:
        full = (request.computed + count) // self.pool.block_size
        self._coming.update(request.hashes[request.known : full])
        return Work(request, count, count == request.left)

    def _grow(self, request: Request) -> bool:
        """Makes sure that a decoder has a block for its token; False if it had to give up its own."""
        if len(request.tokens) <= len(request.blocks) * self.pool.block_size:
            return True
        while not self.pool.free:
            lowest = self.running[-1]
            self.preempt(lowest)
            if lowest is request:
                return False
        request.blocks += self.pool.take(1)
        return True

    def done(self, work: Work) -> None:
        """A request's tokens are in the cache now; to be called before its new token is added."""
        request = work.request
        request.computed += work.amount
        if not self._caching:
            return
        size = self.pool.block_size
        full = request.computed // size
        while request.known < full:
            at = request.known
            if at == len(request.hashes):
                before = request.hashes[-1] if request.hashes else root_hash(request.salt)
                request.hashes += block_hashes(request.tokens[at * size : (at + 1) * size], size, before)
            self.pool.learn(request.blocks[at], request.hashes[at])
            request.known += 1


def ready(request: Request) -> bool:
    """Whether nothing but the schedule keeps a request from running."""
    return request.grammar is None or request.grammar.done()


def wants_prompt_rows(request: Request) -> bool:
    """Whether logits of its prompt's tokens are still to be computed."""
    return request.prompt_rows is not None and request.computed < request.num_prompt
