"""What a mock engine is told at start."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """One process's settings; `--name-with-dashes` of `fastfront mock-engine` is the field of that name."""

    handshake: str
    index: int = 0
    #: Ranks in this process: `index`, `index + 1`, ...
    data_parallel_size: int = 1
    local: bool = False
    #: Takes part in the coordinator's waves, in lockstep over this process's ranks (wire b.3).
    moe: bool = False
    #: None: tokens below 32000, and prompts are not checked against a vocabulary.
    vocab: int | None = None
    step_ms: float = 0.0
    max_model_len: int = 40960
    max_num_seqs: int = 1024
    seed: int = 7
    scripts: str | None = None
    record: str | None = None
    stats: bool = False
    #: Tokens of each prompt that are said to come from the prefix cache; shown with `stats`.
    cached_tokens: int = 0
    #: Writes every array in full as the real engine does, not only up to its last element that is set.
    full_arrays: bool = False
    #: Arrays of fewer bytes travel inside the message, others in frames of their own.
    inline_below: int = 256
    #: Breaks on bad input as the real engine does (wire f).
    strict: bool = False
    #: Faults; each counts the messages with outputs that were sent.
    die_after: int | None = None
    crash_after: int | None = None
    malformed_after: int | None = None
    stall_after: int | None = None
    #: Steps for which an aborted request still gives tokens.
    late_outputs: int = 0

    @property
    def token_limit(self) -> int:
        """Generated ids are below this."""
        return self.vocab or 32000
