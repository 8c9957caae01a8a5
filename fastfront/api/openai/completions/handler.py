"""Serves POST /v1/completions."""

from __future__ import annotations

import time
from functools import partial

from fastfront.api.body import BodyReader
from fastfront.api.openai.answer import send_collected, send_stream, send_whole
from fastfront.api.openai.beams import beam_options
from fastfront.api.openai.completions.prompt import make_prompts, prompt_limits
from fastfront.api.openai.completions.request import CompletionRequest
from fastfront.api.openai.completions.response import CompletionEvents, Echo, completion_body, echo_events
from fastfront.api.openai.completions.validate import check_completion, split_prompts
from fastfront.api.openai.constraint import constrained_by
from fastfront.api.openai.events import Stamp
from fastfront.api.openai.generation import build_generation, stream_wishes
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.state import ApiState
from fastfront.flow import Handler, HttpRequest, Prompt, Reply


def completions(state: ApiState) -> Handler:
    """The handler."""
    reader = BodyReader(CompletionRequest, state.settings.strict_request_fields)

    async def handle(request: HttpRequest, reply: Reply, body: CompletionRequest) -> None:
        check_completion(body, state.settings, state.limits)
        split = split_prompts(body, state.limits)
        info = state.pipeline.info
        check_model(body.model, info.names, state.limits)
        if (dead := state.dead()) is not None:
            raise dead
        field = constrained_by(body.response_format)
        beams = beam_options(state, body, body.n, field)
        prompts = await make_prompts(state, body, split, prompt_limits(state, body))
        echo = await _echo(state, body, prompts) if body.echo else None
        request_id = public_id("cmpl-", request.headers, body.request_id)
        # with an echo alone the engine still has to run, for one token that nobody sees
        wanted = 16 if body.max_tokens is None else max(body.max_tokens, 1)
        n = 1 if beams is not None else body.n
        generation = build_generation(state, body, request.headers, request_id, prompts, n, wanted)
        generation = generation._replace(constrained_by=field)
        stamp = Stamp(request_id, int(time.time()), info.names[0], state.fingerprint)
        wishes = stream_wishes(body, state.settings)
        if not body.stream:
            whole = partial(completion_body, stamp, prompts, body.n, wishes, echo)
            await send_whole(state, reply, generation, whole, beams)
            return
        events = CompletionEvents(stamp, prompts, body.n, wishes, echo)
        if echo is not None and echo.alone:
            await send_collected(state, reply, generation, partial(echo_events, events))
        else:
            await send_stream(state, reply, generation, events)

    return reader.serve(handle)


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
