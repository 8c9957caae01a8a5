"""Serves POST /v1/completions/render, which answers a list."""

from __future__ import annotations

from fastfront.api.openai.completions.plan import CompletionPlan, completion_plans
from fastfront.api.openai.completions.prompt import Split, make_prompts, prompts_now
from fastfront.api.openai.completions.request import CompletionRequest, Prompts
from fastfront.api.openai.completions.validate import split_prompts
from fastfront.api.openai.generation import max_tokens, room_for
from fastfront.api.openai.identity import check_model, public_id
from fastfront.api.state import RenderState
from fastfront.api.vllm.render.answer import Offsets, check_renderable, encode, rendered, token_offsets
from fastfront.flow import Handler, HttpRequest, Prompt, Reply, Work


def render_completions(state: RenderState) -> Handler:
    """The handler."""

    def plan_of(body: CompletionRequest) -> CompletionPlan:
        check_renderable(body)
        return CompletionPlan(state, body)

    def handle(request: HttpRequest, reply: Reply, plan: CompletionPlan, prompt: Prompts) -> Work | None:
        split = split_prompts(prompt, state.limits)
        check_model(plan.body.model, state.pipeline.info.names, state.limits)
        offsets = plan.body.return_token_offsets
        prompts = prompts_now(state, plan.body, split, plan.limits) if not offsets else None
        if prompts is None:
            return later(request, reply, plan, split)
        reply.send(200, _answer(state, request, plan, prompts, [None] * len(prompts)))
        return None

    async def later(request: HttpRequest, reply: Reply, plan: CompletionPlan, split: Split) -> None:
        prompts = await make_prompts(state, plan.body, split, plan.limits)
        offsets = await token_offsets(state, plan.body, prompts, plan.body.add_special_tokens)
        reply.send(200, _answer(state, request, plan, prompts, offsets))

    return completion_plans(state, plan_of).serve(handle)


def _answer(
    state: RenderState,
    request: HttpRequest,
    plan: CompletionPlan,
    prompts: list[Prompt],
    offsets: list[Offsets | None],
) -> bytes:
    body = plan.body
    request_id = public_id("cmpl-", request.headers, body.request_id)
    room_for(state, plan.recipe, prompts, plan.wanted)
    answers = [
        rendered(
            state,
            body,
            request.headers,
            plan.recipe,
            request_id if len(prompts) == 1 else f"{request_id}-{at}",
            prompt,
            max_tokens(state, len(prompt.token_ids), plan.wanted),
            offsets[at],
        )
        for at, prompt in enumerate(prompts)
    ]
    return encode(answers)
