"""Detokenization that goes on from a state which the client carries.

The state is a window of raw token strings. Up to `read_offset` their text has been given; those from `prefix_offset` on
are joined again with what is new, because a token's text may depend on the token before it. Text that ends in an
unfinished character is kept back.
"""

from __future__ import annotations

from collections.abc import Collection

from fastfront.api.state import Tokenizer
from fastfront.api.vllm.derender.request import StreamState
from fastfront.errors import RequestError

REPLACEMENT = "\ufffd"
#: So many tokens before an answer decide how it begins, and two more in case some are special.
CONTEXT = 5


def seeded(tokenizer: Tokenizer, skip: Collection[int], prompt: list[int] | None) -> StreamState:
    """The state at the end of the prompt."""
    if not prompt:
        return StreamState()
    tokens = tokenizer.tokens([token_id for token_id in prompt[-CONTEXT - 2 :] if token_id not in skip])
    return StreamState(prev_tokens=tokens, prefix_offset=max(len(tokens) - CONTEXT, 0), read_offset=len(tokens))


def check_window(state: StreamState) -> None:
    """RequestError for offsets that no server has written."""
    if not state.prefix_offset <= state.read_offset <= len(state.prev_tokens):
        raise RequestError(
            f"stream_state: prefix_offset ({state.prefix_offset}) must not be more than read_offset "
            f"({state.read_offset}), nor that more than the number of prev_tokens ({len(state.prev_tokens)}).",
            param="stream_state",
        )


def advance(tokenizer: Tokenizer, skip: Collection[int], state: StreamState, ids: list[int]) -> str:
    """The text that `ids` add; the state moves on."""
    tokens, prefix, read = list(state.prev_tokens), state.prefix_offset, state.read_offset
    texts: list[str] = []
    for token, token_id in zip(tokenizer.tokens(ids), ids, strict=True):
        if token_id not in skip:
            tokens.append(token)
        given = tokenizer.join(tokens[prefix:read])
        text = tokenizer.join(tokens[prefix:])
        if len(text) > len(given) and not text.endswith(REPLACEMENT):
            texts.append(text[len(given) :])
            prefix, read = read, len(tokens)
        # What is before the prefix is never looked at again.
        tokens, read, prefix = tokens[prefix:], read - prefix, 0
    state.prev_tokens, state.prefix_offset, state.read_offset = tokens, prefix, read
    return "".join(texts)
