"""Log-probabilities as answers show them: of a chat, of a completion, of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fastfront.flow import Position, Token

#: JSON has no infinity.
LOWEST = -9999.0


class LogprobWish(NamedTuple):
    """How many rivals a client wants to see beside a token (-1 all), and whether tokens are shown as `token_id:N`."""

    top: int
    as_ids: bool = False


class Candidate(msgspec.Struct):
    """A token that could have been."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class Chosen(msgspec.Struct):
    """A token of a chat, and the best candidates for its place."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: list[Candidate]


class ChatLogprobs(msgspec.Struct):
    """One entry for each generated token."""

    content: list[Chosen]


class CompletionLogprobs(msgspec.Struct):
    """Lists with an entry for each token; an offset is where the token begins in the text, in code points."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]

    @property
    def end(self) -> int:
        """The offset of the next token."""
        return self.text_offset[-1] + len(self.tokens[-1]) if self.tokens else 0


class PromptLogprob(msgspec.Struct):
    """A candidate for a place in the prompt."""

    logprob: float
    rank: int
    decoded_token: str


def chat_logprobs(positions: Sequence[Position] | None, wish: LogprobWish | None) -> ChatLogprobs | None:
    """Of a chat; the candidates are the token and its rivals, `top` in all."""
    if positions is None or wish is None:
        return None
    return ChatLogprobs([_chosen(position, wish) for position in positions])


def _chosen(position: Position, wish: LogprobWish) -> Chosen:
    most = len(position.logprobs) if wish.top < 0 else wish.top
    shown = zip(position.ids[:most], position.tokens, position.logprobs, strict=False)
    token = position.tokens[0]
    return Chosen(
        _name(position.ids[0], token, wish),
        _clamped(position.logprobs[0]) if position.logprobs else LOWEST,
        token.bytes,
        [Candidate(_name(number, rival, wish), _clamped(logprob), rival.bytes) for number, rival, logprob in shown],
    )


def completion_logprobs(
    positions: Sequence[Position] | None, wish: LogprobWish | None, offset: int = 0
) -> CompletionLogprobs | None:
    """Of a completion; the candidates are the token and `top` rivals. `offset` is where the first token begins."""
    if positions is None or wish is None:
        return None
    made = CompletionLogprobs([], [], [], [])
    for position in positions:
        name = _name(position.ids[0], position.tokens[0], wish)
        made.text_offset.append(offset)
        made.tokens.append(name)
        made.token_logprobs.append(_clamped(position.logprobs[0]) if position.logprobs else None)
        made.top_logprobs.append(_by_name(position, wish) if position.logprobs else None)
        offset += len(name)
    return made


def _by_name(position: Position, wish: LogprobWish) -> dict[str, float]:
    most = len(position.ids) if wish.top < 0 else wish.top + 1
    shown = zip(position.ids[:most], position.tokens, position.logprobs, strict=False)
    return {_name(number, token, wish): _clamped(logprob) for number, token, logprob in shown}


def prompt_logprobs(positions: Sequence[Position] | None) -> list[dict[int, PromptLogprob] | None] | None:
    """Of a prompt, by token id; null for a token that has none."""
    if positions is None:
        return None
    return [
        {
            number: PromptLogprob(_clamped(logprob), rank, token.text)
            for number, token, logprob, rank in zip(*position, strict=True)
        }
        if position.logprobs
        else None
        for position in positions
    ]


def _name(token_id: int, token: Token, wish: LogprobWish) -> str:
    return f"token_id:{token_id}" if wish.as_ids else token.text


def _clamped(logprob: float) -> float:
    return logprob if logprob >= LOWEST else LOWEST
