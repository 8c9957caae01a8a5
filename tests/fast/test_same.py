"""The twins beside each other: whatever comes, both write the same bytes and give the same steps."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from fastfront.fast import load
from tests.fast.test_sse import Owner as OutboxOwner
from tests.fast.test_stream import ABC, LENGTH, STOP, Owner, feed, output, written

WORDS = ["<t>", "<", "</t>", "\n", " ", '"', "\\", "{", "}", "é", "a", "bc", "[[", "`"]


@pytest.fixture
def both() -> list[SimpleNamespace]:
    """Both twins."""
    try:
        return [SimpleNamespace(**load(native=native)) for native in (False, True)]
    except ImportError:
        pytest.skip("there is nothing to compare with: the compiled modules are not built")


class Played:
    """One stream that a random script plays; all that can be seen of it is in `seen`."""

    def __init__(self, fast: SimpleNamespace, rng: random.Random) -> None:
        self.fast = fast
        self.rng = rng
        self.seen: list[Any] = []
        self.flusher, self.owner, self.router = fast.Flusher(), OutboxOwner(), fast.Router()
        stop = rng.choice([None, ["bc"], ["\n\n", "<t>"], ["é"]])
        self.has_steps = rng.random() < 0.8
        self.stream = fast.Stream(
            Owner(),
            fast.Vocab(ABC, special=[0]),
            steps=self.has_steps,
            stop=None if stop is None else fast.Patterns(stop),
            include_stop=rng.random() < 0.5,
            min_tokens=rng.choice((0, 5, 50)),
            interval=rng.choice((1, 1, 3)),
            keep_ids=rng.random() < 0.5,
        )
        self.steps = 0
        outbox = fast.Outbox(self.flusher, self.owner, -1, 1 << 20, False)
        self.stream.to_outbox(outbox, b"<open>", b"[", (b"]",), 7)
        self.nest = fast.Nest("{")
        if self.has_steps and rng.random() < 0.5:
            self.begin()

    def play(self) -> list[Any]:
        rng = self.rng
        request_id = self.router.open(self.stream, "r")
        for _ in range(rng.randrange(30)):
            new = [byte for _ in range(rng.randrange(4)) for byte in rng.choice(WORDS).encode()]
            row = output(request_id, new, rng.choice((STOP, LENGTH)) if rng.random() < 0.04 else None)
            if rng.random() < 0.1:
                row += [None] * 4 + [{"num_cached_tokens": 1}]
            cut = [[row[0], new[:1]], [row[0], new[1:], *row[2:]]] if rng.random() < 0.1 else [row]
            steps = feed(self.router, *cut).steps
            seen = [(*s[1:5], s.raw is not None, list(s.token_ids), s.due) for s in steps]
            self.steps += len(steps)
            stream = self.stream
            ids = list(stream.token_ids or ())
            self.seen.append((written(self.flusher, self.owner), seen, stream.tokens, stream.given, ids))
            if stream.given != self.steps:
                raise AssertionError("a step was not counted")
            if steps and steps[-1].finish_reason >= 0:
                break
            if self.has_steps and steps and steps[-1].due and rng.random() < 0.6:
                self.begin()
        self.seen.append((self.nest.done, self.nest.take('}"}', 0)))
        return self.seen

    def begin(self) -> None:
        rng, fast = self.rng, self.fast
        markers = rng.choice([None, ["<t>", "</t>"], ["[[", "\n```"]])
        nested = rng.random() < 0.3
        stretch = fast.Stretch(
            rng.choice(["", "", "\n", "<", " <"]) if not nested else "",
            fast.Patterns(markers) if markers and not nested else None,
            rng.choice(["", "\n", " \n`"]) if not nested else "",
            rng.random() < 0.5,
            self.nest if nested else None,
            rng.random() < 0.3,
            rng.choice(["", "\n", "\n "]) if not nested else "",
            rng.choice(["", " \n"]) if not nested else "",
            lambda: self.seen.append("began"),
        )
        frame: Any = rng.choice([None, (b"(", (b")",)), (b"{", (b"|", b",", b"}"))])
        self.stream.begin_stretch(stretch, frame)


def test_streams_and_stretches(both: list[SimpleNamespace]) -> None:
    written_alone = 0
    for seed in range(3000):
        pure, native = (Played(fast, random.Random(seed)).play() for fast in both)
        assert pure == native, seed
        written_alone += sum(b"(" in row[0] for row in pure[:-1] if row != "began")
    assert written_alone > 2000  # else the script says little


def test_nests(both: list[SimpleNamespace]) -> None:
    rng = random.Random(5)
    for _ in range(3000):
        opening = rng.choice('"{[')
        pure, native = (fast.Nest(opening) for fast in both)
        for n in range(rng.randrange(1, 5)):
            text = (opening if n == 0 else "") + "".join(rng.choices('{}[]"\\aé🫠', k=rng.randrange(8)))
            at = rng.randrange(len(text) + 1) if n else 0
            assert pure.take(text, at) == native.take(text, at)
            assert pure.done == native.done


def test_heads(both: list[SimpleNamespace]) -> None:
    pure, native = (fast.HeadReader(140, 6, 50) for fast in both)
    parts = [b"GET", b" /a", b"?%b", b" HTTP/1.1\r\n", b"Host: x\r\n", b"a_-1:  b c\r\n", b"Content-Length: 049\r\n"]
    parts += [b"connection: Keep-Alive\r\n", b"\r\n"]
    rng = random.Random(7)
    plain = 0
    for _ in range(60_000):
        chosen = [part for part in parts if rng.random() < 0.98]
        if rng.random() < 0.2:
            chosen.insert(rng.randrange(len(chosen)), rng.choice(parts))
        data = bytearray(b"".join(chosen) + b"GET")
        if rng.random() < 0.5:
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(2)] = bytes([rng.randrange(256)])
        at = rng.choice((0, 0, 0, 3))
        assert pure.read(bytes(data), at) == native.read(bytes(data), at), data
        plain += pure.read(bytes(data), at) is not None
    assert plain > 10_000
