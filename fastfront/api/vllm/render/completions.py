"""Serves POST /v1/completions/render, which answers a list."""

from __future__ import annotations

from typing import Any

from fastfront.api.body import BodyReader
from fastfront.api.openai.completions.prompt import Split, make_prompts, prompt_limits, prompts_now
from fastfront.api.openai.completions.request import CompletionRequest
from fastfront.api.openai.completions.validate import check_completion, split_prompts
from fastfront.api.openai.generation import max_tokens, room_for
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.openai.recipe import recipe
from fastfront.api.state import RenderState
from fastfront.api.vllm.render.answer import Offsets, check_renderable, encode, rendered, token_offsets
from fastfront.flow import Handler, HttpRequest, Prompt, Reply, Work


def render_completions(state: RenderState) -> Handler:
    """The handler."""
    reader = BodyReader(CompletionRequest, state.settings.strict_request_fields)

    def handle(request: HttpRequest, reply: Reply, body: CompletionRequest) -> Work | None:
        check_renderable(body)
        check_completion(body, state.settings, state.limits)
        split = split_prompts(body, state.limits)
        check_model(body.model, state.pipeline.info.names, state.limits)
        limits = prompt_limits(state, body)
        prompts = None if body.return_token_offsets else prompts_now(state, body, split, limits)
        if prompts is None:
            return later(request, reply, body, split, limits)
        reply.send(200, _answer(state, request, body, prompts, [None] * len(prompts)))
        return None

    async def later(request: HttpRequest, reply: Reply, body: CompletionRequest, split: Split, limits: Any) -> None:
        prompts = await make_prompts(state, body, split, limits)
        offsets = await token_offsets(state, body, prompts, body.add_special_tokens)
        reply.send(200, _answer(state, request, body, prompts, offsets))

    return reader.serve(handle)


def _answer(
    state: RenderState,
    request: HttpRequest,
    body: CompletionRequest,
    prompts: list[Prompt],
    offsets: list[Offsets | None],
) -> bytes:
    request_id = public_id("cmpl-", request.headers, body.request_id)
    wanted = 16 if body.max_tokens is None else max(body.max_tokens, 1)
    made = recipe(state, body, body.n)
    room_for(state, made, prompts, wanted)
    answers = [
        rendered(
            state,
            body,
            request.headers,
            made,
            request_id if len(prompts) == 1 else f"{request_id}-{at}",
            prompt,
            max_tokens(state, len(prompt.token_ids), wanted),
            offsets[at],
        )
        for at, prompt in enumerate(prompts)
    ]
    return encode(answers)
