"""Nanoseconds a token from what was read of an engine to bytes for clients, in this process, without sockets.

    python bench/micro/stream.py [--streams 1,64,512]

One id an output, one output a stream and message, a frame a message, 16 messages a read. Each stage is measured with
all that come before it; the budget of bench/README.md is made of the differences.
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


#: What is done: outputs of requests that nobody waits for are walked; streams without an outbox keep their text.
STAGES = ("walk", "+ route, detokenize", "+ frame, write", "+ scan for stop strings")
A_READ = 16
HEAD = (
    b'data: {"id":"cmpl-%016x","object":"text_completion","created":1796022840,"model":"m","choices":'
    b'[{"index":0,"text":"'
)
TAIL = b'","logprobs":null,"finish_reason":null}]}\n\n'


def build(streams: int, pieces: list[bytes], stage: str) -> tuple[fast.Router, fast.Flusher, list[bytes]]:
    """A router with open streams, and reads of messages that carry one token for each."""
    router, flusher = fast.Router(), fast.Flusher()
    vocab = fast.Vocab(pieces)
    stop = fast.Patterns(["STOP", "\n\nHuman:"]) if stage == STAGES[3] else None
    ids = []
    for n in range(streams):
        if stage == STAGES[0]:
            ids.append(f"cmpl-{n:016x}-{n:012x}")
            continue
        stream = fast.Stream(Owner(), vocab, stop=stop)
        if stage != STAGES[1]:
            outbox = fast.Outbox(flusher, Owner(), -1, 1 << 40, True)
            stream.to_outbox(outbox, b"", HEAD % n, [TAIL], 1)
        ids.append(router.open(stream, f"cmpl-{n:016x}"))
    rng = random.Random(1)
    reads = [b"".join(framed(ids, rng, len(pieces)) for _ in range(A_READ)) for _ in range(4)]
    return router, flusher, reads


def framed(ids: list[str], rng: random.Random, vocab_size: int) -> bytes:
    """A message as it comes over ZMTP."""
    message = msgspec.msgpack.encode([0, [[i, [rng.randrange(vocab_size)]] for i in ids], None, 1.0])
    return b"\2" + len(message).to_bytes(8, "big") + message


def measure(streams: int, pieces: list[bytes], stage: str) -> float:
    """The best round's nanoseconds a token."""
    best = float("inf")
    for _ in range(ROUNDS):
        router, flusher, reads = build(streams, pieces, stage)  # anew: text that nobody takes grows
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < 0.1:
            for data in reads:
                at, left = router.feed_read(data, 0, 1.0)
                assert at == len(data)
                assert left is None
                if stage in STAGES[2:]:
                    flusher.flush()
            count += len(reads) * A_READ * streams
        best = min(best, 1e9 * (time.perf_counter() - began) / count)
    return best


def main() -> None:
    """Prints a line per number of streams and stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="1,64,512")
    args = parser.parse_args()
    rng = random.Random(0)
    pieces = [bytes(rng.randrange(97, 123) for _ in range(rng.randrange(1, 9))) for _ in range(150_000)]
    for streams in map(int, args.streams.split(",")):
        for stage in STAGES:
            spent = measure(streams, pieces, stage)
            print(f"native={fast.NATIVE} streams={streams:4d} {stage:24s} {spent:6.0f} ns a token", flush=True)


if __name__ == "__main__":
    main()
