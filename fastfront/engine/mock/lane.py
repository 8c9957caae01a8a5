"""The cheap path: plain requests whose every token is a random one, joined from bytes made when they were admitted.

A step costs about as much as joining its bytes, so that a benchmark measures the frontend and not this process.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastfront.engine.mock.request import Request
from fastfront.engine.rank.frames import Layout, pack

SIZE = 8192


class Ring:
    """Random tokens, drawn once from a seed and dealt round and round, as ids and as packed outputs' ends."""

    def __init__(self, vocab: int, seed: int, layout: Layout) -> None:
        draw = random.Random(seed)
        self.ids = [draw.randrange(min(100, vocab - 1), vocab) for _ in range(SIZE)]
        self.known = frozenset(self.ids)
        self._middle = [b"\x91" + pack(t) + layout.middle_tail for t in self.ids] * 2
        self._last = [b"\x91" + pack(t) + layout.last_tail for t in self.ids]
        self._cursor = 0

    def draw(self) -> int:
        """The next id."""
        self._cursor = (self._cursor + 1) % SIZE
        return self.ids[self._cursor]

    def deal(self, n: int) -> tuple[int, list[bytes]]:
        """The next `n` tokens as `[id]` and an output's tail, and the place of the first."""
        first = (self._cursor + 1) % SIZE
        self._cursor = (self._cursor + n) % SIZE
        dealt = self._middle[first : first + min(n, SIZE)]
        while len(dealt) < n:
            dealt += self._middle[(first + len(dealt)) % SIZE :][: n - len(dealt)]
        return first, dealt

    def last(self, place: int) -> bytes:
        """The token at `place` as the end of a request's last output."""
        return self._last[place % SIZE]


class Plain(NamedTuple):
    """One running request of a lane: `serial` tells its place; it gives tokens in the steps `start` + 1 to `end`."""

    serial: int
    request: Request
    start: int
    end: int
    middle: bytes
    last: bytes


#: Makes a request's first output whole, from its token and whether it is the last one too.
Opening = Callable[[Plain, int, bool], bytes]


class Lane:
    """The plain requests of one client; `opening` is needed only where first outputs differ from others."""

    def __init__(self, ring: Ring, layout: Layout, opening: Opening | None = None) -> None:
        self.members: dict[str, Plain] = {}
        self._ring = ring
        self._layout = layout
        self._opening = opening
        self._fresh: list[Plain] = []
        self._serial = 0
        self._serials: list[int] = []
        self._heads: list[bytes] = []
        self._due: defaultdict[int, list[Plain]] = defaultdict(list)

    def add(self, request: Request, step: int, limit: int) -> None:
        """Gives `request` its first token in the step after `step`, and `limit` of them."""
        name = pack(request.id)
        self._serial += 1
        plain = Plain(self._serial, request, step, step + limit, self._layout.middle + name, self._layout.last + name)
        self.members[request.id] = plain
        self._serials.append(plain.serial)
        self._heads.append(plain.middle)
        self._due[plain.end].append(plain)
        if self._opening:
            self._fresh.append(plain)

    def remove(self, request_id: str) -> Plain | None:
        """Forgets a request; None if it is not here."""
        plain = self.members.pop(request_id, None)
        if plain is not None:
            place = self._place(plain)
            del self._serials[place], self._heads[place]
        return plain

    def _place(self, plain: Plain) -> int:
        return bisect_left(self._serials, plain.serial)

    def step(self, step: int, pieces: list[bytes]) -> Sequence[Plain]:
        """One token for every member: adds two pieces for each to `pieces`; gives those who have ended."""
        n = len(self._heads)
        base = len(pieces)
        first, dealt = self._ring.deal(n)
        pieces += self._heads
        pieces += dealt
        pieces[base::2] = self._heads
        pieces[base + 1 :: 2] = dealt
        if self._fresh:
            self._open(step, first, base, pieces)
        if step not in self._due:
            return ()
        done = [p for p in self._due.pop(step) if self.members.get(p.request.id) is p]
        for plain in done:
            if plain.start + 1 < step or not self._opening:
                place = self._place(plain)
                pieces[base + 2 * place] = plain.last
                pieces[base + 2 * place + 1] = self._ring.last(first + place)
        for plain in done:
            self.remove(plain.request.id)
        return done

    def _open(self, step: int, first: int, base: int, pieces: list[bytes]) -> None:
        """Makes the outputs of those who have their first one."""
        for plain in self._fresh:
            if self._opening and self.members.get(plain.request.id) is plain:
                place = self._place(plain)
                token = self._ring.ids[(first + place) % SIZE]
                at = base + 2 * place
                pieces[at : at + 2] = self._opening(plain, token, plain.end == step), b""
        self._fresh.clear()
