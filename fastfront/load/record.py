"""What is known of one request when it is over."""

from __future__ import annotations

from array import array
from itertools import pairwise


class Record:
    """Times are seconds of time.perf_counter; `error` is empty for a request that was answered.

    `start` is when it was sent, `due` when it was to be sent, `times` when each event with a token came (one entry an
    event, however many tokens it holds: what vLLM's benchmark counts). `text` is kept only where somebody wants it.
    """

    __slots__ = ("due", "error", "output_tokens", "pieces", "prompt_tokens", "start", "times", "turn")

    def __init__(self, prompt_tokens: int = 0, due: float = 0.0, keep_text: bool = False, turn: int = 0) -> None:
        self.start = 0.0
        self.due = due
        self.times: array[float] = array("d")
        self.prompt_tokens = prompt_tokens
        self.output_tokens = 0
        self.error = ""
        self.pieces: list[str] | None = [] if keep_text else None
        self.turn = turn

    @property
    def text(self) -> str:
        """The answer's text, "" where it was not kept."""
        return "".join(self.pieces or ())

    @property
    def ttft(self) -> float:
        """Seconds to the first token's event; 0 where none came."""
        return self.times[0] - self.start if self.times else 0.0

    @property
    def latency(self) -> float:
        """Seconds to the last token's event (vLLM's end-to-end latency); 0 where none came."""
        return self.times[-1] - self.start if self.times else 0.0

    @property
    def tpot(self) -> float:
        """Seconds a token after the first; 0 for one token."""
        return (self.latency - self.ttft) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0

    @property
    def itls(self) -> list[float]:
        """Seconds between events with tokens."""
        return [later - earlier for earlier, later in pairwise(self.times)]

    @property
    def queued(self) -> float:
        """Seconds that it waited here for others to end."""
        return max(0.0, self.start - self.due)
