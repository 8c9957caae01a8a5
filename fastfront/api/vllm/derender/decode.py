"""How the derender routes decode: whole answers with the server's own detokenizer, chunks with the carried window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import UnsetType

from fastfront.api.openai.usage import Usage
from fastfront.api.state import RenderState
from fastfront.api.vllm.derender.request import ChatDerender, CompletionDerender, GenerateUsage, StreamState
from fastfront.api.vllm.derender.window import advance, check_window, seeded
from fastfront.fast import Decoder
from fastfront.flow import HttpRequest

#: Ids that are decoded in one go before other threads have their turn.
TURN = 4096
#: So many ids before an answer decide how it begins.
CONTEXT = 64
LOGPROB_CONTEXT = 4
#: What an id of a chunk, or an earlier chunk that is read again, costs in ids of a whole answer.
STREAMED = 16


async def derendered(
    state: RenderState, request: HttpRequest, body: ChatDerender | CompletionDerender, answer: Callable[[], bytes]
) -> bytes:
    """What `answer` makes of a request once the vocabulary is there; of a big one, in a worker thread."""
    chunk, carried = body.generate_chunk, body.stream_state
    count = 0 if isinstance(chunk, UnsetType) else sum(len(choice.token_ids or ()) for choice in chunk.choices)
    if carried is not None:
        count += len(carried.output_chunk_lens)
    if state.vocab_ready is not None:
        await asyncio.shield(state.vocab_ready)
    return await state.pipeline.prompter.aside(answer, ids=STREAMED * count, size=len(request.body))


def without_end(state: RenderState, ids: list[int]) -> list[int]:
    """The ids of an answer without the end token that stopped it."""
    info = state.pipeline.info
    return ids[:-1] if ids and ids[-1] in (info.eos_token_id, *info.extra_eos_token_ids) else ids


def prompt_tail(state: RenderState, prompt: list[int] | None) -> str:
    """The end of the prompt's text, control tokens and all."""
    decoder = Decoder(state.pipeline.vocab, False)
    return decoder.feed((prompt or [])[-CONTEXT:]) + decoder.finish()


class Decoding:
    """The decoding of one request's answer."""

    def __init__(self, state: RenderState, skip_special: bool) -> None:
        self.vocab = state.pipeline.vocab
        self._tokenizer = state.pipeline.prompter.tokenizer
        self._skip_special = skip_special
        self._skip = self._tokenizer.special_ids if skip_special else frozenset[int]()

    def decoder(self, prompt: list[int] | None) -> Decoder:
        """A decoder of the text after the prompt."""
        return Decoder(self.vocab, self._skip_special, (prompt or [])[-CONTEXT:])

    def whole(self, ids: list[int], prompt: list[int] | None) -> str:
        """The text of a whole answer."""
        decoder = self.decoder(prompt)
        texts = [decoder.feed(ids[at : at + TURN]) for at in range(0, len(ids), TURN)]
        return "".join(texts) + decoder.finish()

    def start(self, carried: StreamState | None, prompt: list[int] | None) -> StreamState:
        """The state to go on from; RequestError for one that no server has written."""
        if carried is None:
            return seeded(self._tokenizer, self._skip, prompt)
        check_window(self._tokenizer, carried)
        return carried

    def advance(self, carried: StreamState, ids: list[int]) -> str:
        """The text that a chunk adds."""
        text = advance(self._tokenizer, self._skip, carried, ids)
        carried.logprob_context_token_ids = [*carried.logprob_context_token_ids, *ids][-LOGPROB_CONTEXT:]
        return text


def finish_reason(given: str | UnsetType | None, default: str | None) -> str | None:
    """What the engine's server said, or what it means when it said nothing."""
    return default if isinstance(given, UnsetType) else given


def stream_usage(counts: GenerateUsage | None, prompt_tokens: int | None) -> Usage | None:
    """The counts of a chunk that has some; the caller knows the prompt's better."""
    if counts is None:
        return None
    prompt = prompt_tokens if prompt_tokens is not None else counts.prompt_tokens or 0
    tokens = counts.completion_tokens or 0
    return Usage(prompt, prompt + tokens, tokens)
