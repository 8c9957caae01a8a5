"""Log-probabilities by token id to those by token text."""

from __future__ import annotations

from collections.abc import Sequence

from fastfront.api.vllm.derender.request import Logprobs
from fastfront.api.vllm.derender.response import CompletionLogprobs, ShownLogprob, ShownLogprobs, ShownPosition
from fastfront.fast import Vocab

REPLACEMENT = "\ufffd"
#: So many sampled tokens before one are looked at when it does not begin with a whole character.
CONTEXT = 4


def shown(logprobs: Logprobs | None, vocab: Vocab, before: Sequence[int] = ()) -> ShownLogprobs | None:
    """With the text of every token; `before` are the ids sampled before the first."""
    if logprobs is None:
        return None
    if logprobs.content is None:
        return ShownLogprobs()
    context = list(before)
    positions: list[ShownPosition] = []
    for entry in logprobs.content:
        tops = [_candidate(vocab, top.token_id, top.logprob, context) for top in entry.top_logprobs]
        own = _candidate(vocab, entry.token_id, entry.logprob, context)
        positions.append(ShownPosition(own.token, own.logprob, own.bytes, tops))
        context.append(entry.token_id)
    return ShownLogprobs(positions)


def of_completion(logprobs: ShownLogprobs | None, offset: int = 0) -> CompletionLogprobs | None:
    """The same in a completion's form; `offset` is the length of the text before."""
    if logprobs is None:
        return None
    flat = CompletionLogprobs([], [], [], [])
    for entry in logprobs.content or ():
        flat.text_offset.append(offset)
        flat.tokens.append(entry.token)
        flat.token_logprobs.append(entry.logprob)
        flat.top_logprobs.append({top.token: top.logprob for top in entry.top_logprobs} or None)
        offset += len(entry.token)
    return flat


def _candidate(vocab: Vocab, token_id: int, logprob: float, context: list[int]) -> ShownLogprob:
    piece = vocab.piece(token_id)
    if piece is None:
        return ShownLogprob("", logprob, None)
    text = piece.decode("utf-8", "replace")
    if text.endswith(REPLACEMENT):
        text = _completed(vocab, token_id, context)
    return ShownLogprob(text, logprob, list(text.encode()))


def _completed(vocab: Vocab, token_id: int, context: list[int]) -> str:
    """The characters that a token finishes which others before it began; "" while they are unfinished."""
    for count in range(1, min(len(context), CONTEXT) + 1):
        before = context[-count:]
        text = _text(vocab, [*before, token_id])
        if text.endswith(REPLACEMENT):
            continue
        while before and _text(vocab, before[-1:]).endswith(REPLACEMENT):
            before.pop()
        return text.removeprefix(_text(vocab, before))
    return ""


def _text(vocab: Vocab, ids: list[int]) -> str:
    return b"".join(vocab.piece(token_id) or b"" for token_id in ids).decode("utf-8", "replace")
