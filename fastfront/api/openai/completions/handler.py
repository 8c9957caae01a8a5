"""Serves POST /v1/completions."""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from fastfront.api.openai.answer import send_best, send_stream, send_whole
from fastfront.api.openai.completions.plan import CompletionPlan, completion_plans
from fastfront.api.openai.completions.prompt import Split, make_prompts, prompts_now
from fastfront.api.openai.completions.request import CompletionRequest, Prompts
from fastfront.api.openai.completions.response import CompletionEvents, Echo, completion_body, echo_events
from fastfront.api.openai.completions.validate import split_prompts
from fastfront.api.openai.events import Stamp
from fastfront.api.openai.generation import build_generation
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.state import ApiState
from fastfront.api.work import settled
from fastfront.flow import Handler, HttpRequest, Prompt, Reply, Running, Work


def completions(state: ApiState) -> Handler:
    """The handler."""

    def handle(request: HttpRequest, reply: Reply, plan: CompletionPlan, prompt: Prompts) -> Work | Running:
        split = split_prompts(prompt, state.limits)
        check_model(plan.body.model, state.pipeline.info.names, state.limits)
        if (dead := state.dead()) is not None:
            raise dead
        plan.check()
        prompts = None if plan.body.echo else prompts_now(state, plan.body, split, plan.limits)
        asked = _Asked(request, reply, plan)
        return _later(state, asked, split) if prompts is None else _answer(state, asked, prompts, None)

    return completion_plans(state, partial(CompletionPlan, state)).serve(handle)


class _Asked(NamedTuple):
    """A checked request."""

    request: HttpRequest
    reply: Reply
    plan: CompletionPlan


async def _later(state: ApiState, asked: _Asked, split: Split) -> Running | None:
    """Where prompts, or their texts, are too long for the event loop."""
    plan = asked.plan
    prompts = await make_prompts(state, plan.body, split, plan.limits)
    echo = await _echo(state, plan.body, prompts) if plan.body.echo else None
    return await settled(_answer(state, asked, prompts, echo))


def _answer(state: ApiState, asked: _Asked, prompts: list[Prompt], echo: Echo | None) -> Work | Running:
    request, reply, plan = asked
    body, beams, wishes = plan.body, plan.beams, plan.wishes
    request_id = public_id("cmpl-", request.headers, body.request_id)
    generation = build_generation(state, plan.generation, request.headers, request_id, prompts)
    stamp = Stamp(request_id, int(time.time()), state.pipeline.info.names[0], state.fingerprint)
    if not body.stream:
        whole = partial(completion_body, stamp, prompts, body.n, wishes, echo)
        if beams is not None:
            return send_best(state, reply, generation, beams, whole)
        return send_whole(state, reply, generation, whole)
    events = CompletionEvents(stamp, prompts, body.n, wishes, echo)
    if echo is not None and echo.alone:
        return send_whole(state, reply, generation, partial(echo_events, events), stream=True)
    return send_stream(state, reply, generation, events)


async def _echo(state: ApiState, body: CompletionRequest, prompts: list[Prompt]) -> Echo:
    """The prompts' texts. Where ids are returned they stand for the prompt, and vLLM does not repeat its text."""
    alone = body.max_tokens == 0
    if body.return_token_ids:
        return Echo([""] * len(prompts), alone)
    return Echo([await _text(state, prompt) for prompt in prompts], alone)


async def _text(state: ApiState, prompt: Prompt) -> str:
    return prompt.text if prompt.text is not None else await state.pipeline.prompter.detokenize(list(prompt.token_ids))
