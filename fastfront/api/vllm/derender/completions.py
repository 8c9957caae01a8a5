"""Serves POST /v1/completions/derender."""

from __future__ import annotations

import time
from functools import partial
from typing import cast

from fastfront.api.body import BodyReader
from fastfront.api.coerce import Problem, body_error
from fastfront.api.openai.completions.request import CompletionRequest
from fastfront.api.openai.completions.response import CompletionChoice, CompletionResponse
from fastfront.api.openai.identity import check_model
from fastfront.api.openai.usage import Usage
from fastfront.api.state import RenderState
from fastfront.api.vllm.derender.check import check_chunk, check_prompt_ids, check_responses, needed
from fastfront.api.vllm.derender.decode import Decoding, derendered, finish_reason, stream_usage
from fastfront.api.vllm.derender.logprobs import of_completion, shown
from fastfront.api.vllm.derender.request import CompletionDerender, GenerateChunk, GenerateResponse
from fastfront.api.vllm.derender.response import CompletionChunk, CompletionChunkChoice, Derendered, encode
from fastfront.errors import RequestError
from fastfront.flow import Handler, HttpRequest, Reply

Prompts = list[list[int] | None]


def derender_completions(state: RenderState) -> Handler:
    """The handler."""
    strict = state.settings.strict_request_fields
    reader, requests = BodyReader(CompletionDerender, strict), BodyReader(CompletionRequest, strict)

    async def handle(request: HttpRequest, reply: Reply, body: CompletionDerender) -> None:
        reply.send(200, await derendered(state, request, body, partial(_answer, state, requests, body)))

    return reader.serve(handle)


def _answer(state: RenderState, requests: BodyReader[CompletionRequest], body: CompletionDerender) -> bytes:
    name = "generate_chunk" if body.stream else "generate_responses"
    needed(getattr(body, name), name, body)
    sent = body.completion_request
    asked = None if sent is None else requests.read_value(sent, ("body", "completion_request"))
    decoding = Decoding(state, asked is None or asked.skip_special_tokens)
    if body.stream:
        prompt, prompt_tokens = _of_chunk(body)
        check_model(body.model, state.pipeline.info.names, state.limits)
        chunk = cast("GenerateChunk", body.generate_chunk)
        check_chunk(state, chunk, body.stream_state, prompt)
        return encode(_chunk(state, body, chunk, decoding, prompt, prompt_tokens))
    responses = cast("list[GenerateResponse]", body.generate_responses)
    prompts, counts = _of_whole(body, len(responses))
    check_model(body.model, state.pipeline.info.names, state.limits)
    if not responses:
        raise RequestError("generate_responses must not be empty")
    check_responses(state, responses)
    check_prompt_ids(state, (*prompts, *(response.prompt_token_ids for response in responses)))
    return encode(_whole(state, body, responses, decoding, prompts, counts))


def _of_chunk(body: CompletionDerender) -> tuple[list[int] | None, int | None]:
    """Prompt and count of a chunk; BodyError for those of a whole answer."""
    if isinstance(body.prompt_tokens, list):
        message = "Input should be a valid integer"
        raise body_error([Problem("int_type", ("body", "prompt_tokens"), message, body.prompt_tokens)])
    for at, item in enumerate(body.prompt_token_ids or ()):
        if not isinstance(item, int):
            loc = ("body", "prompt_token_ids", at)
            raise body_error([Problem("int_type", loc, "Input should be a valid integer", item)])
    return cast("list[int] | None", body.prompt_token_ids), body.prompt_tokens


def _of_whole(body: CompletionDerender, count: int) -> tuple[Prompts, list[int]]:
    """Prompts and counts, one for each response; BodyError for those of a chunk or for another number of them."""
    counts, prompts = body.prompt_tokens, body.prompt_token_ids
    if isinstance(counts, int):
        raise body_error([Problem("list_type", ("body", "prompt_tokens"), "Input should be a valid list", counts)])
    for at, item in enumerate(prompts or ()):
        if isinstance(item, int):
            loc = ("body", "prompt_token_ids", at)
            raise body_error([Problem("list_type", loc, "Input should be a valid list", item)])
    for name, given in (("prompt_tokens", counts), ("prompt_token_ids", prompts)):
        if given is not None and len(given) != count:
            message = f"Value error, {name} length ({len(given)}) must equal generate_responses length ({count})"
            raise body_error([Problem("value_error", ("body",), message, given)])
    return cast("Prompts", [None] * count if prompts is None else prompts), [0] * count if counts is None else counts


def _whole(
    state: RenderState,
    body: CompletionDerender,
    responses: list[GenerateResponse],
    decoding: Decoding,
    prompts: Prompts,
    counts: list[int],
) -> CompletionResponse:
    choices: list[CompletionChoice] = []
    tokens = 0
    for response, given in zip(responses, prompts, strict=True):
        prompt = given if given is not None else response.prompt_token_ids
        for choice in response.choices:
            if not choice.token_ids:
                raise RequestError(
                    f"choice {choice.index} in response {response.request_id} has empty or null token_ids"
                )
            choices.append(
                CompletionChoice(
                    index=len(choices),
                    text=decoding.whole(choice.token_ids, prompt),
                    logprobs=of_completion(shown(choice.logprobs, decoding.vocab)),
                    finish_reason=finish_reason(choice.finish_reason, "stop"),
                    stop_reason=choice.stop_reason,
                )
            )
            tokens += len(choice.token_ids)
    transfer = responses[0].kv_transfer_params
    alike = all(response.kv_transfer_params == transfer for response in responses)
    return CompletionResponse(
        id=responses[0].request_id,
        created=int(time.time()),
        model=body.model or state.pipeline.info.names[0],
        choices=choices,
        system_fingerprint=None,
        usage=Usage(sum(counts), sum(counts) + tokens, tokens),
        kv_transfer_params=transfer if alike else None,
        metrics=responses[0].metrics if len(responses) == 1 else None,
    )


def _chunk(
    state: RenderState,
    body: CompletionDerender,
    chunk: GenerateChunk,
    decoding: Decoding,
    prompt: list[int] | None,
    prompt_tokens: int | None,
) -> Derendered:
    carried = decoding.start(body.stream_state, prompt if prompt is not None else chunk.prompt_token_ids)
    choices: list[CompletionChunkChoice] = []
    for choice in chunk.choices:
        logprobs = shown(choice.logprobs, decoding.vocab, carried.logprob_context_token_ids)
        text = decoding.advance(carried, choice.token_ids or [])
        choices.append(
            CompletionChunkChoice(
                index=choice.index,
                text=text,
                logprobs=of_completion(logprobs, carried.logprob_text_offset),
                finish_reason=finish_reason(choice.finish_reason, None),
                stop_reason=choice.stop_reason,
            )
        )
        carried.logprob_text_offset += len(text)
    made = CompletionChunk(
        id=chunk.request_id,
        created=int(time.time()),
        model=body.model or state.pipeline.info.names[0],
        choices=choices,
        usage=stream_usage(chunk.usage, prompt_tokens),
        metrics=chunk.metrics,
    )
    return Derendered(made, carried)
