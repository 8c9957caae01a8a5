"""The careful path: requests with a script, stop ids within reach or log-probabilities, one Python step each."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastfront.engine.mock.lane import SIZE, Ring
from fastfront.engine.mock.request import Request
from fastfront.engine.rank.frames import FINISH, Arrays


class Turn(NamedTuple):
    """What a request gives in one step: the leading fields of its output (wire d.8)."""

    fields: list[Any]
    finished: bool


def drawn(ring: Ring, masked: frozenset[int], min_tokens: int) -> Iterator[list[int]]:
    """Random ids for ever; none of `masked` among the first `min_tokens`."""
    given = 0
    while True:
        token = ring.draw()
        tries = SIZE if given < min_tokens else 0
        while token in masked and tries:
            token = ring.draw()
            tries -= 1
        given += 1
        yield [token]


def scripted(steps: list[list[int]]) -> Iterator[list[int]]:
    """The steps of a script, each made a list of its own."""
    for ids in steps:
        yield list(ids)


def made_up(
    arrays: Arrays,
    ids: list[int],
    top: int,
    vocab: int,
    names: tuple[str, str] = ("<i4", "<f4"),
    rivals: list[int] | None = None,
) -> list[Any]:
    """Made-up log-probabilities of `ids`: the id itself, then id+1, id+2, ... at -0.5, -1.5, -2.5, ...

    `top` -1 asks for the whole vocabulary: the id, then every id from 0. Generated tokens travel under numpy's
    type names, prompt tokens under torch's ("int32", "float32"). Where `rivals` are given, those follow the id.
    """
    width = (vocab if top < 0 else top) + 1
    if rivals is not None:
        width = len(rivals) + 1
        rows = [t for own in ids for t in (own, *rivals)]
    else:
        rows = [t if k == 0 else (k - 1 if top < 0 else t + k) for t in ids for k in range(width)]
    values = [-0.5 - k for _ in ids for k in range(width)]
    return [
        arrays.pack(names[0], [len(ids), width], struct.pack(f"<{len(rows)}i", *rows)),
        arrays.pack(names[1], [len(ids), width], struct.pack(f"<{len(values)}f", *values)),
        arrays.pack(names[0], [len(ids)], struct.pack(f"<{len(ids)}i", *[1] * len(ids))),
        None,
    ]


class Play:
    """One request's tokens, and when and why they end.

    `finish` and `stop_reason` are how it ends after the last of `steps`; with `finish` None it stays running then.
    """

    def __init__(
        self,
        request: Request,
        steps: Iterator[list[int]],
        *,
        limit: int,
        vocab: int,
        finish: str | None = None,
        stop_reason: int | str | None = None,
    ) -> None:
        params = request.params
        self.request = request
        self.tokens = 0
        self.begun = False
        self._steps = steps
        self._next: list[int] | None = next(steps, None)
        self._finish = finish
        self._stop_reason = stop_reason
        self._limit = limit
        self._vocab = vocab
        self._eos = params.get("_eos_token_id")
        self._stops = frozenset(params.get("stop_token_ids") or ())
        self._logprobs: int | None = params.get("logprobs")
        self._rivals: list[int] | None = params.get("logprob_token_ids")
        self._prompt_logprobs: int | None = params.get("prompt_logprobs")

    @property
    def idle(self) -> bool:
        """Whether nothing more comes of it, though it runs."""
        return self._next is None

    def turn(self, arrays: Arrays) -> Turn:
        """The next step's output; not to be called when idle."""
        wanted, self._next = self._next or [], next(self._steps, None)
        ids: list[int] = []
        finish: str | None = None
        reason: int | str | None = None
        for token in wanted:
            ids.append(token)
            self.tokens += 1
            if token == self._eos:
                finish = "stop"
            elif token in self._stops:
                finish, reason = "stop", token
            elif self.tokens >= self._limit:
                finish = "length"
            if finish:
                break
        if finish is None and self._next is None and self._finish is not None:
            finish, reason = self._finish, self._stop_reason
        fields: list[Any] = [self.request.id, ids, None, None, None, FINISH[finish] if finish else None, reason]
        if self._logprobs is not None or self._rivals is not None:
            fields[2] = made_up(arrays, ids, self._logprobs or 0, self._vocab, rivals=self._rivals)
        if self._prompt_logprobs is not None and self.request.prompt:
            prompt = self.request.prompt[1:]
            fields[3] = [*made_up(arrays, prompt, self._prompt_logprobs, self._vocab, ("int32", "float32")), None]
            self._prompt_logprobs = None
        return Turn(fields, finish is not None)
