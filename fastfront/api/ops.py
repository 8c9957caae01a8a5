"""Routes for those who run the server: health, version, load, metrics."""

from __future__ import annotations

import msgspec

from fastfront.api.state import Metrics, RenderState
from fastfront.flow import Handler, HttpRequest, Reply


class Snapshot(msgspec.Struct, array_like=True):
    """What one process of a port has counted, for another one."""

    in_flight: int
    metrics: bytes


_read = msgspec.msgpack.Decoder(Snapshot).decode


def snapshot(state: RenderState) -> bytes:
    """What this process has counted, for another one."""
    counted = state.metrics.snapshot() if state.metrics is not None else b""
    return msgspec.msgpack.encode(Snapshot(state.in_flight, counted))


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
        others = sum(_read(other).in_flight for other in await state.others())
        reply.send(200, b'{"server_load":%d}' % (state.in_flight + others))

    return handle


def metrics(state: RenderState, own: Metrics) -> Handler:
    """Prometheus text of what all processes of this port have counted, in the form that the Accept header asks for."""

    async def handle(request: HttpRequest, reply: Reply) -> None:
        others = [_read(other).metrics for other in await state.others()]
        content_type, body = own.render(request.headers.get("accept", ""), others)
        reply.send(200, body, content_type)

    return handle
