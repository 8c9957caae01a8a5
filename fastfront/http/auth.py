"""API keys, as vLLM guards its routes with them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from fastfront.errors import UnauthorizedError
from fastfront.flow import HttpRequest

GUARDED = ("/v1", "/v2", "/inference", "/cohere")


class Keys:
    """The keys that are good; paths that begin with one of GUARDED need one, except for OPTIONS."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def check(self, request: HttpRequest) -> None:
        """Raises UnauthorizedError where `Authorization: Bearer <key>` is needed and missing or wrong."""
        if not request.path.startswith(GUARDED) or request.method == "OPTIONS":
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        # Digests are compared, and all of them, so that the time tells nothing of any key.
        given = hashlib.sha256(key.encode("latin-1")).digest()
        good = False
        for digest in self._digests:
            good |= hmac.compare_digest(given, digest)
        if scheme.lower() != "bearer" or not good:
            raise UnauthorizedError("Unauthorized")
