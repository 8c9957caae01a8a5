"""What the steps of one choice bring beside plain text, kept until an event or the whole answer takes it."""

from __future__ import annotations

from collections.abc import Sequence

from fastfront.fast import Step
from fastfront.flow import LogprobRows, Position, SamplingParams
from fastfront.text.logprobs import Positions, TokenTable


class Gathered:
    """Text, ids and log-probabilities of a choice after the ids `prompt`; those that `sampling` asks for, else None."""

    def __init__(self, table: TokenTable, sampling: SamplingParams, prompt: Sequence[int]) -> None:
        self.prompt_logprobs: list[Position] | None = None
        self.wants_logprobs = wants_logprobs(sampling)
        self._prompt = prompt
        self._text: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[Position] = []
        if self.wants_logprobs:
            self._positions = Positions(table, _top(sampling), prompt)
        if sampling.prompt_logprobs is not None:
            self._of_prompt = Positions(table, sampling.prompt_logprobs)
            self.prompt_logprobs = self._of_prompt.add(prompt[:1], None)

    def __bool__(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._ids) or any(self._text)

    def add(self, step: Step, rows: LogprobRows | None) -> None:
        """Takes a step and the log-probabilities of its tokens."""
        self._text.append(step.text)
        self._ids += step.token_ids
        if self.wants_logprobs:
            self._logprobs += self._positions.add(step.token_ids, rows)

    def add_prompt(self, rows: LogprobRows) -> None:
        """Takes log-probabilities of the prompt; its first token has none."""
        if self.prompt_logprobs is not None:
            at = len(self.prompt_logprobs)
            self.prompt_logprobs += self._of_prompt.add(self._prompt[at : at + len(rows.ranks)], rows)

    def take(self) -> tuple[str, list[int], list[Position] | None]:
        """Text, ids and log-probabilities since the last time."""
        taken = "".join(self._text), self._ids, self._logprobs if self.wants_logprobs else None
        self._text, self._ids, self._logprobs = [], [], []
        return taken

    def take_prompt(self) -> list[Position] | None:
        """The whole prompt's log-probabilities, once; they are empty where the engine gave none."""
        taken, self.prompt_logprobs = self.prompt_logprobs, None
        if taken is not None:
            taken += self._of_prompt.add(self._prompt[len(taken) :], None)
        return taken


def wants_logprobs(sampling: SamplingParams) -> bool:
    """Whether every generated token is to come with its log-probability."""
    return sampling.logprobs is not None or sampling.logprob_token_ids is not None


def _top(sampling: SamplingParams) -> int:
    if sampling.logprobs is not None:
        return sampling.logprobs
    return len(sampling.logprob_token_ids or ())
