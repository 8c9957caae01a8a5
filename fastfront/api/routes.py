"""Every route that is served, and by what."""

from __future__ import annotations

from fastfront.api import ops
from fastfront.api.openai.chat.handler import chat_completions
from fastfront.api.openai.completions.handler import completions
from fastfront.api.openai.models import models
from fastfront.api.state import ApiState, RenderState
from fastfront.api.vllm.derender.chat import derender_chat
from fastfront.api.vllm.derender.completions import derender_completions
from fastfront.api.vllm.render.chat import render_chat
from fastfront.api.vllm.render.completions import render_completions
from fastfront.api.vllm.tokenize import detokenize, tokenize
from fastfront.api.vllm.tokenizer_info import tokenizer_info
from fastfront.flow import Handler

Routes = list[tuple[str, str, Handler]]


def routes(state: ApiState) -> Routes:
    """Method, path and handler of each."""
    return [
        ("POST", "/v1/chat/completions", chat_completions(state)),
        ("POST", "/v1/completions", completions(state)),
        *render_routes(state),
    ]


def render_routes(state: RenderState) -> Routes:
    """Those that need no engine."""
    health = ops.health(state)
    table: Routes = [
        ("POST", "/v1/chat/completions/render", render_chat(state)),
        ("POST", "/v1/completions/render", render_completions(state)),
        ("POST", "/v1/chat/completions/derender", derender_chat(state)),
        ("POST", "/v1/completions/derender", derender_completions(state)),
        ("GET", "/v1/models", models(state)),
        ("POST", "/tokenize", tokenize(state)),
        ("POST", "/detokenize", detokenize(state)),
        ("GET", "/health", health),
        ("GET", "/ping", health),
        ("POST", "/ping", health),
        ("GET", "/version", ops.version(state)),
        ("GET", "/load", ops.load(state)),
    ]
    if state.metrics is not None:
        table.append(("GET", "/metrics", ops.metrics(state, state.metrics)))
    if state.settings.enable_tokenizer_info_endpoint:
        table.append(("GET", "/tokenizer_info", tokenizer_info(state)))
    return table
