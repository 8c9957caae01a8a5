"""The limits and times of the HTTP side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes, times in seconds."""

    #: Request line and headers together; above it 431.
    max_head_size: int = 64 * 1024
    max_header_count: int = 256
    #: Above it 413.
    max_body_size: int = 32 * 1024 * 1024
    #: From a request's first byte to the end of its headers, and from there to the end of its body; after it 408.
    header_timeout: float = 30.0
    body_timeout: float = 300.0
    #: How long a connection may stay open without a request; 0 closes it after each answer.
    keep_alive_timeout: float = 5.0
    #: How long a client may read nothing of an answer that is complete.
    write_timeout: float = 60.0
    #: How long the rest of a refused request is read and thrown away, so that the client sees the answer.
    linger_timeout: float = 5.0
    #: Requests of one connection that may wait behind the one being served.
    max_pipelined: int = 16
    #: Bytes of a streamed answer that may be pending; a client that reads more slowly is cut off.
    outbox_limit: int = 8 * 1024 * 1024
    #: Length of the accept queue.
    backlog: int = 2048
    #: Whether every answer carries X-Request-Id (the client's, or a random one).
    request_id_headers: bool = False
    #: Whether every answer is logged with one line.
    access_log: bool = False
    #: Told of every answer as it begins: method, pattern of the path (`none` where no route has it), status.
    observe: Callable[[str, str, int], None] | None = None
    #: Called when nothing is under way: soon after the last connection went, and now and then while none is busy.
    idle: Callable[[], None] | None = None
