"""Serves POST /v1/completions."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

from fastfront.api.body import BodyReader
from fastfront.api.openai.answer import send_best, send_stream, send_whole
from fastfront.api.openai.beams import beam_options
from fastfront.api.openai.completions.prompt import Split, make_prompts, prompt_limits, prompts_now
from fastfront.api.openai.completions.request import CompletionRequest
from fastfront.api.openai.completions.response import CompletionEvents, Echo, completion_body, echo_events
from fastfront.api.openai.completions.validate import check_completion, split_prompts
from fastfront.api.openai.constraint import constrained_by
from fastfront.api.openai.events import Stamp
from fastfront.api.openai.generation import build_generation, stream_wishes
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.state import ApiState
from fastfront.api.work import settled
from fastfront.beams import BeamOptions
from fastfront.flow import Handler, HttpRequest, Prompt, Reply, Running, Work


def completions(state: ApiState) -> Handler:
    """The handler."""
    reader = BodyReader(CompletionRequest, state.settings.strict_request_fields)

    def handle(request: HttpRequest, reply: Reply, body: CompletionRequest) -> Work | Running:
        check_completion(body, state.settings, state.limits)
        split = split_prompts(body, state.limits)
        info = state.pipeline.info
        check_model(body.model, info.names, state.limits)
        if (dead := state.dead()) is not None:
            raise dead
        field = constrained_by(body.response_format)
        asked = _Asked(request, reply, body, field, beam_options(state, body, body.n, field))
        limits = prompt_limits(state, body)
        prompts = None if body.echo else prompts_now(state, body, split, limits)
        if prompts is None:
            return _later(state, asked, split, limits)
        return _answer(state, asked, prompts, None)

    return reader.serve(handle)


class _Asked(NamedTuple):
    """A checked request. `field` is where its constraint comes from."""

    request: HttpRequest
    reply: Reply
    body: CompletionRequest
    field: str
    beams: BeamOptions | None


async def _later(state: ApiState, asked: _Asked, split: Split, limits: Any) -> Running | None:
    """Where prompts, or their texts, are too long for the event loop."""
    prompts = await make_prompts(state, asked.body, split, limits)
    echo = await _echo(state, asked.body, prompts) if asked.body.echo else None
    return await settled(_answer(state, asked, prompts, echo))


def _answer(state: ApiState, asked: _Asked, prompts: list[Prompt], echo: Echo | None) -> Work | Running:
    request, reply, body, field, beams = asked
    request_id = public_id("cmpl-", request.headers, body.request_id)
    # with an echo alone the engine still has to run, for one token that nobody sees
    wanted = 16 if body.max_tokens is None else max(body.max_tokens, 1)
    n = 1 if beams is not None else body.n
    generation = build_generation(state, body, request.headers, request_id, prompts, n, wanted, constrained_by=field)
    stamp = Stamp(request_id, int(time.time()), state.pipeline.info.names[0], state.fingerprint)
    wishes = stream_wishes(body, state.settings)
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
    prompter = state.pipeline.prompter
    return Echo(
        [prompt.text if prompt.text is not None else await prompter.detokenize(prompt.token_ids) for prompt in prompts],
        alone,
    )
