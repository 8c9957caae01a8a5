"""When requests are due: the arrival process of vLLM's benchmark."""

from __future__ import annotations

import math
import random
from itertools import accumulate

from fastfront.load.options import Traffic


def due_times(traffic: Traffic, count: int, seed: int) -> list[float]:
    """Seconds after the start, one for each request, rising.

    Intervals follow a gamma distribution of shape `burstiness` (1: a Poisson process; infinity: even). At a constant
    rate all are scaled so that the last falls on count / rate, whatever the seed.
    """
    rng = random.Random(seed)
    times = list(accumulate(_interval(rng, rate, traffic.burstiness) for rate in rates(traffic, count)))
    if traffic.ramp is None and times and times[-1] > 0:
        scale = count / traffic.rate / times[-1]
        times = [time * scale for time in times]
    return times


def rates(traffic: Traffic, count: int) -> list[float]:
    """The rate in force for each request."""
    if traffic.ramp is None:
        return [traffic.rate] * count
    kind, first, last = traffic.ramp
    steps = [index / max(count - 1, 1) for index in range(count)]
    if kind == "linear":
        return [first + (last - first) * step for step in steps]
    return [first * (last / first) ** step for step in steps]


def _interval(rng: random.Random, rate: float, burstiness: float) -> float:
    if math.isinf(rate):
        return 0.0
    if math.isinf(burstiness):
        return 1.0 / rate
    return rng.gammavariate(burstiness, 1.0 / (rate * burstiness))
