"""Nanoseconds a token of a parsed chat, from an engine's message to bytes in the outboxes, in this process.

    python bench/micro/parsed.py [--streams 64]

Each text is of one kind, so that the parser leaves it to the stream (`stretch`), as the pipeline does; `steps` is the
same with every token read by the parser in Python. One id an output, one output a stream and message.
"""

from __future__ import annotations

import argparse
import time

import msgspec
from stream import Owner

import fastfront.fast as fast
from fastfront.api.openai.chat.response import ChatEvents, Turn
from fastfront.api.openai.events import Stamp, Wishes
from fastfront.flow import Delta, Prompt
from fastfront.parse.machine import Machine
from fastfront.parse.registry import choose

ROUNDS = 5
TOKENS = 128
TOOLS = [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]
#: What comes before the tokens that are measured: (tool parser, text).
KINDS = {
    "reasoning": ("hermes", "so "),
    "content": ("hermes", "so </think>then "),
    "JSON arguments": ("hermes", 'so </think><tool_call>{"name": "f", "arguments": {"a": "'),
    "XML argument": ("qwen3_coder", "so </think><tool_call><function=f><parameter=a>text"),
}


class Choice:
    """One stream and its parser, joined as the pipeline joins them."""

    def __init__(self, outbox: fast.Outbox, vocab: fast.Vocab, format: ChatEvents, tool: str, leaves: bool) -> None:
        self.machine = Machine(choose(tool, "qwen3").with_calls, TOOLS, True)
        self.format = format
        self.outbox = outbox
        self.leaves = leaves
        self.stream = fast.Stream(self, vocab, steps=True)
        self.stream.to_outbox(outbox, b"", b"", (b"",), 1)

    def on_step(self, step: fast.Step) -> None:
        """Reads what the stream handed over."""
        events = self.machine.feed(step.text)
        self.outbox.append(self.format.delta(Delta(0, step.text, 1, self.stream.tokens, None, None, None, events)))
        if self.leaves and (begun := self.machine.stretch()) is not None:
            event, stretch = begun
            self.stream.begin_stretch(stretch, self.format.frame(0, 1, event))

    def on_error(self, error: Exception) -> None:
        """There is no engine that could fail."""


def measure(streams: int, tool: str, before: str, leaves: bool) -> float:
    """The best round's nanoseconds a token."""
    vocab = fast.Vocab([before.encode(), b" more", b"over", b" words", b"."])
    format = ChatEvents(Stamp("chatcmpl-0123456789abcdef", 1, "m", "f"), Prompt([1]), Turn(), Wishes())
    best = float("inf")
    for _ in range(ROUNDS):
        router, flusher = fast.Router(), fast.Flusher()
        ids = []
        for n in range(streams):
            outbox = fast.Outbox(flusher, Owner(), -1, 1 << 40, True)
            ids.append(router.open(Choice(outbox, vocab, format, tool, leaves).stream, f"chatcmpl-{n:016x}"))
        first, *messages = (
            msgspec.msgpack.encode([0, [[i, [token]] for i in ids], None, 1.0])
            for token in [0, *(1 + n % 4 for n in range(TOKENS))]
        )
        feed(router, first)
        began = time.perf_counter()
        for message in messages:
            feed(router, message)
        best = min(best, 1e9 * (time.perf_counter() - began) / TOKENS / streams)
    return best


def feed(router: fast.Router, message: bytes) -> None:
    """What the engine's link does with a message."""
    for step in router.feed(message, 1.0).steps:
        owner = step.stream.owner
        assert owner is not None
        owner.on_step(step)


def main() -> None:
    """Prints a line per kind of text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    streams = parser.parse_args().streams
    for kind, (tool, before) in KINDS.items():
        stretch, steps = (measure(streams, tool, before, leaves) for leaves in (True, False))
        print(f"native={fast.NATIVE} {kind}: stretch {stretch:.0f} ns a token, steps {steps:.0f}")


if __name__ == "__main__":
    main()
