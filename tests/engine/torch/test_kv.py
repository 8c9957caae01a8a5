"""The block pool: what is held, what is known, and that nothing is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfront.engine.torch.kv import BlockPool, block_hashes, root_hash


def test_hashes_chain_and_depend_on_the_salt() -> None:
    tokens = list(range(10))
    hashes = block_hashes(tokens, 4, root_hash(None))
    assert len(hashes) == 2 and len(set(hashes)) == 2
    assert block_hashes(tokens[4:8], 4, hashes[0]) == hashes[1:]
    assert block_hashes([99, *tokens[1:]], 4, root_hash(None))[1] != hashes[1]
    assert set(block_hashes(tokens, 4, root_hash("salt"))).isdisjoint(hashes)
    assert root_hash("") != root_hash(None)


def test_the_padding_block_is_never_given_out() -> None:
    pool = BlockPool(5, 4)
    assert sorted(pool.take(pool.free)) == [1, 2, 3, 4]
    assert pool.free == 0 and pool.usage == 1.0


def test_a_known_block_is_found_until_it_is_given_out_again() -> None:
    pool = BlockPool(4, 4)
    first, second = block_hashes(range(8), 4, b"")
    blocks = pool.take(2)
    pool.learn(blocks[0], first)
    pool.learn(blocks[1], second)
    pool.release(blocks)
    assert pool.find([first, second]) == blocks and pool.free == 3
    assert pool.find([second, first]) == [blocks[1], blocks[0]]
    # The third block knows nothing, so it goes first; then the end of the sequence, last its beginning.
    taken = pool.take(2)
    assert taken[1] == blocks[1]
    assert pool.find([first, second]) == [blocks[0]]
    pool.take(1)
    assert pool.find([first]) == []


def test_two_sequences_hold_one_block() -> None:
    pool = BlockPool(4, 4)
    (value,) = block_hashes(range(4), 4, b"")
    block = pool.take(1)
    pool.learn(block[0], value)
    assert pool.cost(block) == 0
    pool.hold(block)
    pool.release(block)
    assert pool.free == 2 and not pool.reset()
    pool.release(block)
    assert pool.free == 3 and pool.cost(block) == 1
    assert pool.find([value]) == block
    assert pool.reset() and pool.find([value]) == []


def test_the_first_to_know_stays_the_one_that_is_found() -> None:
    pool = BlockPool(4, 4)
    (value,) = block_hashes(range(4), 4, b"")
    one, two = pool.take(2)
    pool.learn(one, value)
    pool.learn(two, value)
    assert pool.find([value]) == [one]
    pool.release([two])
    pool.release([one])
    assert len({*pool.take(3)}) == 3 and pool.find([value]) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 24))
def test_whatever_happens_every_block_is_held_or_free(seed: int, num_blocks: int) -> None:
    draw = random.Random(seed)
    pool = BlockPool(num_blocks, 2)
    held: list[list[int]] = []
    for _ in range(120):
        act = draw.random()
        tokens = [draw.randrange(2) for _ in range(2 * draw.randrange(1, 6))]
        hashes = block_hashes(tokens, 2, b"")
        if act < 0.55:
            found = pool.find(hashes)
            new = len(hashes) - len(found)
            if new + pool.cost(found) <= pool.free:
                pool.hold(found)
                blocks = found + pool.take(new)
                assert len(set(blocks)) == len(blocks)
                for block, value in zip(blocks, hashes, strict=True):
                    pool.learn(block, value)
                held.append(blocks)
        elif held and act < 0.95:
            pool.release(held.pop(draw.randrange(len(held))))
        else:
            assert pool.reset() is (not held)
        used = {block for blocks in held for block in blocks}
        assert pool.free == pool.size - len(used) and 0 not in used
        assert pool.usage == pytest.approx(len(used) / pool.size)
    for blocks in held:
        pool.release(blocks)
    assert pool.free == pool.size and len(set(pool.take(pool.size))) == pool.size
