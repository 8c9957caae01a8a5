"""Finds the first of several strings in a text that comes in pieces. Pure twin of `scan_native.pyx`.

Each pattern runs its own Knuth-Morris-Pratt automaton over the text's UTF-8 bytes; the longest live prefix is all that
has to be held back. Within one piece the match that starts first wins, of those the one that ends first.
"""

from __future__ import annotations

from collections.abc import Sequence


class Patterns:
    """Compiled patterns, shared by every scanner that looks for them. Empty patterns raise ValueError."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self.encoded = [pattern.encode() for pattern in patterns]
        if not all(self.encoded):
            raise ValueError("a pattern must not be empty")
        self.fails = [_fail_table(pattern) for pattern in self.encoded]

    def __len__(self) -> int:
        return len(self.patterns)


class Scanner:
    """Scans one text."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        self._states = [0] * len(patterns)
        self._held = b""

    def feed(self, text: str, armed: bool = True) -> tuple[str, int, str]:
        """(text that is certain, matched pattern or -1, rest after the match).

        With a match the certain text ends where it starts, and nothing stays held. An unarmed scanner passes matches.
        """
        piece = text.encode()
        found, end = self.scan(piece, armed)
        data = self._held + piece
        if found >= 0:
            stop = len(self._held) + end
            start = stop - len(self.patterns.encoded[found])
            self.reset()
            return data[:start].decode(), found, data[stop:].decode()
        cut = len(data) - max(self._states, default=0)
        self._held = data[cut:]
        return data[:cut].decode(), -1, ""

    def finish(self) -> str:
        """What is held, at the end of the text."""
        held = self._held.decode()
        self.reset()
        return held

    def reset(self) -> None:
        """Forgets all that was seen."""
        self._states = [0] * len(self.patterns)
        self._held = b""

    def scan(self, piece: bytes, armed: bool) -> tuple[int, int]:
        """(matched pattern or -1, offset in `piece` of the match's end)."""
        best, best_start, best_end = -1, 0, 0
        states = self._states
        for at, byte in enumerate(piece, 1):
            live_start = len(piece)  # of the earliest match that may still come
            for which, pattern in enumerate(self.patterns.encoded):
                state = states[which]
                fail = self.patterns.fails[which]
                while state and (state == len(pattern) or pattern[state] != byte):
                    state = fail[state]
                if pattern[state] == byte:
                    state += 1
                states[which] = state
                start = at - state
                if 0 < state < len(pattern):
                    live_start = min(live_start, start)
                elif state and armed and (best < 0 or start < best_start):
                    best, best_start, best_end = which, start, at
            if best >= 0 and live_start >= best_start:
                break
        for which, pattern in enumerate(self.patterns.encoded):
            if states[which] == len(pattern):
                states[which] = self.patterns.fails[which][len(pattern)]
        return best, best_end


def _fail_table(pattern: bytes) -> list[int]:
    """fail[n]: the longest proper prefix of `pattern` that ends its first n bytes."""
    fail = [0] * (len(pattern) + 1)
    length = 0
    for at in range(1, len(pattern)):
        while length and pattern[at] != pattern[length]:
            length = fail[length]
        if pattern[at] == pattern[length]:
            length += 1
        fail[at + 1] = length
    return fail
