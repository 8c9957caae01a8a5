"""The blocks of the KV cache: who holds them, and which of them still know a prompt's beginning.

A block is free, or held by one or more sequences. A full block may be known by the hash of all tokens up to its end;
it stays known when it is freed, until it is given out again. Free blocks wait in a line: those that know nothing at its
head, the others in the order in which they were freed. So what was not used for longest is forgotten first.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from fastfront.engine.torch.batch import PAD_BLOCK

HASH_BYTES = 16


def root_hash(cache_salt: str | None) -> bytes:
    """What the first block's hash is chained to: requests with different salts share nothing."""
    return b"" if cache_salt is None else hashlib.blake2b(cache_salt.encode(), digest_size=HASH_BYTES).digest()


def block_hashes(token_ids: Sequence[int], block_size: int, before: bytes) -> list[bytes]:
    """The chained hashes of the full blocks in `token_ids`, which follow what has the hash `before`."""
    data = array("I", token_ids).tobytes()
    size = block_size * array("I").itemsize
    hashes = []
    for end in range(size, len(data) + 1, size):
        before = hashlib.blake2b(before + data[end - size : end], digest_size=HASH_BYTES).digest()
        hashes.append(before)
    return hashes


class BlockPool:
    """The blocks 1 to `num_blocks` - 1; block 0 is the runner's own (PAD_BLOCK)."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.size = num_blocks - 1 - PAD_BLOCK
        self._holders = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._known: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(PAD_BLOCK + 1, num_blocks))

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """The share of the blocks that is held, 0 to 1."""
        return 1.0 - len(self._free) / self.size

    def blocks_for(self, tokens: int) -> int:
        """How many blocks that many tokens fill."""
        return -(-tokens // self.block_size)

    def find(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks that know the longest beginning of these hashes; they are not held yet."""
        found = []
        for value in hashes:
            block = self._known.get(value)
            if block is None:
                break
            found.append(block)
        return found

    def cost(self, blocks: Iterable[int]) -> int:
        """How many of these are free, so that holding them leaves fewer to take."""
        return sum(not self._holders[block] for block in blocks)

    def hold(self, blocks: Iterable[int]) -> None:
        """One more holder for each."""
        for block in blocks:
            if not self._holders[block]:
                del self._free[block]
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """That many free blocks, which forget what they knew; there must be as many."""
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._holders[block] = 1
            taken.append(block)
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """One holder less for each block of a sequence; its end is given out again before its beginning."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None
                if self._hashes[block] is None:
                    self._free.move_to_end(block, last=False)

    def learn(self, block: int, value: bytes) -> None:
        """The block is full and its tokens have this hash; another that knows the same stays the one that is found."""
        if value not in self._known and self._hashes[block] is None:
            self._known[value] = block
            self._hashes[block] = value

    def reset(self) -> bool:
        """Forgets all; False, and nothing forgotten, while a block is held."""
        if len(self._free) < self.size:
            return False
        self._known.clear()
        self._hashes = [None] * len(self._hashes)
        return True

    def _forget(self, block: int) -> None:
        value = self._hashes[block]
        if value is not None:
            del self._known[value]
            self._hashes[block] = None
