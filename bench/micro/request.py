"""Microseconds a request costs beside the kernel: streamed answers of 128 tokens, in one process without sockets.

    python bench/micro/request.py MODEL_FOLDER [options of `fastfront serve`]

Requests go into connections as bytes; engines are played (64 streams, a token each a message, 32 messages a read), and
the answers' bytes are thrown away. `in` is all until the engine has the request, `out` all from its tokens to the last
byte. With `py-spy record -- python bench/micro/request.py ...` it tells which stage takes what.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import socket
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import uvloop

from fastfront import app
from fastfront.bound import bind
from fastfront.cli.build import serve_config
from fastfront.engine.engine_sockets import open_sockets
from fastfront.http.protocol import Connection
from fastfront.settle import settle
from fastfront.workers import Worker

STREAMS, TOKENS, PROMPT, A_READ = 64, 128, 512, 32
ROUNDS, BATCHES = 8, 20
encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class Nowhere:
    """A transport whose bytes go nowhere, and an engine's connection that keeps what it is sent."""

    reason = ""

    def __init__(self) -> None:
        self._sock = socket.socket()
        self.sent: list[Any] = []
        self.last = b""

    def get_extra_info(self, name: str) -> Any:
        """With TLS the outbox hands its bytes here instead of to a socket."""
        return {"socket": self._sock, "peername": ("127.0.0.1", 1), "sslcontext": True}.get(name)

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def is_closing(self) -> bool:
        """It never closes."""
        return False

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """There is no buffer."""

    def abort(self) -> None:
        """There is nothing to end."""

    def close(self) -> None:
        """There is nothing to close."""

    def write(self, data: bytes) -> None:
        """Keeps the last bytes only."""
        self.last = data

    def send(self, identity: bytes, frames: Any) -> bool:
        """A message to the engine."""
        self.sent.append(frames)
        return True


async def started(model: str, options: list[str]) -> tuple[Any, Nowhere]:
    """A serving process whose engine is played, and what the engine gets."""
    outside = ["--data-parallel-size-local", "0", "--data-parallel-rpc-port", "0", "--port", "0"]
    config = serve_config([model, "--served-model-name", "m", *outside, *options])
    config = settle(config)
    stop = asyncio.get_running_loop().create_future()
    process = app.App(config, bind(config.http), open_sockets(config.engine, 1), Worker(), stop)
    attach, engine = app.attach, Nowhere()

    def played(*args: Any) -> Any:
        attached = attach(*args)

        async def ready(timeout: float) -> Any:  # noqa: ASYNC109  (as the attachment has it)
            attached.link.info = SimpleNamespace(max_model_len=40960, vllm_version="0", dtype="none")
            return attached.link.info

        attached.wait_ready = ready
        return attached

    app.attach = played
    await process.start()
    process._engines.link._inputs = engine
    return process, engine


def requests(process: Any, api: str) -> list[bytes]:
    """As clients send them, each of another text and with an id of its own."""
    tokenizer = process._prompter.tokenizer
    out = []
    for n in range(STREAMS * BATCHES):
        text = tokenizer.decode([1000 + (n + i) % 900 for i in range(PROMPT)])
        asked = {"messages": [{"role": "user", "content": text}]} if api == "chat/completions" else {"prompt": text}
        options = {"stream": True, "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0.0}
        body = json.dumps({"model": "m", **asked, **options}).encode()
        head = f"POST /v1/{api} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-request-id: r-{n}\r\n"
        out.append(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return out


def outputs(ids: list[str]) -> list[list[bytes]]:
    """Messages of one token for each stream; the last ends them all."""
    steps = [[[name, [1000 + (k * 7 + j) % 5000]] for j, name in enumerate(ids)] for k in range(TOKENS)]
    steps[-1] = [[*output, None, None, None, 1] for output in steps[-1]]
    return [[encode([0, step, None, 1.0])] for step in steps]


async def measure(process: Any, engine: Nowhere, bodies: list[bytes]) -> tuple[float, float]:
    """Microseconds a request, in and out; the best round."""
    link, peer = process._engines.link, Nowhere()
    connections = [(Connection(process._server), Nowhere()) for _ in range(STREAMS)]
    for connection, transport in connections:
        connection.connection_made(transport)
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        spent = [0, 0]
        for at in range(0, len(bodies), STREAMS):
            engine.sent.clear()
            began = time.process_time_ns()
            for (connection, _), data in zip(connections, bodies[at:], strict=False):
                connection.data_received(data)
            while len(engine.sent) < STREAMS:  # noqa: ASYNC110  (only turns of the loop are wanted)
                await asyncio.sleep(0)
            spent[0] += time.process_time_ns() - began
            messages = outputs([decode(frames[1])[0] for frames in engine.sent])
            began = time.process_time_ns()
            for read in range(0, TOKENS, A_READ):
                link._on_outputs(peer, messages[read : read + A_READ])
                await asyncio.sleep(0)
            while any(connection.busy for connection, _ in connections):  # noqa: ASYNC110
                await asyncio.sleep(0)
            spent[1] += time.process_time_ns() - began
            assert all(transport.last.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for _, transport in connections)
        best = [min(pair) for pair in zip(best, spent, strict=True)]
    for connection, _ in connections:
        connection.connection_lost(None)
    return best[0] / len(bodies) / 1000, best[1] / len(bodies) / 1000


async def main() -> None:
    """Prints a line for each API."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    arguments, options = parser.parse_known_args()
    logging.disable(logging.WARNING)
    process, engine = await started(arguments.model, options)
    for api in ("completions", "chat/completions"):
        come, go = await measure(process, engine, requests(process, api))
        print(f"{api:17s} in {come:6.1f} us, out {go:6.1f} us a request")
    await process.close()


if __name__ == "__main__":
    uvloop.run(main())
