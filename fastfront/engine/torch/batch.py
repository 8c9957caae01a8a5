"""One step's work for the model: what the scheduler hands to the runner."""

from __future__ import annotations

from dataclasses import dataclass

#: Block of the cache that no sequence owns: the scheduler gives out 1 to num_blocks - 1, padded rows write here.
PAD_BLOCK = 0


@dataclass(slots=True)
class Batch:
    """Sequences in any order, each with the tokens to put into the cache now: one to decode, more to prefill.

    Token n of a sequence lies in place n % block_size of block block_tables[sequence][n // block_size]; a table
    covers at least context_len + query_len tokens, and only the last of its sequences' shared blocks are written.
    """

    #: The new tokens of all sequences, one after the other.
    token_ids: list[int]
    #: How many of them belong to each sequence, at least 1.
    query_lens: list[int]
    #: Tokens of each sequence that the cache holds already.
    context_lens: list[int]
    #: The blocks of each sequence, in the order of its tokens.
    block_tables: list[list[int]]
    #: Places in `token_ids` after which the logits are wanted, rising.
    logits_rows: list[int]
