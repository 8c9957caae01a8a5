"""Routes for those who run the server: health, version, load, metrics."""

from __future__ import annotations

import msgspec

from fastfront.api.state import Metrics, RenderState
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
    """How many requests are being generated, by all processes of this port."""

    async def handle(request: HttpRequest, reply: Reply) -> None:
        others = sum(_read_told(told).in_flight for told in await state.others())
        reply.send(200, b'{"server_load":%d}' % (state.in_flight + others))

    return handle


def metrics(state: RenderState, own: Metrics) -> Handler:
    """Prometheus text of what all processes of this port have counted, in the form that the Accept header asks for."""

    async def handle(request: HttpRequest, reply: Reply) -> None:
        others = [_read_told(told).metrics for told in await state.others()]
        content_type, body = own.render(request.headers.get("accept", ""), others)
        reply.send(200, body, content_type)

    return handle


class Told(msgspec.Struct, array_like=True):
    """What one process tells the others of itself."""

    in_flight: int
    metrics: bytes


_read_told = msgspec.msgpack.Decoder(Told).decode


def tell(state: RenderState) -> bytes:
    """What this process tells the others of itself."""
    counted = state.metrics.snapshot() if state.metrics is not None else b""
    return msgspec.msgpack.encode(Told(state.in_flight, counted))
