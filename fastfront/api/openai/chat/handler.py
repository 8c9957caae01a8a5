"""Serves POST /v1/chat/completions."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

from fastfront.api.openai.answer import send_best, send_stream, send_whole
from fastfront.api.openai.chat.plan import ChatPlan, chat_plans
from fastfront.api.openai.chat.response import ChatEvents, chat_body
from fastfront.api.openai.events import Stamp
from fastfront.api.openai.generation import build_generation
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.state import ApiState
from fastfront.api.work import settled
from fastfront.flow import Handler, HttpRequest, Prompt, Reply, Running, Work


def chat_completions(state: ApiState) -> Handler:
    """The handler."""

    def handle(request: HttpRequest, reply: Reply, plan: ChatPlan, messages: list[dict[str, Any]]) -> Work | Running:
        check_model(plan.body.model, state.pipeline.info.names, state.limits)
        if (dead := state.dead()) is not None:
            raise dead
        plan.check()
        prompt = plan.prompt.now(messages, request.body)
        asked = _Asked(request, reply, plan, messages)
        return _later(state, asked) if prompt is None else _answer(state, asked, prompt)

    return chat_plans(state, partial(ChatPlan, state)).serve(handle)


class _Asked(NamedTuple):
    """A checked request."""

    request: HttpRequest
    reply: Reply
    plan: ChatPlan
    messages: list[dict[str, Any]]


async def _later(state: ApiState, asked: _Asked) -> Running | None:
    """Where the prompt is too long for the event loop."""
    prompt = await asked.plan.prompt.made(asked.messages, asked.request.body)
    return await settled(_answer(state, asked, prompt))


def _answer(state: ApiState, asked: _Asked, prompt: Prompt) -> Work | Running:
    request, reply, plan, messages = asked
    request_id = public_id("chatcmpl-", request.headers, plan.body.request_id)
    read = plan.reading.of(prompt)
    generation = build_generation(state, plan.generation, request.headers, request_id, [prompt], read)
    stamp = Stamp(request_id, int(time.time()), state.pipeline.info.names[0], state.fingerprint)
    turn, beams = plan.turn(messages), plan.beams
    if not plan.body.stream:
        whole = partial(chat_body, stamp, prompt, turn, plan.wishes)
        if beams is not None:
            return send_best(state, reply, generation, beams, whole)
        return send_whole(state, reply, generation, whole)
    events = ChatEvents(stamp, prompt, turn, plan.wishes)
    if beams is not None:
        return send_best(state, reply, generation, beams, events.whole, stream=True)
    return send_stream(state, reply, generation, events)
