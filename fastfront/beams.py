"""Beam search: the most probable continuations of a prompt, a token at a time.

An engine only samples, so each step asks it for one token after every beam and looks at the best alternatives that come
with it: twice as many as there are beams, so that enough are left where some end the text. What ends it is set aside,
and the best of the rest go on. At the end all are ranked by their probability, long ones favoured by a penalty.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from fastfront.errors import EngineRequestError
from fastfront.flow import Choice, Generation, Position, Prompt, SamplingParams, TextOptions


class BeamOptions(NamedTuple):
    """How to search; `width` beams are kept, and given as the answer's choices.

    `length_penalty` is the exponent of the length that scores are divided by. With `ignore_eos` the end token is one as
    any other; `include_eos`: it is among an answer's ids.
    """

    width: int
    length_penalty: float = 1.0
    ignore_eos: bool = False
    include_eos: bool = False
    eos_token_id: int | None = None


class Beam(NamedTuple):
    """A continuation. `steps` are the log-probabilities at each of its tokens, and, where it has ended, at that end."""

    tokens: tuple[int, ...] = ()
    steps: tuple[Position, ...] = ()
    logprob: float = 0.0
    reason: str = "length"


class BeamSearch:
    """The search after one prompt; `step` takes it a token further."""

    def __init__(self, prompt: Sequence[int], options: BeamOptions) -> None:
        self._prompt = prompt
        self.options = options
        self._ended: list[Beam] = []
        self.beams = [Beam()]

    def step(self, positions: Sequence[Position]) -> None:
        """Takes the alternatives that the engine gave after each of `beams`, in their order."""
        options = self.options
        going: list[tuple[float, int, int, Beam]] = []
        for beam, position in zip(self.beams, positions, strict=True):
            # The first is what was sampled, beside the best where it is none of them: chance has no say here.
            best = slice(-2 * options.width, None)
            for token_id, logprob in zip(position.ids[best], position.logprobs[best], strict=True):
                score, steps = beam.logprob + logprob, (*beam.steps, position)
                if token_id == options.eos_token_id and not options.ignore_eos:
                    tokens = (*beam.tokens, token_id) if options.include_eos else beam.tokens
                    self._ended.append(Beam(tokens, steps, score, "stop"))
                else:
                    going.append((score, -len(going), token_id, beam._replace(steps=steps)))
        self.beams = [
            beam._replace(tokens=(*beam.tokens, token_id), logprob=score)
            for score, _, token_id, beam in heapq.nlargest(options.width, going)
        ]

    def abort(self) -> None:
        """The engine gave the beams up."""
        self.beams = [beam._replace(reason="abort") for beam in self.beams]

    def best(self) -> list[Beam]:
        """The answer, the best first."""
        return sorted([*self._ended, *self.beams], key=self._score, reverse=True)[: self.options.width]

    def text_ids(self, beam: Beam) -> list[int]:
        """The ids that a beam's text is made of."""
        options = self.options
        ends = bool(beam.tokens) and beam.tokens[-1] == options.eos_token_id and not options.ignore_eos
        return list(beam.tokens[:-1] if ends else beam.tokens)

    def _score(self, beam: Beam) -> float:
        last = beam.tokens[-1] if beam.tokens else self._prompt[-1]
        length = len(self._prompt) + len(beam.tokens) - (last == self.options.eos_token_id)
        penalty = self.options.length_penalty
        try:
            return beam.logprob / math.pow(max(length, 1), penalty)
        except (OverflowError, ZeroDivisionError):  # a length that outweighs, or undoes, every probability
            return 0.0 if penalty > 0 else -math.inf


#: Runs one generation.
Collect = Callable[[Generation], Awaitable[Sequence[Choice]]]
#: The text of ids.
Decode = Callable[[list[int]], Awaitable[str]]


async def search(
    generation: Generation, options: BeamOptions, room: int, collect: Collect, decode: Decode
) -> list[Choice]:
    """`options.width` choices for each prompt of `generation`, whose max_tokens is for every beam.

    `room` is the longest that a prompt with its answer may be. Whoever cancels this ends what an engine is busy with.
    """
    tasks = [
        asyncio.ensure_future(_search_one(generation, prompt, options, room, collect)) for prompt in generation.prompts
    ]
    try:
        searches = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return [
        await _choice(generation, prompt, index * options.width + rank, found, beam, decode)
        for index, (prompt, found) in enumerate(zip(generation.prompts, searches, strict=True))
        for rank, beam in enumerate(found.best())
    ]


async def _search_one(
    generation: Generation, prompt: Prompt, options: BeamOptions, room: int, collect: Collect
) -> BeamSearch:
    found = BeamSearch(prompt.token_ids, options)
    sampling = SamplingParams(
        temperature=generation.sampling.temperature,
        watermarking=False,
        logprobs=2 * options.width,
        output_kind=generation.sampling.output_kind,
    )
    asked = msgspec.structs.replace(
        generation,
        sampling=sampling,
        max_tokens=1,
        seed=None,
        text=TextOptions(skip_special_tokens=False),
        n=1,
        stream_interval=1,
        parser=None,
        counter=None,
    )
    for _ in range(min(room - len(prompt.token_ids), generation.max_tokens)):
        prompts = [Prompt([*prompt.token_ids, *beam.tokens]) for beam in found.beams]
        choices = await collect(msgspec.structs.replace(asked, prompts=prompts))
        if any(choice.finish_reason == "abort" for choice in choices):
            found.abort()
            break
        positions = [choice.logprobs[0] if choice.logprobs else Position((), (), (), ()) for choice in choices]
        if any(len(position.logprobs) < len(position.ids) for position in positions):
            raise EngineRequestError("the engine gave no log-probabilities to search with")
        found.step(positions)
        if not found.beams:
            break
    return found


async def _choice(
    generation: Generation, prompt: Prompt, index: int, found: BeamSearch, beam: Beam, decode: Decode
) -> Choice:
    text = await decode(found.text_ids(beam))
    parser = generation.parser() if generation.parser is not None else None
    counter = generation.counter() if generation.counter is not None else None
    if counter is not None:
        counter.feed(beam.tokens)
    wants_logprobs = generation.sampling.logprobs is not None
    return Choice(
        index,
        text,
        beam.reason,
        found.options.eos_token_id if beam.reason == "stop" else None,
        len(prompt.token_ids),
        len(beam.tokens),
        token_ids=list(beam.tokens),
        logprobs=list(map(chosen, beam.steps, beam.tokens)) if wants_logprobs else None,
        events=parser.feed(text) + parser.finish() if parser is not None else None,
        reasoning_tokens=counter.count if counter is not None else None,
    )


def chosen(position: Position, token_id: int) -> Position:
    """The same alternatives as they look where `token_id` was taken: it first, then its rivals, the best first."""
    at = position.ids.index(token_id)
    rivals = sorted((k for k in range(len(position.ids)) if k != at), key=lambda k: -position.logprobs[k])
    order = [at, *rivals]
    return Position(
        [position.ids[k] for k in order],
        [position.tokens[k] for k in order],
        [position.logprobs[k] for k in order],
        [position.ranks[k] for k in order],
    )
