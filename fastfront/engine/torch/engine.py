"""The engine without its sockets: requests in; each step, what they got, as messages out.

A step plans who runs, runs the model, samples and tells. Until it has told, nothing of it counts: where it fails, it is
tried again for each request alone, and the one that fails alone ends with an error. Where memory does not suffice, the
lowest in rank waits and from then on fewer run at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fastfront.engine.rank import stats
from fastfront.engine.rank.frames import DEFAULT_VERSION, FINISH, FULL, NIL, Message, pack
from fastfront.engine.rank.parts import Parts
from fastfront.engine.rank.request import Add
from fastfront.engine.torch import logprobs
from fastfront.engine.torch.batch import Batch
from fastfront.engine.torch.device import out_of_memory
from fastfront.engine.torch.guided import Guided
from fastfront.engine.torch.kv import BlockPool
from fastfront.engine.torch.request import Limits, RefusedError, Request, admit
from fastfront.engine.torch.sampler import NO_TOKEN, Row, sample
from fastfront.engine.torch.scheduler import Scheduler, Work, wants_prompt_rows
from fastfront.errors import StartError

INDEX = 0


class ModelRunner(Protocol):
    """What runs the model: runner.Runner, or a test's."""

    block_size: int
    num_blocks: int
    vocab_size: int
    max_model_len: int

    def run(self, batch: Batch) -> Tensor:
        """The logits [len(batch.logits_rows), vocab_size] in float32; the caller may change them."""


class Result(NamedTuple):
    """What a request has of a step; `token` only if it sampled."""

    token: int | None = None
    logprobs: logprobs.Rows | None = None
    prompt: logprobs.Rows | None = None


class Engine:
    """All requests of one model; `say` takes a line for the log."""

    def __init__(
        self,
        runner: ModelRunner,
        guided: Guided,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        seed: int = 0,
        log_stats: bool = True,
        caching: bool = True,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.runner = runner
        self.limits = Limits(runner.max_model_len, runner.vocab_size)
        self.pool = BlockPool(runner.num_blocks, runner.block_size)
        self.scheduler = Scheduler(
            self.pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, caching=caching
        )
        most = self.pool.size * runner.block_size
        if most < runner.max_model_len:
            raise StartError(
                f"the KV cache holds {most} tokens, less than one sequence may have (max_model_len "
                f"{runner.max_model_len}): lower --max-model-len or raise --gpu-memory-utilization"
            )
        self.weight_version = "default"
        self._packed_version = DEFAULT_VERSION
        self._guided = guided
        self._seeds = random.Random(seed)
        self._log_stats = log_stats
        self._say = say
        self._serial = 0
        self._requests: dict[str, Request] = {}
        #: Those whose grammar is being compiled.
        self._compiling: dict[str, Request] = {}
        #: Counts as last told.
        self._shown = (0, 0)

    # --- what there is --------------------------------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """Requests that run or wait."""
        return len(self._requests)

    @property
    def counts(self) -> tuple[int, int]:
        """Running and waiting requests."""
        running = len(self.scheduler.running)
        return running, len(self._requests) - running

    @property
    def runnable(self) -> bool:
        """Whether a step would say anything."""
        if self.scheduler.runnable or (self._log_stats and self.counts != self._shown):
            return True
        return any(ready.grammar is not None and ready.grammar.done() for ready in self._compiling.values())

    # --- in -------------------------------------------------------------------------------------------------------

    def add(self, add: Add) -> list[Message]:
        """Takes a request; what is to be said at once, which is that it is refused."""
        if add.request_id in self._requests:
            self._say(f"request {add.request_id} is there already: a second one of that name is dropped")
            return []
        if add.abort_immediately:
            return []
        self._serial += 1
        try:
            request = admit(add, self._serial, self.limits)
        except RefusedError as error:
            self._say(f"request {add.request_id} is refused: {error}")
            return self.refusal(add.request_id, add.client_index)
        params = request.params
        seed = self._seeds.getrandbits(64) if params.seed is None else params.seed
        request.row = Row(params, request.tokens, request.num_prompt, seed, self.limits.vocab_size)
        self._requests[request.id] = request
        self._guided.begin(request)
        if request.grammar is not None:
            self._compiling[request.id] = request
        self.scheduler.add(request)
        return []

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forgets requests without a word; unknown ids are ignored."""
        for request_id in request_ids:
            request = self._requests.get(request_id)
            if request is not None:
                self._forget(request)

    def refusal(self, request_id: str, client: int) -> list[Message]:
        """What is said of a request that is not taken."""
        return [] if request_id in self._requests else self._ended([(request_id, client)], "error")

    def abort_all(self) -> list[Message]:
        """Ends every request by the engine's own will."""
        ended = [(request.id, request.client) for request in self._requests.values()]
        self.abort([request_id for request_id, _ in ended])
        return self._ended(ended, "abort")

    def set_weight_version(self, version: str) -> None:
        """Names the weights, in every message from now on."""
        self.weight_version = version
        self._packed_version = pack(version)

    def _forget(self, request: Request) -> None:
        self.scheduler.remove(request)
        del self._requests[request.id]
        if self._compiling.pop(request.id, None) is not None and request.grammar is not None:
            request.grammar.cancel()

    # --- a step ---------------------------------------------------------------------------------------------------

    def step(self) -> list[Message]:
        """One step: a message to each client whose requests gave something."""
        parts = Parts(INDEX, FULL)
        self._take_grammars(parts)
        works = self.scheduler.plan()
        if works:
            for work, result in zip(works, self._attempt(works), strict=True):
                if isinstance(result, Exception):
                    self._fail(parts, work.request, str(result) or repr(result))
                elif result is not None:
                    self._tell(parts, work, result)
        if not self._log_stats:
            return parts.messages(version=self._packed_version)
        if not parts:
            if self.counts == self._shown:
                return []
            parts.of(0)
        return parts.messages(pack(self._statistics()), version=self._packed_version)

    def _take_grammars(self, parts: Parts) -> None:
        """Gives their grammars to the requests whose are compiled, ends those whose cannot be."""
        done = [request for request in self._compiling.values() if request.grammar and request.grammar.done()]
        for request in done:
            del self._compiling[request.id]
            assert request.grammar is not None
            error = request.grammar.exception()
            if error is None:
                request.guide = request.grammar.result()
                request.grammar = None
            else:
                self._fail(parts, request, f"structured_outputs: {error}")

    def _attempt(self, works: Sequence[Work]) -> list[Result | Exception | None]:
        """The result of each, its error, or None where it has to be tried again in a later step."""
        try:
            return list(self._compute(works))
        except Exception as error:
            if "CUDA error" in str(error):
                raise  # nothing works on this device any more
            if len(works) == 1:
                return [error]
            if out_of_memory(error):
                self._make_room(works)
                return [None] * len(works)
        return [result for work in works for result in self._attempt([work])]

    def _make_room(self, works: Sequence[Work]) -> None:
        """Lets the lowest in rank wait, and fewer run from now on."""
        scheduler = self.scheduler
        scheduler.preempt(max((work.request for work in works), key=lambda request: request.rank))
        scheduler.max_num_seqs = max(1, len(scheduler.running))
        scheduler.budget = max(scheduler.max_num_seqs + 1, scheduler.budget // 2)
        self._say(
            f"out of memory: from now on at most {scheduler.max_num_seqs} requests run at once, "
            f"with {scheduler.budget} tokens a step"
        )

    @torch.inference_mode()
    def _compute(self, works: Sequence[Work]) -> list[Result]:
        batch, sampled, prompts = _batch(works)
        logits = self.runner.run(batch)
        parts = [
            None if rows is None else self._prompt_rows(work.request, logits[rows.start : rows.stop])
            for work, rows in zip(works, prompts, strict=True)
        ]
        requests = [work.request for work in works if work.samples]
        tokens: list[int] = []
        rows: dict[int, logprobs.Rows] = {}
        if requests:
            if len(sampled) < len(batch.logits_rows):
                logits = logits[sampled]
            self._guided.mask(logits, requests)
            asking = [at for at, request in enumerate(requests) if logprobs.wanted(request.params)]
            raw = logits[asking].log_softmax(-1) if asking else logits
            tokens = sample(logits, [request.row for request in requests])
            for at, values in zip(asking, raw, strict=False):
                params = requests[at].params
                rows[at] = logprobs.rows_of(
                    values[None], [max(0, tokens[at])], params.logprobs or 0, params.logprob_token_ids
                )
        results = []
        at = 0
        for work, part in zip(works, parts, strict=True):
            results.append(Result(tokens[at], rows.get(at), part) if work.samples else Result(prompt=part))
            at += work.samples
        return results

    def _prompt_rows(self, request: Request, logits: Tensor) -> logprobs.Rows:
        first = request.computed + 1
        tokens = request.tokens[first : first + len(logits)]
        return logprobs.rows_of(logits.log_softmax(-1), tokens, request.params.prompt_logprobs or 0)

    # --- out ------------------------------------------------------------------------------------------------------

    def _tell(self, parts: Parts, work: Work, result: Result) -> None:
        """Makes one request's share of a step count, and says it."""
        request = work.request
        self.scheduler.done(work)
        if result.prompt is not None and request.prompt_rows is not None:
            request.prompt_rows.append(result.prompt)
        token = result.token
        if token is None:
            return
        if token == NO_TOKEN:
            self._fail(parts, request, "no token is possible")
            return
        finish = request.take(token)
        if request.guide is not None and not request.guide.accept(token):
            self._say(f"request {request.id}: its grammar does not take the token {token}")
            finish = "error"
        parts.add(request.client, self._output(parts, request, token, result.logprobs, finish))
        if finish is not None:
            self._forget(request)

    def _output(
        self, parts: Parts, request: Request, token: int, rows: logprobs.Rows | None, finish: str | None
    ) -> bytes:
        if not (request.first or rows or request.events or request.trace_headers):
            if finish is None:
                return request.head + b"\x91" + pack(token) + FULL.middle_tail
            if finish == "length":
                return request.last_head + b"\x91" + pack(token) + FULL.last_tail
        reason = FINISH[finish] if finish else None
        fields: list[Any] = [request.id, [token], None, None, None, reason, request.stop_reason, None]
        fields += [None, None, request.trace_headers]
        arrays = parts.of(request.client).arrays
        if rows is not None:
            fields[2] = rows.pack(arrays)
        if self._log_stats and request.events:
            fields[7] = request.events
        request.events = []
        if request.first:
            request.first = False
            if request.prompt_rows:
                fields[3] = logprobs.Rows.joined(request.prompt_rows).pack_prompt(arrays)
            request.prompt_rows = None
            fields.append(self._prefill(request))
        return FULL.output(fields)

    def _prefill(self, request: Request) -> dict[str, int]:
        cached = request.cached or 0
        created = min(request.known * self.pool.block_size, request.num_prompt) - cached
        return stats.prefill_stats(request.num_prompt, cached, max(0, created))

    def _fail(self, parts: Parts, request: Request, why: str) -> None:
        """Ends a request with an error; the wire has no place for its text."""
        self._say(f"request {request.id} ends with an error: {why}")
        events = request.events if self._log_stats and request.events else None
        fields = [request.id, [], None, None, None, FINISH["error"], None, events, None, None, request.trace_headers]
        parts.add(request.client, FULL.output(fields))
        self._forget(request)

    def _ended(self, ended: Iterable[tuple[str, int]], reason: str) -> list[Message]:
        """Messages that say nothing but that these (id, client) have ended."""
        parts = Parts(INDEX, FULL)
        for request_id, client in ended:
            parts.add(client, FULL.output([request_id, [], None, None, None, FINISH[reason]]))
            parts.of(client).done.append(request_id)
        return parts.messages(finished=True, version=NIL)

    def _statistics(self) -> dict[str, Any]:
        """SchedulerStats with what is new since the last ones."""
        self._shown = self.counts
        counts = self.scheduler.counts
        prefix = stats.prefix_cache_stats(*counts.fresh, preempted=counts.preempted, reset=counts.reset)
        counts.clear()
        running, waiting = self._shown
        skipped = len(self._compiling)
        return stats.scheduler_stats(
            running=running, waiting=waiting - skipped, skipped=skipped, usage=self.pool.usage, prefix=prefix
        )


def _batch(works: Sequence[Work]) -> tuple[Batch, list[int], list[range | None]]:
    """The step's batch; which rows of its logits are sampled from, and which belong to each work's prompt."""
    batch = Batch([], [], [], [], [])
    sampled: list[int] = []
    prompts: list[range | None] = []
    tokens, rows = batch.token_ids, batch.logits_rows
    for request, count, samples in works:
        start, computed = len(tokens), request.computed
        if count == 1:
            tokens.append(request.tokens[computed])
        else:
            tokens += request.tokens[computed : computed + count]
        batch.query_lens.append(count)
        batch.context_lens.append(computed)
        batch.block_tables.append(request.blocks)
        wanted = 0
        if wants_prompt_rows(request):
            # The last token of the prompt tells of the answer's first.
            wanted = max(0, min(count, request.num_prompt - 1 - computed))
        prompts.append(range(len(rows), len(rows) + wanted) if wanted else None)
        rows += range(start, start + wanted)
        if samples:
            sampled.append(len(rows))
            rows.append(start + count - 1)
    return batch, sampled, prompts
