"""Which engine takes a request."""

from __future__ import annotations

import pytest

from fastfront.engine import wire
from fastfront.engine.balance import Balancer
from fastfront.errors import RequestError


def taken(balancer: Balancer, count: int) -> list[int]:
    """Where the next requests go when none of them ends."""
    places = []
    for _ in range(count):
        rank = balancer.choose(None)
        balancer.loads[rank].open += 1
        places.append(rank)
    return places


def test_ties_go_round() -> None:
    assert taken(Balancer(4, 3), 7) == [4, 5, 6, 4, 5, 6, 4]
    idle = Balancer(0, 3)
    assert [idle.choose(None) for _ in range(4)] == [0, 1, 2, 0]


def test_clients_begin_at_different_engines() -> None:
    assert [Balancer(0, 4, client, 2).choose(None) for client in range(2)] == [0, 2]


def test_own_open_requests_count_before_there_are_statistics() -> None:
    balancer = Balancer(0, 2)
    balancer.loads[0].open = 3
    assert taken(balancer, 3) == [1, 1, 1]


def test_own_requests_stand_for_those_of_all_clients() -> None:
    balancer = Balancer(0, 2, 0, 4)
    balancer.loads[0].open = 1
    balancer.loads[1].tell(0, 3, 0.0)
    assert balancer.choose(None) == 1


def test_statistics_count_where_they_say_more() -> None:
    balancer = Balancer(0, 2)
    balancer.loads[0].tell(3, 5, 0.9)
    assert taken(balancer, 6) == [1] * 6
    balancer.loads[1].tell(0, 8, 0.0)  # 8 against 8 + 3 * 6 * 0.4
    assert balancer.choose(None) == 1


def test_waiting_weighs_with_the_cache_s_filling() -> None:
    balancer = Balancer(0, 2)
    balancer.loads[0].tell(2, 2, 1.0)  # 4 + 2 * 3
    balancer.loads[1].tell(0, 9, 1.0)
    assert balancer.choose(None) == 1
    balancer.loads[0].tell(2, 2, 0.5)  # no more than 4
    assert balancer.choose(None) == 0


def test_a_burst_between_two_statistics_spreads() -> None:
    balancer = Balancer(0, 2)
    for load in balancer.loads.values():
        load.tell(0, 10, 0.1)
    assert sorted(balancer.choose(None) for _ in range(6)) == [0, 0, 0, 1, 1, 1]


def test_raw_statistics_are_read_when_needed_and_malformed_ones_skipped() -> None:
    balancer = Balancer(0, 2)
    balancer.loads[0].stats = wire.encode({"num_running_reqs": 5, "num_waiting_reqs": 0, "kv_cache_usage": 0.1})
    balancer.loads[1].stats = wire.encode({"num_running_reqs": "many"})
    assert balancer.choose(None) == 1
    assert (balancer.loads[0].running, balancer.loads[1].known) == (5, False)


def test_one_engine_needs_no_choice() -> None:
    assert Balancer(3, 1).choose(None) == 3


@pytest.mark.parametrize("rank", [-1, 0, 4])
def test_a_rank_that_is_not_here(rank: int) -> None:
    with pytest.raises(RequestError, match=f"{rank} is out of range: the engines here are 1 to 3") as caught:
        Balancer(1, 3).choose(rank)
    assert caught.value.param == "data_parallel_rank"


def test_a_named_rank_wins() -> None:
    balancer = Balancer(1, 3)
    balancer.loads[3].tell(50, 50, 1.0)
    assert balancer.choose(3) == 3
