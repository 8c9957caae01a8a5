"""One request inside the engine, and the check that makes one of an ADD message."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from fastfront.engine.rank.frames import FULL, pack
from fastfront.engine.rank.request import Add, Repetition, Sampling
from fastfront.engine.rank.stats import QUEUED, event

THINK_END = "</think>"


class RefusedError(Exception):
    """A request that this engine does not serve; the text names field, value and limit."""


class Limits(NamedTuple):
    """What a request must keep within: tokens of one sequence, and the width of the logits."""

    max_model_len: int
    vocab_size: int


class Guide(Protocol):
    """Holds a request's tokens to its grammar."""

    def accept(self, token: int) -> bool:
        """Takes the next token; False for one that the grammar does not allow."""


class Request:
    """What one request has and where it is; `tokens` are its prompt and its answer so far.

    The cache holds `computed` of them in `blocks`; one is left to compute, or more where the prompt is not through.
    """

    __slots__ = (
        "arrived", "blocks", "cached", "client", "computed", "events", "first", "grammar", "guide", "hashes", "head",
        "id", "known", "last_head", "limit", "num_prompt", "params", "preemptions", "priority", "prompt_rows",
        "reasoning", "row", "running", "salt", "serial", "stop_ids", "stop_reason", "tokens", "trace_headers",
    )  # fmt: skip

    def __init__(self, add: Add, params: Sampling, prompt: list[int], serial: int, max_model_len: int) -> None:
        self.id = add.request_id
        self.client = add.client_index
        self.params = params
        self.priority = add.priority
        self.serial = serial
        self.trace_headers = add.trace_headers
        self.salt = add.cache_salt
        self.reasoning = add.reasoning_ended is False
        #: Monotonic seconds.
        self.arrived = time.monotonic()
        self.events: list[dict[str, Any]] = [event(QUEUED, self.arrived)]
        self.tokens = list(prompt)
        self.num_prompt = len(prompt)
        #: Tokens, prompt and answer, at which it ends.
        self.limit = min(max_model_len, self.num_prompt + (params.max_tokens or max_model_len))
        self.stop_ids = frozenset(params.stop_token_ids or ())
        self.stop_reason: int | str | None = None
        # --- the cache
        self.blocks: list[int] = []
        self.computed = 0
        #: Tokens that the cache had when the request first ran; None before.
        self.cached: int | None = None
        #: Of the full blocks, as far as they were asked for; of the first `known` the pool has been told.
        self.hashes: list[bytes] = []
        self.known = 0
        # --- the schedule
        self.running = False
        self.preemptions = 0
        # --- the answer
        #: What the sampler keeps for it; set when it is added.
        self.row: Any = None
        self.grammar: Future[Any] | None = None
        self.guide: Guide | None = None
        #: Log-probabilities of the prompt's tokens, chunk by chunk, until they are told.
        self.prompt_rows: list[Any] | None = None if params.prompt_logprobs is None else []
        #: No output has been given yet.
        self.first = True
        name = pack(self.id)
        self.head = FULL.middle + name
        self.last_head = FULL.last + name

    @property
    def rank(self) -> tuple[int, int]:
        """Who is served first: the lower priority value, then who came first."""
        return self.priority, self.serial

    @property
    def left(self) -> int:
        """Tokens that are not in the cache yet, at least 1."""
        return len(self.tokens) - self.computed

    @property
    def answered(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - self.num_prompt

    def take(self, token: int) -> str | None:
        """Adds a token of the answer; how the request ends with it, None if it goes on."""
        params = self.params
        self.tokens.append(token)
        if token == params.eos_token_id:
            return "stop"
        if token in self.stop_ids:
            self.stop_reason = token
            return "stop"
        if len(self.tokens) >= self.limit:
            return "length"
        if params.repetition_detection is not None and self.answered >= params.min_tokens:
            if repeats(self.tokens[self.num_prompt :], params.repetition_detection):
                self.stop_reason = "repetition_detected"
                return "repetition"
        return None


def repeats(answer: list[int], pattern: Repetition) -> bool:
    """Whether the answer ends with some pattern of the asked size, the asked number of times."""
    for size in range(max(1, pattern.min_pattern_size), pattern.max_pattern_size + 1):
        length = size * pattern.min_count
        if length > len(answer):
            return False
        tail = answer[-length:]
        if tail == tail[:size] * pattern.min_count:
            return True
    return False


def admit(add: Add, serial: int, limits: Limits) -> Request:
    """The request in an ADD; RefusedError for one that this engine cannot serve."""
    params = add.sampling_params
    for name, value in (
        ("pooling_params", add.pooling_params),
        ("mm_features", add.mm_features),
        ("lora_request", add.lora_request),
        ("prompt_embeds", add.prompt_embeds),
        ("resumable", add.resumable),
    ):
        _refuse(bool(value), name, value, "not served by the built-in engine")
    if params is None:
        raise RefusedError("sampling_params is missing: the built-in engine only generates")
    prompt = add.prompt_token_ids or []
    most = limits.max_model_len - 1
    _refuse(not 1 <= len(prompt) <= most, "prompt_token_ids", f"{len(prompt)} tokens", f"1 to {most}")
    _check_ids("prompt_token_ids", prompt, limits)
    _check_params(params, limits)
    return Request(add, params, prompt, serial, limits.max_model_len)


def _check_params(params: Sampling, limits: Limits) -> None:
    for name in ("prompt_logprob_token_ids", "prompt_logprob_start", "trace_decode_token_ids"):
        value = getattr(params, name)
        _refuse(value is not None, name, value, "not served by the built-in engine")
    budget = params.thinking_token_budget
    _refuse(budget is not None and budget >= 0, "thinking_token_budget", budget, "only -1, no limit")
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        _refuse(value is not None and value > limits.vocab_size, name, value, f"-1 to {limits.vocab_size}")
    _refuse(params.allowed_token_ids == [], "allowed_token_ids", [], "at least one id")
    for name in ("allowed_token_ids", "logit_bias", "logprob_token_ids"):
        _check_ids(name, list(getattr(params, name) or ()), limits)
    for word in params.bad_words_token_ids or ():
        _refuse(not word, "bad_words", word, "at least one id")
        _check_ids("bad_words", word, limits)
    if 0 < params.temperature < 0.01:
        params.temperature = 0.01  # as vLLM does: below it, logits overflow


def _check_ids(name: str, ids: list[int], limits: Limits) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < limits.vocab_size:
        wrong = next(value for value in ids if not 0 <= value < limits.vocab_size)
        _refuse(True, name, wrong, f"ids from 0 to {limits.vocab_size - 1}")


def _refuse(wrong: bool, name: str, value: object, limit: str) -> None:
    if wrong:
        raise RefusedError(f"{name} cannot be {str(value)[:80]} (allowed: {limit})")
