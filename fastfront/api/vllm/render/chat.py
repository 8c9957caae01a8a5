"""Serves POST /v1/chat/completions/render."""

from __future__ import annotations

from typing import Any

import msgspec

from fastfront.api.openai.chat.plan import ChatPlan, chat_plans
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.generation import room_for
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.state import RenderState
from fastfront.api.vllm.render.answer import Offsets, check_renderable, encode, rendered, token_offsets
from fastfront.flow import Handler, HttpRequest, Prompt, Reply, Work

Messages = list[dict[str, Any]]


def render_chat(state: RenderState) -> Handler:
    """The handler."""

    def plan_of(body: ChatRequest) -> ChatPlan:
        check_renderable(body)
        return ChatPlan(state, body)

    def handle(request: HttpRequest, reply: Reply, plan: ChatPlan, messages: Messages) -> Work | None:
        check_model(plan.body.model, state.pipeline.info.names, state.limits)
        plan.check()
        prompt = None if plan.body.return_token_offsets else plan.prompt.now(messages, request.body)
        if prompt is None:
            return later(request, reply, plan, messages)
        reply.send(200, _answer(state, request, plan, prompt, None))
        return None

    async def later(request: HttpRequest, reply: Reply, plan: ChatPlan, messages: Messages) -> None:
        prompt = await plan.prompt.made(messages, request.body)
        [offsets] = await token_offsets(state, plan.body, [prompt], plan.body.add_special_tokens)
        reply.send(200, _answer(state, request, plan, prompt, offsets))

    return chat_plans(state, plan_of).serve(handle)


def _answer(state: RenderState, request: HttpRequest, plan: ChatPlan, prompt: Prompt, offsets: Offsets | None) -> bytes:
    body = plan.body
    request_id = public_id("chatcmpl-", request.headers, body.request_id)
    tokens = room_for(state, plan.recipe, (prompt,), plan.wanted)
    answer = rendered(state, body, request.headers, plan.recipe, request_id, prompt, tokens, offsets)
    answer.reasoning_ended, kwargs = plan.reading.for_engine(prompt.token_ids)
    answer.reasoning_parser_kwargs = None if kwargs is None else msgspec.Raw(kwargs)
    return encode(answer)
