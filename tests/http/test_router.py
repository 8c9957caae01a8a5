"""Paths to handlers."""

from __future__ import annotations

import pytest

from fastfront.errors import MethodNotAllowedError, RouteNotFoundError
from fastfront.flow import HttpRequest, Reply
from fastfront.http.router import Router


async def one(request: HttpRequest, reply: Reply) -> None:
    """A handler."""


async def two(request: HttpRequest, reply: Reply) -> None:
    """Another."""


@pytest.fixture
def router() -> Router:
    router = Router()
    router.add("GET", "/a", one)
    router.add("POST", "/a", two)
    router.add("GET", "/a/{id}", one)
    router.add("POST", "/a/{id}/cancel", two)
    router.add("DELETE", "/a/{id}", two)
    router.add("GET", "/m/{name:path}", two)
    router.add("GET", "/a/fixed", two)
    router.add("PUT", "/p", one)
    return router


@pytest.mark.parametrize(
    ("method", "path", "handler"),
    [
        ("GET", "/a", one),
        ("HEAD", "/a", one),
        ("POST", "/a", two),
        ("GET", "/a/1", one),
        ("DELETE", "/a/1", two),
        ("POST", "/a/1/cancel", two),
        ("GET", "/a/fixed", two),
        ("GET", "/m/org/name", two),
        ("GET", "/m/x", two),
    ],
)
def test_found(router: Router, method: str, path: str, handler: object) -> None:
    assert router.find(method, path) is handler


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/a", "/a"),
        ("/a/1", "/a/{id}"),
        ("/a/fixed", "/a/fixed"),
        ("/m/org/name", "/m/{name:path}"),
        ("/b", "none"),
        ("*", "none"),
    ],
)
def test_pattern(router: Router, path: str, pattern: str) -> None:
    assert router.pattern(path) == pattern


@pytest.mark.parametrize("path", ["", "/", "/b", "/a/", "/a/1/2", "/a//cancel", "/m", "/m/", "//a", "/A", "a", "*"])
def test_not_found(router: Router, path: str) -> None:
    with pytest.raises(RouteNotFoundError) as caught:
        router.find("GET", path)
    assert caught.value.value == path


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/a", ("GET", "HEAD", "OPTIONS", "POST")),
        ("GET", "/a/1/cancel", ("OPTIONS", "POST")),
        ("HEAD", "/p", ("OPTIONS", "PUT")),
        ("POST", "/a/1", ("DELETE", "GET", "HEAD", "OPTIONS")),
    ],
)
def test_not_allowed(router: Router, method: str, path: str, allowed: tuple[str, ...]) -> None:
    with pytest.raises(MethodNotAllowedError) as caught:
        router.find(method, path)
    assert caught.value.allowed == allowed


def test_twice_is_an_error(router: Router) -> None:
    for path in ("/a", "/a/{id}"):
        with pytest.raises(ValueError, match="has a handler already"):
            router.add("GET", path, two)


def test_routes(router: Router) -> None:
    assert ("POST", "/a/{id}/cancel") in router.routes()
    assert len(router.routes()) == 8
