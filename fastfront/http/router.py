"""Which handler serves a method and a path."""

from __future__ import annotations

from fastfront.errors import MethodNotAllowedError, RouteNotFoundError
from fastfront.flow import Handler, HttpRequest, Reply

Methods = dict[str, Handler]


class Router:
    """Paths are exact, or have `{name}` for one segment and, last, `{name:path}` for one or more.

    HEAD is served by the handler of GET; OPTIONS tells the methods of a path.
    """

    def __init__(self) -> None:
        self._exact: dict[str, Methods] = {}
        self._patterns: list[tuple[tuple[str, ...], Methods]] = []

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Registers a handler; ValueError when there is one already."""
        if "{" in path:
            segments = tuple(path.split("/"))
            methods = next((known for parts, known in self._patterns if parts == segments), None)
            if methods is None:
                methods = {}
                self._patterns.append((segments, methods))
        else:
            methods = self._exact.setdefault(path, {})
        if method in methods:
            raise ValueError(f"{method} {path} has a handler already")
        methods[method] = handler

    def find(self, method: str, path: str) -> Handler:
        """The handler; raises RouteNotFoundError or MethodNotAllowedError."""
        methods = self._exact.get(path) or self._match(path)
        if methods is None:
            if method == "OPTIONS" and path == "*":
                return _options(("GET", "HEAD", "OPTIONS", "POST"))
            raise RouteNotFoundError("Not Found", value=path)
        handler = methods.get(method)
        if handler is not None:
            return handler
        if method == "HEAD" and "GET" in methods:
            return methods["GET"]
        allowed = set(methods) | {"OPTIONS"}
        if "GET" in methods:
            allowed.add("HEAD")
        if method == "OPTIONS":
            return _options(tuple(sorted(allowed)))
        raise MethodNotAllowedError("Method Not Allowed", allowed=tuple(sorted(allowed)))

    def pattern(self, path: str) -> str:
        """The path as it was registered, `none` where no route has it."""
        if path in self._exact:
            return path
        segments = path.split("/")
        return next(("/".join(parts) for parts, _ in self._patterns if _fits(parts, segments)), "none")

    def routes(self) -> list[tuple[str, str]]:
        """Every (method, path), in the order of registration."""
        known = [(path, methods) for path, methods in self._exact.items()]
        known += [("/".join(segments), methods) for segments, methods in self._patterns]
        return [(method, path) for path, methods in known for method in methods]

    def _match(self, path: str) -> Methods | None:
        segments = path.split("/")
        return next((methods for parts, methods in self._patterns if _fits(parts, segments)), None)


def _fits(parts: tuple[str, ...], segments: list[str]) -> bool:
    if parts[-1].endswith(":path}"):
        head = len(parts) - 1
        if len(segments) <= head or segments[head:] == [""]:
            return False
        parts, segments = parts[:-1], segments[:head]
    elif len(parts) != len(segments):
        return False
    return all(
        segment != "" if part.startswith("{") else part == segment
        for part, segment in zip(parts, segments, strict=True)
    )


def _options(allowed: tuple[str, ...]) -> Handler:
    async def options(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, content_type=None, headers=(("allow", ", ".join(allowed)),))

    return options
