"""Repetition, presence and frequency penalties of one request: what its prompt and answer have said so far."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from fastfront.engine.rank.request import Sampling


class Penalties:
    """The tokens that one request has seen, and how often in its answer; `tokens` is its live list.

    A token that was seen at all counts for the repetition penalty, those of the answer for the other two.
    """

    def __init__(self, params: Sampling, tokens: list[int], num_prompt: int) -> None:
        self._repetition = params.repetition_penalty
        self._presence = params.presence_penalty
        self._frequency = params.frequency_penalty
        self._tokens = tokens
        self._read = num_prompt
        seen = dict.fromkeys(tokens[:num_prompt]) if self._repetition != 1.0 else {}
        self._places = {token: place for place, token in enumerate(seen)}
        room = max(64, 2 * len(seen))
        self._ids = torch.zeros(room, dtype=torch.long)
        self._counts = torch.zeros(room)
        self._ids[: len(seen)] = torch.tensor(list(seen), dtype=torch.long)

    @classmethod
    def of(cls, params: Sampling, tokens: list[int], num_prompt: int) -> Self | None:
        """None where the request asks for none."""
        if params.repetition_penalty == 1.0 and not params.presence_penalty and not params.frequency_penalty:
            return None
        return cls(params, tokens, num_prompt)

    def apply(self, logits: Tensor) -> None:
        """Changes one row of logits."""
        self._catch_up()
        count = len(self._places)
        if not count:
            return
        ids = self._ids[:count].to(logits.device)
        counts = self._counts[:count].to(logits.device)
        values = logits[ids]
        if self._repetition != 1.0:
            values = torch.where(values > 0, values / self._repetition, values * self._repetition)
        values -= self._frequency * counts + self._presence * (counts > 0)
        logits[ids] = values

    def _catch_up(self) -> None:
        """Counts what the answer has got since the last time."""
        for token in self._tokens[self._read :]:
            place = self._places.get(token)
            if place is None:
                place = self._places[token] = len(self._places)
                if place == len(self._ids):
                    self._ids = torch.cat([self._ids, torch.zeros_like(self._ids)])
                    self._counts = torch.cat([self._counts, torch.zeros_like(self._counts)])
                self._ids[place] = token
            self._counts[place] += 1
        self._read = len(self._tokens)
