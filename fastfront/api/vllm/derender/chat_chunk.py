"""One chunk of a chat's stream. The client carries the state from chunk to chunk, nothing stays here.

A parser's state cannot be carried: the ids of the earlier chunks can, so a new parser reads them again, cut as they
came, and what it makes of the new ones is the answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from fastfront.api.openai.chat.parsed import CallRules
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.chat.response import begins_call
from fastfront.api.state import RenderState
from fastfront.api.vllm.derender.decode import Decoding, finish_reason, stream_usage, without_end
from fastfront.api.vllm.derender.logprobs import shown
from fastfront.api.vllm.derender.request import ChatDerender, GenerateChunk, GeneratedChoice, StreamState
from fastfront.api.vllm.derender.response import (
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    Derendered,
    FunctionDelta,
    ToolCallDelta,
)
from fastfront.flow import CallArguments, CallStart, Content, Event, MakeParser, Reasoning


class Reading(NamedTuple):
    """What reads a chat's answer, and how the request wants its parts; `make` is None where its text is content."""

    make: MakeParser | None
    rules: CallRules
    return_token_ids: bool


def chat_chunk(
    state: RenderState, body: ChatDerender, sent: ChatRequest | None, chunk: GenerateChunk, reading: Reading
) -> Derendered:
    """The chunk as the API writes it, and the state for the next."""
    decoding = Decoding(state, sent is None or sent.skip_special_tokens)
    prompt = body.prompt_token_ids if body.prompt_token_ids is not None else chunk.prompt_token_ids
    if reading.make is None:
        carried = decoding.start(body.stream_state, prompt)
        choices = [_plain(choice, carried, decoding, reading) for choice in chunk.choices]
    else:
        carried = body.stream_state or StreamState()
        choices = [_parsed(state, choice, carried, decoding, prompt, reading) for choice in chunk.choices]
    made = ChatChunk(
        id=chunk.request_id,
        created=int(time.time()),
        model=body.model or state.pipeline.info.names[0],
        choices=choices,
        usage=stream_usage(chunk.usage, body.prompt_tokens),
        metrics=chunk.metrics,
    )
    return Derendered(made, carried)


def _plain(choice: GeneratedChoice, carried: StreamState, decoding: Decoding, reading: Reading) -> ChatChunkChoice:
    logprobs = shown(choice.logprobs, decoding.vocab, carried.logprob_context_token_ids)
    text = decoding.advance(carried, choice.token_ids or [])
    return ChatChunkChoice(
        index=choice.index,
        delta=ChatDelta(_role(carried), text or None),
        logprobs=logprobs,
        finish_reason=finish_reason(choice.finish_reason, None),
        stop_reason=choice.stop_reason,
        token_ids=choice.token_ids if reading.return_token_ids else None,
    )


def _parsed(
    state: RenderState,
    choice: GeneratedChoice,
    carried: StreamState,
    decoding: Decoding,
    prompt: list[int] | None,
    reading: Reading,
) -> ChatChunkChoice:
    assert reading.make is not None
    rules, ids, before = reading.rules, choice.token_ids or [], carried.output_token_ids
    reason = finish_reason(choice.finish_reason, None)
    parser, decoder = reading.make(), decoding.decoder(prompt)
    at = 0
    for length in carried.output_chunk_lens:
        parser.feed(decoder.feed(before[at : at + length]))
        at += length
    # An end token is no text, although the parser has to see special ones.
    events = parser.feed(decoder.feed(without_end(state, ids) if reason == "stop" else ids))
    if reason is not None:
        events += parser.feed(decoder.finish()) + parser.finish()
    carried.tools_streamed = carried.tools_streamed or begins_call(events)
    delta = _delta(_role(carried), rules.keep(events), carried.last_tool_call_ids)
    # Texts and ids of tokens would tell the reasoning that the request wants hidden.
    logprobs = shown(choice.logprobs, decoding.vocab, before) if rules.include_reasoning else None
    if ids:
        carried.output_token_ids = [*before, *ids]
        carried.output_chunk_lens.append(len(ids))
    return ChatChunkChoice(
        index=choice.index,
        delta=delta,
        logprobs=logprobs,
        finish_reason=reason if reason is None else rules.finish_reason(reason, carried.tools_streamed),
        stop_reason=choice.stop_reason,
        token_ids=choice.token_ids if reading.return_token_ids and rules.include_reasoning else None,
    )


def _role(carried: StreamState) -> str | None:
    """The first chunk of a choice says who speaks."""
    role = None if carried.role_sent else "assistant"
    carried.role_sent = True
    return role


def _delta(role: str | None, events: Sequence[Event], call_ids: list[str]) -> ChatDelta:
    """All that was parsed in one delta; `call_ids`, of the calls begun so far, gets those of new ones."""
    calls: dict[int, ToolCallDelta] = {}
    for event in events:
        if isinstance(event, CallStart):
            if event.index == len(call_ids):
                call_ids.append(event.id)
            # An id that was told stays, though each reading makes another.
            known = call_ids[event.index] if event.index < len(call_ids) else event.id
            function = FunctionDelta(event.name)
            calls[event.index] = ToolCallDelta(id=known, type="function", index=event.index, function=function)
        elif isinstance(event, CallArguments):
            call = calls.setdefault(event.index, ToolCallDelta(index=event.index, function=FunctionDelta()))
            call.function.arguments = (call.function.arguments or "") + event.text
    return ChatDelta(
        role,
        "".join(event.text for event in events if isinstance(event, Content)) or None,
        "".join(event.text for event in events if isinstance(event, Reasoning)) or None,
        list(calls.values()) or UNSET,
    )
