"""Cross-origin rules with the answers of starlette's CORSMiddleware, which vLLM's Python frontend uses."""

from __future__ import annotations

from collections.abc import Sequence

from fastfront.flow import HttpRequest

ALL_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY")
SAFE_HEADERS = {"Accept", "Accept-Language", "Content-Language", "Content-Type"}
PREFLIGHT_VARY = ", ".join(f"Access-Control-Request-{what}" for what in ("Method", "Headers", "Private-Network"))
MAX_AGE_S = 600

#: What every answer carries.
VARY = b"vary: Origin\r\n"

Headers = list[tuple[str, str]]


class Cors:
    """`*` among origins, methods or headers allows all of them."""

    def __init__(
        self,
        origins: Sequence[str] = ("*",),
        methods: Sequence[str] = ("*",),
        headers: Sequence[str] = ("*",),
        credentials: bool = False,
    ) -> None:
        self._origins = frozenset(origins)
        self._any_origin = "*" in origins
        self._methods = ALL_METHODS if "*" in methods else tuple(methods)
        self._any_header = "*" in headers
        self._header_names = ", ".join(sorted(SAFE_HEADERS | set(headers)))
        self._headers = frozenset(name.lower() for name in SAFE_HEADERS | set(headers))
        self._credentials = credentials

    def preflight(self, request: HttpRequest) -> tuple[int, bytes, Headers] | None:
        """Status, text and further headers when the request is a preflight, else None."""
        origin = request.headers.get("origin")
        method = request.headers.get("access-control-request-method")
        if request.method != "OPTIONS" or origin is None or method is None:
            return None
        wanted = request.headers.get("access-control-request-headers")
        answer: Headers = [("vary", PREFLIGHT_VARY)]
        failures = []
        if self._any_origin and not self._credentials:
            answer.append(("access-control-allow-origin", "*"))
        elif self._allows(origin):
            answer.append(("access-control-allow-origin", origin))
        else:
            failures.append("origin")
        answer.append(("access-control-allow-methods", ", ".join(self._methods)))
        answer.append(("access-control-max-age", str(MAX_AGE_S)))
        if self._credentials:
            answer.append(("access-control-allow-credentials", "true"))
        if method not in self._methods:
            failures.append("method")
        if not self._any_header:
            answer.append(("access-control-allow-headers", self._header_names))
            if wanted is not None and not all(n.strip().lower() in self._headers for n in wanted.split(",")):
                failures.append("headers")
        elif wanted is not None:
            answer.append(("access-control-allow-headers", wanted))
        if "access-control-request-private-network" in request.headers:
            failures.append("private-network")
        if failures:
            return 400, f"Disallowed CORS {', '.join(failures)}".encode(), answer
        return 200, b"OK", answer

    def headers(self, origin: str) -> Headers:
        """What an answer to a request from another origin carries, too; `origin` is the request's Origin header."""
        answer: Headers = []
        if self._any_origin and not self._credentials:
            answer.append(("access-control-allow-origin", "*"))
        elif self._allows(origin):
            answer.append(("access-control-allow-origin", origin))
        if self._credentials:
            answer.append(("access-control-allow-credentials", "true"))
        return answer

    def _allows(self, origin: str) -> bool:
        return self._any_origin or origin in self._origins
