"""Detokenization that goes on from a state which the client carries.

The state is a window of raw token strings. Up to `read_offset` their text has been given; those from `prefix_offset` on
are joined again with what is new, because a token's text may depend on the token before it. Text that ends in an
unfinished character is kept back, but not for longer than a character can be unfinished: so a window has an end.
"""

from __future__ import annotations

from collections.abc import Collection

from fastfront.api.state import Tokenizer
from fastfront.api.vllm.derender.request import StreamState
from fastfront.errors import RequestError

REPLACEMENT = "\ufffd"
#: So many tokens before an answer decide how it begins, and two more in case some are special.
CONTEXT = 5
#: Tokens whose text is kept back at most. Those of one text that has been given are no more, so a window is twice that.
HELD = 16
WINDOW = 2 * HELD


def seeded(tokenizer: Tokenizer, skip: Collection[int], prompt: list[int] | None) -> StreamState:
    """The state at the end of the prompt."""
    if not prompt:
        return StreamState()
    tokens = tokenizer.tokens([token_id for token_id in prompt[-CONTEXT - 2 :] if token_id not in skip])
    return StreamState(prev_tokens=tokens, prefix_offset=max(len(tokens) - CONTEXT, 0), read_offset=len(tokens))


def check_window(tokenizer: Tokenizer, state: StreamState) -> None:
    """RequestError for a window that no server has written."""
    count, longest = len(state.prev_tokens), max(map(len, state.prev_tokens), default=0)
    if count > WINDOW:
        raise RequestError(
            f"stream_state: prev_tokens has {count} tokens, more than the {WINDOW} that a window can have.",
            param="stream_state.prev_tokens",
        )
    if longest > tokenizer.max_chars_per_token:
        raise RequestError(
            f"stream_state: prev_tokens has a token of {longest} characters; the longest that there is has "
            f"{tokenizer.max_chars_per_token}.",
            param="stream_state.prev_tokens",
        )
    if not state.prefix_offset <= state.read_offset <= len(state.prev_tokens):
        raise RequestError(
            f"stream_state: prefix_offset ({state.prefix_offset}) must not be more than read_offset "
            f"({state.read_offset}), nor that more than the number of prev_tokens ({len(state.prev_tokens)}).",
            param="stream_state",
        )


def advance(tokenizer: Tokenizer, skip: Collection[int], state: StreamState, ids: list[int]) -> str:
    """The text that `ids` add; the state moves on."""
    # What is before the prefix is never looked at again.
    tokens, read = state.prev_tokens[state.prefix_offset :], state.read_offset - state.prefix_offset
    given = tokenizer.join(tokens[:read])
    texts: list[str] = []
    for token, token_id in zip(tokenizer.tokens(ids), ids, strict=True):
        if token_id in skip:
            continue
        tokens.append(token)
        text = tokenizer.join(tokens)
        unfinished = len(text) <= len(given) or text.endswith(REPLACEMENT)
        if unfinished and len(tokens) - read < HELD:
            continue
        texts.append(text[len(given) :])
        tokens = tokens[read:]
        read = len(tokens)
        given = tokenizer.join(tokens)
    state.prev_tokens, state.prefix_offset, state.read_offset = tokens, 0, read
    return "".join(texts)
