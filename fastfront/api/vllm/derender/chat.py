"""Serves POST /v1/chat/completions/derender."""

from __future__ import annotations

import time
from functools import partial

from fastfront.api.body import BodyReader
from fastfront.api.openai.chat.parsed import CallRules
from fastfront.api.openai.chat.prepare import prepare
from fastfront.api.openai.chat.reading import call_rules, parser_after
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.chat.response import ChatChoice, ChatMessage, ChatResponse, begins_call, parsed_message
from fastfront.api.openai.identity import check_model
from fastfront.api.openai.usage import Usage
from fastfront.api.state import RenderState
from fastfront.api.vllm.derender.check import check_chunk, check_prompt_ids, check_responses, needed
from fastfront.api.vllm.derender.decode import Decoding, derendered, finish_reason, stream_usage, without_end
from fastfront.api.vllm.derender.logprobs import shown
from fastfront.api.vllm.derender.request import ChatDerender, GenerateChunk, GenerateResponse, StreamState
from fastfront.api.vllm.derender.response import ChatChunk, ChatChunkChoice, ChatDelta, Derendered, encode
from fastfront.errors import RequestError, UnsupportedError
from fastfront.flow import Handler, HttpRequest, Reply


def derender_chat(state: RenderState) -> Handler:
    """The handler."""
    reader, requests = BodyReader(ChatDerender), BodyReader(ChatRequest)

    async def handle(request: HttpRequest, reply: Reply, body: ChatDerender) -> None:
        reply.send(200, await derendered(state, request, body.generate_chunk, partial(_answer, state, requests, body)))

    return reader.serve(handle)


def _answer(state: RenderState, requests: BodyReader[ChatRequest], body: ChatDerender) -> bytes:
    part = (
        needed(body.generate_chunk, "generate_chunk", body)
        if body.stream
        else needed(body.generate_response, "generate_response", body)
    )
    sent = None if body.chat_request is None else requests.read_value(body.chat_request, ("body", "chat_request"))
    check_model(body.model, state.pipeline.info.names, state.limits)
    _check_parsers(state, sent)
    if sent is not None:
        prepare(state, sent)
    decoding = Decoding(state, sent is None or sent.skip_special_tokens)
    if isinstance(part, GenerateChunk):
        if state.format is not None:
            raise UnsupportedError(
                "fastfront does not derender the chunks of a chat with a tool or reasoning parser yet.",
                param="generate_chunk",
            )
        check_chunk(state, part, body.stream_state, body.prompt_token_ids)
        return encode(_chunk(state, body, sent, part, decoding))
    check_responses(state, [part])
    check_prompt_ids(state, (body.prompt_token_ids, part.prompt_token_ids))
    return encode(_whole(state, body, sent, part, decoding))


def _check_parsers(state: RenderState, sent: ChatRequest | None) -> None:
    if state.settings.tool_call_parser is None and state.settings.reasoning_parser is None:
        return
    if sent is None:
        raise RequestError(
            "chat_request is required when a tool or reasoning parser is configured because plain detokenization would "
            "leak raw parser markup into content."
        )


def _whole(
    state: RenderState, body: ChatDerender, sent: ChatRequest | None, whole: GenerateResponse, decoding: Decoding
) -> ChatResponse:
    prompt = body.prompt_token_ids if body.prompt_token_ids is not None else whole.prompt_token_ids
    make = parser_after(state, sent, decoding.tail(prompt)) if sent is not None else None
    rules = call_rules(sent) if sent is not None else CallRules()
    choices: list[ChatChoice] = []
    for choice in whole.choices:
        if not choice.token_ids:
            raise RequestError(f"choice {choice.index} has empty or null token_ids")
        reason = finish_reason(choice.finish_reason, "stop")
        if make is None:
            message, called = ChatMessage("assistant", decoding.whole(choice.token_ids, prompt)), False
        else:
            # an end token is no text, although the parser has to see special ones
            shown_ids = without_end(state, choice.token_ids) if reason == "stop" else choice.token_ids
            parser = make()
            events = parser.feed(decoding.whole(shown_ids, prompt)) + parser.finish()
            message, called = parsed_message("assistant", "", rules, events), begins_call(events)
        choices.append(
            ChatChoice(
                index=choice.index,
                message=message,
                logprobs=shown(choice.logprobs, decoding.vocab),
                finish_reason=reason if reason is None else rules.finish_reason(reason, called),
                stop_reason=choice.stop_reason,
                token_ids=choice.token_ids if sent is not None and sent.return_token_ids else None,
            )
        )
    prompt_tokens = body.prompt_tokens or 0
    tokens = sum(len(choice.token_ids or ()) for choice in whole.choices)
    return ChatResponse(
        id=whole.request_id,
        created=int(time.time()),
        model=body.model or state.pipeline.info.names[0],
        choices=choices,
        system_fingerprint=None,
        usage=Usage(prompt_tokens, prompt_tokens + tokens, tokens),
        prompt_logprobs=whole.prompt_logprobs,
        kv_transfer_params=whole.kv_transfer_params,
        metrics=whole.metrics,
    )


def _chunk(
    state: RenderState, body: ChatDerender, sent: ChatRequest | None, chunk: GenerateChunk, decoding: Decoding
) -> Derendered:
    prompt = body.prompt_token_ids if body.prompt_token_ids is not None else chunk.prompt_token_ids
    carried: StreamState = decoding.start(body.stream_state, prompt)
    choices: list[ChatChunkChoice] = []
    for choice in chunk.choices:
        ids = choice.token_ids or []
        logprobs = shown(choice.logprobs, decoding.vocab, carried.logprob_context_token_ids)
        text = decoding.advance(carried, ids)
        role = None if carried.role_sent else "assistant"
        carried.role_sent = True
        choices.append(
            ChatChunkChoice(
                index=choice.index,
                delta=ChatDelta(role, text or None),
                logprobs=logprobs,
                finish_reason=finish_reason(choice.finish_reason, None),
                stop_reason=choice.stop_reason,
                token_ids=choice.token_ids if sent is not None and sent.return_token_ids else None,
            )
        )
    made = ChatChunk(
        id=chunk.request_id,
        created=int(time.time()),
        model=body.model or state.pipeline.info.names[0],
        choices=choices,
        usage=stream_usage(chunk.usage, body.prompt_tokens),
        metrics=chunk.metrics,
    )
    return Derendered(made, carried)
