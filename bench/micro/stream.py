"""Nanoseconds a token from an engine's message to bytes in the outboxes, in this process, without sockets.

    python bench/micro/stream.py [--streams 1,64,512]

One id an output, one output a stream and message. The budget of bench/README.md is made of these figures.
"""

from __future__ import annotations

import argparse
import random
import time

import msgspec

import fastfront.fast as fast

ROUNDS = 7


class Owner:
    """Takes what an outbox hands on and throws it away."""

    def outbox_blocked(self, data: bytes) -> None:
        """Nothing is kept."""


def build(streams: int, pieces: list[bytes]) -> tuple[fast.Router, fast.Flusher, list[bytes]]:
    """A router with open streams, and messages that carry one token for each."""
    router, flusher = fast.Router(), fast.Flusher()
    vocab = fast.Vocab(pieces)
    ids = []
    for n in range(streams):
        stream = fast.Stream(Owner(), vocab)
        outbox = fast.Outbox(flusher, Owner(), -1, 1 << 40, True)
        head = b'data: {"id":"cmpl-%016x","object":"text_completion","created":1796022840,"model":"m","choices":' % n
        tail = b'","logprobs":null,"finish_reason":null}]}\n\n'
        stream.to_outbox(outbox, b"", head + b'[{"index":0,"text":"', [tail], 1)
        ids.append(router.open(stream, f"cmpl-{n:016x}"))
    rng = random.Random(1)
    messages = [
        msgspec.msgpack.encode([0, [[i, [rng.randrange(len(pieces))]] for i in ids], None, 1.0]) for _ in range(64)
    ]
    return router, flusher, messages


def measure(streams: int, pieces: list[bytes]) -> float:
    """The best round's nanoseconds a token."""
    router, flusher, messages = build(streams, pieces)
    best = float("inf")
    for _ in range(ROUNDS):
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < 0.2:
            for message in messages:
                router.feed(message, 1.0)
            flusher.flush()
            count += len(messages) * streams
        best = min(best, 1e9 * (time.perf_counter() - began) / count)
    return best


def main() -> None:
    """Prints a line per number of streams."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="1,64,512")
    args = parser.parse_args()
    rng = random.Random(0)
    pieces = [bytes(rng.randrange(97, 123) for _ in range(rng.randrange(1, 9))) for _ in range(150_000)]
    for streams in map(int, args.streams.split(",")):
        print(f"native={fast.NATIVE} streams={streams}: {measure(streams, pieces):.0f} ns a token")


if __name__ == "__main__":
    main()
