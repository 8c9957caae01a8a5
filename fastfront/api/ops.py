"""Routes for those who run the server: health, version, load, metrics."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fastfront.api.state import RenderState
from fastfront.flow import Handler, HttpRequest, Reply


def health(state: RenderState) -> Handler:
    """200 while the engine lives, 503 when it is dead; both empty. Also /ping."""

    def handle(request: HttpRequest, reply: Reply) -> None:
        reply.send(200 if state.dead() is None else 503, content_type=None)

    return handle


def version(state: RenderState) -> Handler:
    """vLLM's version, as its clients expect it, then ours and whether the compiled modules are in use."""
    body = msgspec.json.encode(
        {"version": state.engine_version, "fastfront_version": state.version, "native": state.native}
    )

    def handle(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, body)

    return handle


def load(state: RenderState) -> Handler:
    """How many requests are being generated."""

    def handle(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, b'{"server_load":%d}' % state.in_flight)

    return handle


def metrics(render: Callable[[str], tuple[str, bytes]]) -> Handler:
    """Prometheus text, in the form that the Accept header asks for."""

    def handle(request: HttpRequest, reply: Reply) -> None:
        content_type, body = render(request.headers.get("accept", ""))
        reply.send(200, body, content_type)

    return handle
