"""Looking for the next request before the loop sleeps: when, how long, and when no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from fastfront.flow import HttpRequest, Reply
from fastfront.http import busy_poll
from fastfront.http.busy_poll import LOOK_S, MOST_SKIPPED, NEAR_S, BusyPoll

if TYPE_CHECKING:
    from tests.http.conftest import Serve

A, B = 7, 8
PASS_S = LOOK_S / 10


class Loop:
    """A loop whose passes, of PASS_S each, go on as long as something is called soon."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Callable[[], None]] = []
        self.passes = 0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def run(self, seconds: float) -> None:
        """What happens within so many seconds without an event."""
        end = self.now + seconds
        while self.soon and self.now < end:
            due, self.soon = self.soon, []
            self.now += PASS_S
            self.passes += 1
            for callback in due:
                callback()
        self.now = max(self.now, end)


class Scene:
    """A server that answers at once, and clients."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop()
        monkeypatch.setattr(busy_poll, "perf_counter", lambda: self.loop.now)
        self.poll = BusyPoll(cast(Any, self.loop))

    def ask(self, after: float, client: int = A) -> int:
        """A request so long after what was before; how many passes the loop made meanwhile instead of sleeping."""
        before = self.loop.passes
        self.loop.run(after)
        self.poll.answered(client)
        return self.loop.passes - before


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_client_that_asks_again_at_once_is_awaited(scene: Scene) -> None:
    assert [scene.ask(NEAR_S / 2) for _ in range(3)] == [0, 0, 0]  # the third was near: from now on
    assert all(scene.ask(LOOK_S / 2) > 0 for _ in range(100))
    assert len(scene.loop.soon) == 1


def test_it_gives_up_in_time(scene: Scene) -> None:
    for _ in range(5):
        scene.ask(LOOK_S / 2)
    assert 1 < scene.ask(10.0) <= LOOK_S / PASS_S + 1
    assert not scene.loop.soon


def test_who_asks_seldom_is_never_awaited(scene: Scene) -> None:
    assert [scene.ask(NEAR_S * 1.01) for _ in range(100)] == [0] * 100


def test_several_clients_are_not_awaited(scene: Scene) -> None:
    assert [scene.ask(LOOK_S / 10, client) for _ in range(50) for client in (A, B)] == [0] * 100


def test_looking_in_vain_becomes_rare(scene: Scene) -> None:
    """A client that is near, but never near enough."""
    between = (LOOK_S + NEAR_S) / 2
    asked = [scene.ask(between) > 0 for _ in range(100 * MOST_SKIPPED)]
    assert sum(asked) < 115
    assert sum(asked[: MOST_SKIPPED * 2]) >= 7


def test_one_success_makes_it_frequent_again(scene: Scene) -> None:
    for _ in range(5 * MOST_SKIPPED):
        scene.ask((LOOK_S + NEAR_S) / 2)
    looked = [scene.ask(LOOK_S / 2) > 0 for _ in range(2 * MOST_SKIPPED)]
    first = looked.index(True)
    assert all(looked[first:])


def test_only_answers_given_at_once_count(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(BusyPoll, "answered", lambda self, client: told.append(client))
    served = serve()

    def at_once(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, b"now")

    served.add("/now", at_once)
    client = served.client()
    for path in (b"now", b"ok", b"now", b"nothing"):
        client.send(b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
        client.answer()
    served.until(lambda: len(told) >= 3)
    (one,) = served.server.connections
    assert told == [one.fd] * 3
