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
from fastfront.api.vllm.derender.chat_chunk import Reading, chat_chunk
from fastfront.api.vllm.derender.check import check_chunk, check_prompt_ids, check_responses, needed
from fastfront.api.vllm.derender.decode import Decoding, derendered, finish_reason, prompt_tail, without_end
from fastfront.api.vllm.derender.logprobs import shown
from fastfront.api.vllm.derender.request import ChatDerender, GenerateChunk, GenerateResponse
from fastfront.api.vllm.derender.response import encode
from fastfront.errors import RequestError
from fastfront.flow import Handler, HttpRequest, Reply


def derender_chat(state: RenderState) -> Handler:
    """The handler."""
    strict = state.settings.strict_request_fields
    reader, requests = BodyReader(ChatDerender, strict), BodyReader(ChatRequest, strict)

    async def handle(request: HttpRequest, reply: Reply, body: ChatDerender) -> None:
        reply.send(200, await derendered(state, request, body, partial(_answer, state, requests, body)))

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
    if isinstance(part, GenerateChunk):
        _check_prompt(state, body)
        check_chunk(state, part, body.stream_state, body.prompt_token_ids)
        return encode(chat_chunk(state, body, sent, part, _reading(state, sent, body.prompt_token_ids)))
    check_responses(state, [part])
    check_prompt_ids(state, (body.prompt_token_ids, part.prompt_token_ids))
    return encode(_whole(state, body, sent, part))


def _check_parsers(state: RenderState, sent: ChatRequest | None) -> None:
    if state.settings.tool_call_parser is None and state.settings.reasoning_parser is None:
        return
    if sent is None:
        raise RequestError(
            "chat_request is required when a tool or reasoning parser is configured because plain detokenization would "
            "leak raw parser markup into content."
        )


def _check_prompt(state: RenderState, body: ChatDerender) -> None:
    if state.format is not None and body.prompt_token_ids is None:
        raise RequestError(
            "prompt_token_ids is required when a tool or reasoning parser is configured. Without it parse_delta cannot "
            "tell whether the prompt left reasoning open (e.g. a chat template that pre-opens <think>) and would "
            "misclassify reasoning content as plain content."
        )


def _reading(state: RenderState, sent: ChatRequest | None, prompt: list[int] | None) -> Reading:
    if sent is None:
        return Reading(None, CallRules(), False)
    return Reading(parser_after(state, sent, prompt_tail(state, prompt)), call_rules(sent), bool(sent.return_token_ids))


def _whole(state: RenderState, body: ChatDerender, sent: ChatRequest | None, whole: GenerateResponse) -> ChatResponse:
    decoding = Decoding(state, sent is None or sent.skip_special_tokens)
    prompt = body.prompt_token_ids if body.prompt_token_ids is not None else whole.prompt_token_ids
    make, rules, with_ids = _reading(state, sent, prompt)
    if make is not None and not rules.include_reasoning:
        with_ids = False
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
                token_ids=choice.token_ids if with_ids else None,
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
