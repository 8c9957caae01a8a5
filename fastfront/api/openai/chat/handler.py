"""Serves POST /v1/chat/completions."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

from fastfront.api.body import BodyReader
from fastfront.api.openai.answer import send_best, send_stream, send_whole
from fastfront.api.openai.beams import beam_options
from fastfront.api.openai.chat.prepare import prepare
from fastfront.api.openai.chat.prompt import PromptPlan, plan_prompt
from fastfront.api.openai.chat.reading import call_rules, read_by_parser
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.chat.response import ChatEvents, Turn, chat_body
from fastfront.api.openai.chat.validate import check_chat, wanted_tokens
from fastfront.api.openai.events import Stamp
from fastfront.api.openai.generation import build_generation, stream_wishes
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.state import ApiState
from fastfront.api.work import settled
from fastfront.beams import BeamOptions
from fastfront.flow import Handler, HttpRequest, Prompt, Reply, Running, Work


def chat_completions(state: ApiState) -> Handler:
    """The handler."""
    reader = BodyReader(ChatRequest, state.settings.strict_request_fields)

    def handle(request: HttpRequest, reply: Reply, body: ChatRequest) -> Work | Running:
        check_chat(body, state.settings, state.limits)
        info = state.pipeline.info
        check_model(body.model, info.names, state.limits)
        if (dead := state.dead()) is not None:
            raise dead
        field = prepare(state, body)
        n = 1 if body.n is None else body.n
        asked = _Asked(request, reply, body, n, field, beam_options(state, body, n, field))
        plan = plan_prompt(state, body, request.body)
        prompt = plan.now()
        return _later(state, asked, plan) if prompt is None else _answer(state, asked, prompt)

    return reader.serve(handle)


class _Asked(NamedTuple):
    """A checked request. `field` is where its constraint comes from."""

    request: HttpRequest
    reply: Reply
    body: ChatRequest
    n: int
    field: str
    beams: BeamOptions | None


async def _later(state: ApiState, asked: _Asked, plan: PromptPlan) -> Running | None:
    """Where the prompt is too long for the event loop."""
    return await settled(_answer(state, asked, await plan.made()))


def _answer(state: ApiState, asked: _Asked, prompt: Prompt) -> Work | Running:
    request, reply, body, n, field, beams = asked
    request_id = public_id("chatcmpl-", request.headers, body.request_id)
    wanted, _ = wanted_tokens(body)
    n = 1 if beams is not None else n
    generation = build_generation(state, body, request.headers, request_id, [prompt], n, wanted, constrained_by=field)
    generation = read_by_parser(state, body, prompt, generation)
    stamp = Stamp(request_id, int(time.time()), state.pipeline.info.names[0], state.fingerprint)
    turn = _turn(state, body)
    wishes = stream_wishes(body, state.settings)
    if not body.stream:
        whole = partial(chat_body, stamp, prompt, turn, wishes)
        if beams is not None:
            return send_best(state, reply, generation, beams, whole)
        return send_whole(state, reply, generation, whole)
    events = ChatEvents(stamp, prompt, turn, wishes)
    if beams is not None:
        return send_best(state, reply, generation, beams, events.whole, stream=True)
    return send_stream(state, reply, generation, events)


def _turn(state: ApiState, body: ChatRequest) -> Turn:
    """Who speaks: with no generation prompt the last message's role goes on."""
    last = body.messages[-1]
    role = state.settings.response_role if body.add_generation_prompt else str(last.get("role"))
    echo = _plain_text(last.get("content")) if body.echo and last.get("role") == role else ""
    return Turn(role, echo, bool(body.return_prompt_text), call_rules(body))


def _plain_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else str(part.get("text", "")) for part in content)
    return content or ""
