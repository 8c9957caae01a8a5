"""When requests are due."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from fastfront.load.arrivals import due_times, rates
from fastfront.load.options import Traffic


def test_all_at_once() -> None:
    assert due_times(Traffic(), 3, 0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("burstiness", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_rate_is_kept_to_the_last(burstiness: float, seed: int) -> None:
    times = due_times(Traffic(rate=8.0, burstiness=burstiness), 400, seed)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(50.0)
    assert times == due_times(Traffic(rate=8.0, burstiness=burstiness), 400, seed)
    assert times != due_times(Traffic(rate=8.0, burstiness=burstiness), 400, seed + 1)


def test_burstiness_is_a_gammas_shape() -> None:
    """The intervals' coefficient of variation is 1 / sqrt(shape)."""
    for shape in (0.25, 1.0, 4.0):
        times = due_times(Traffic(rate=1.0, burstiness=shape), 20_000, 3)
        gaps = [later - earlier for earlier, later in pairwise([0.0, *times])]
        mean = sum(gaps) / len(gaps)
        spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
        assert spread / mean == pytest.approx(1 / math.sqrt(shape), rel=0.05)


def test_even() -> None:
    assert due_times(Traffic(rate=4.0, burstiness=math.inf), 4, 0) == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_ramps() -> None:
    assert rates(Traffic(ramp=("linear", 2.0, 10.0)), 5) == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert rates(Traffic(ramp=("exponential", 1.0, 16.0)), 5) == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert rates(Traffic(ramp=("linear", 2.0, 10.0)), 1) == [2.0]
    times = due_times(Traffic(ramp=("exponential", 1.0, 4.0), burstiness=math.inf), 3, 0)
    assert times == pytest.approx([1.0, 1.5, 1.75])
