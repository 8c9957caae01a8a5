"""Counts the tokens of reasoning by the ids of the markers around it, which are not counted themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fastfront.flow import MakeCounter
from fastfront.parse.registry import Format

#: Formats whose reasoning is a channel of messages: what begins it, and what ends it.
_CHANNELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "openai_gptoss": (
        ("<|channel|>analysis<|message|>",),
        ("<|end|>", "<|return|>", "<|call|>", "<|start|>"),
    ),
    "inkling": (("<|content_thinking|>",), ("<|end_message|>", "<|content_model_end_sampling|>")),
}


class Marks:
    """The ids of markers, each with whether reasoning goes on behind it."""

    def __init__(self, marks: Sequence[tuple[tuple[int, ...], bool]]) -> None:
        self.by_last: dict[int, list[tuple[tuple[int, ...], bool]]] = {}
        for mark in marks:
            self.by_last.setdefault(mark[0][-1], []).append(mark)
        #: How many ids before its last one a marker may have.
        self.most = max((len(ids) for ids, _ in marks), default=1) - 1


class ReasoningCounter:
    """One answer, which begins `inside` reasoning or not."""

    def __init__(self, marks: Marks, inside: bool) -> None:
        self.count = 0
        self._inside = inside
        self._marks = marks
        self._before: list[int] = []  # as many ids as a marker may begin with

    def feed(self, token_ids: Sequence[int]) -> None:
        """Takes the next ids."""
        marks, before, most = self._marks.by_last, self._before, self._marks.most
        if marks.keys().isdisjoint(token_ids):  # as nearly always: no need to look at each
            self.count += len(token_ids) * self._inside
            if most:
                before += token_ids[-most:]
                del before[:-most]
            return
        for token_id in token_ids:
            for ids, inside in marks.get(token_id, ()):
                if ids[:-1] == tuple(before[len(before) - len(ids) + 1 :]):
                    if self._inside:
                        self.count -= len(ids) - 1
                    self._inside = inside
                    break
            else:
                self.count += self._inside
            if most:
                before.append(token_id)
                del before[:-most]


class Counting:
    """One per process: what tells the tokens of the chosen format's reasoning. `encode` gives the ids of a text."""

    def __init__(self, format: Format, encode: Callable[[str], list[int]]) -> None:
        think = format.think
        starts, ends = _CHANNELS.get(
            format.reasoning or "", (think.start, think.end) if think is not None else ((), ())
        )
        marked = [(tuple(encode(text)), inside) for texts, inside in ((starts, True), (ends, False)) for text in texts]
        self._marks = Marks([mark for mark in marked if mark[0]])
        self._begins = think is not None and think.begins

    def counter(self, in_reasoning: bool | None) -> MakeCounter:
        """What makes the counter of an answer; `in_reasoning`: whether it begins inside, None where nobody says."""
        return partial(ReasoningCounter, self._marks, self._begins if in_reasoning is None else in_reasoning)
