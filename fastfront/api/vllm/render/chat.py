"""Serves POST /v1/chat/completions/render."""

from __future__ import annotations

from fastfront.api.body import BodyReader
from fastfront.api.openai.chat.prepare import parser_kwargs, prepare
from fastfront.api.openai.chat.prompt import PromptPlan, plan_prompt
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.chat.validate import check_chat, wanted_tokens
from fastfront.api.openai.generation import room_for
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.openai.recipe import recipe
from fastfront.api.state import RenderState
from fastfront.api.vllm.render.answer import Offsets, check_renderable, encode, rendered, token_offsets
from fastfront.flow import Handler, HttpRequest, Prompt, Reply, Work


def render_chat(state: RenderState) -> Handler:
    """The handler."""
    reader = BodyReader(ChatRequest, state.settings.strict_request_fields)

    def handle(request: HttpRequest, reply: Reply, body: ChatRequest) -> Work | None:
        check_renderable(body)
        check_chat(body, state.settings, state.limits)
        check_model(body.model, state.pipeline.info.names, state.limits)
        prepare(state, body)
        plan = plan_prompt(state, body, request.body)
        prompt = None if body.return_token_offsets else plan.now()
        if prompt is None:
            return later(request, reply, body, plan)
        reply.send(200, _answer(state, request, body, prompt, None))
        return None

    async def later(request: HttpRequest, reply: Reply, body: ChatRequest, plan: PromptPlan) -> None:
        prompt = await plan.made()
        [offsets] = await token_offsets(state, body, [prompt], body.add_special_tokens)
        reply.send(200, _answer(state, request, body, prompt, offsets))

    return reader.serve(handle)


def _answer(
    state: RenderState, request: HttpRequest, body: ChatRequest, prompt: Prompt, offsets: Offsets | None
) -> bytes:
    request_id = public_id("chatcmpl-", request.headers, body.request_id)
    wanted, _ = wanted_tokens(body)
    made = recipe(state, body, 1 if body.n is None else body.n)
    tokens = room_for(state, made, (prompt,), wanted)
    answer = rendered(state, body, request.headers, made, request_id, prompt, tokens, offsets)
    if state.settings.reasoning_parser is not None and state.preparation is not None:
        kwargs, thinking = parser_kwargs(state, body)
        answer.reasoning_parser_kwargs = kwargs
        answer.reasoning_ended = not body.include_reasoning or state.preparation.reasoning_ended(
            prompt.token_ids, thinking
        )
    return encode(answer)
