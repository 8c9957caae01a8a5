"""How near load generators come to the truth: they load a server that knows when it sends, and both are printed.

    python bench/known_server.py --peers DIR [--concurrency 1000] [--prompts 3000] [--rounds 3] [--delay-ms 50]

The server sends a stream's first token so long after the last byte of a request, and each other one at a tick of 25 ms;
what it really took is its own mean and median. The clients are `fastfront bench serve` and `vllm-rs bench serve`, in
turn. DIR is what fetch_peers.sh filled; its qwen3 tokenizer makes the prompts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import uvloop

TICK_S = 0.025
TOKENS, PROMPT = 64, 512
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(fields: dict[str, Any]) -> bytes:
    """An event of a completion, as a chunk."""
    body = {"id": "c", "object": "text_completion", "created": 1, "model": "m", **fields}
    data = b"data: %b\n\n" % json.dumps(body, separators=(",", ":")).encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def choice(reason: str | None) -> dict[str, Any]:
    """What an event of one token holds."""
    return {"choices": [{"index": 0, "text": " a", "logprobs": None, "finish_reason": reason}]}


USAGE = {"prompt_tokens": PROMPT, "completion_tokens": TOKENS, "total_tokens": PROMPT + TOKENS}
TOKEN = event(choice(None))
LAST = event(choice("length")) + event({"choices": [], "usage": USAGE}) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Server:
    """Its streams, and the seconds that each first token took."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, delay: float) -> None:
        self.tokenizer = tokenizer
        self.delay = delay
        self.streams: set[Connection] = set()
        self.took: list[float] = []

    async def tick(self) -> None:
        """A token for every stream, again and again."""
        while True:
            await asyncio.sleep(TICK_S)
            for stream in list(self.streams):
                stream.step()

    def answer(self, path: str, body: bytes) -> Any:
        """What a client asks for before it begins."""
        if path.startswith("/tokenize"):
            ids = self.tokenizer.encode(json.loads(body)["prompt"]).ids
            return {"count": len(ids), "tokens": ids, "max_model_len": 40960}
        if path.startswith("/detokenize"):
            return {"prompt": self.tokenizer.decode(json.loads(body)["tokens"], skip_special_tokens=False)}
        return {"object": "list", "data": [{"id": "m", "object": "model", "root": "m", "max_model_len": 40960}]}


class Connection(asyncio.Protocol):
    """One request after the other, each whole before it counts."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.received = b""
        self.left = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.streams.discard(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"\r\ncontent-length:")
        size = int(length.partition(b"\r\n")[0] or 0)
        if not found or len(rest) < size:
            return
        self.received = rest[size:]
        path = head.split(b" ", 2)[1].decode()
        if path.startswith("/v1/completions"):
            asyncio.get_running_loop().call_later(self.server.delay, self.begin, time.monotonic())
            return
        body = json.dumps(self.server.answer(path, rest[:size])).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(head + body)

    def begin(self, asked: float) -> None:
        """The first token, of a request that was there whole at `asked`."""
        self.server.took.append(time.monotonic() - asked)
        self.transport.write(HEAD + TOKEN)
        self.left = TOKENS - 1
        self.server.streams.add(self)

    def step(self) -> None:
        """One more token."""
        self.left -= 1
        self.transport.write(TOKEN if self.left else LAST)
        if not self.left:
            self.server.streams.discard(self)


async def main(args: argparse.Namespace) -> None:
    """Serves, and lets each client load it."""
    model = args.peers / "models" / "qwen3"
    server = Server(tokenizers.Tokenizer.from_file(str(model / "tokenizer.json")), args.delay_ms / 1000)
    connection: Callable[[], Connection] = lambda: Connection(server)  # noqa: E731
    listening = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0, backlog=4096)
    ticking = asyncio.create_task(server.tick())
    port = listening.sockets[0].getsockname()[1]
    clients = {"fastfront": [sys.executable, "-m", "fastfront"], "vllm-rs": [str(args.peers / "vllm-rs")]}
    for _ in range(args.rounds):
        for name, command in clients.items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "result.json"
                words = [
                    "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", "--model", "m",
                    "--tokenizer", str(model), "--endpoint", "/v1/completions", "--num-prompts", str(args.prompts),
                    "--max-concurrency", str(args.concurrency), "--random-input-len", str(PROMPT),
                    "--random-output-len", str(TOKENS), "--ignore-eos", "--disable-tqdm", "--save-result",
                    "--result-filename", str(out),
                ]  # fmt: skip
                quiet = asyncio.subprocess.DEVNULL
                client = await asyncio.create_subprocess_exec(*command, *words, stdout=quiet, stderr=quiet)
                if await client.wait():
                    sys.exit(f"{name} failed")
                said = json.loads(out.read_text().strip().splitlines()[-1])
            truth, server.took = server.took, []
            print(
                f"{name:10s} TTFT ms: mean {said['mean_ttft_ms']:.1f} of {statistics.mean(truth) * 1000:.1f}, "
                f"median {said['median_ttft_ms']:.1f} of {statistics.median(truth) * 1000:.1f}, "
                f"failed {said['failed']}, {said['request_throughput']:.0f} requests/s",
                flush=True,
            )
    ticking.cancel()
    listening.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--prompts", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=50)
    uvloop.run(main(parser.parse_args()))
