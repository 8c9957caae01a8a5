"""What a server has before anything that takes long: its sockets for HTTP, bound, and its TLS settings."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from fastfront.config import HttpConfig
from fastfront.http.listener import Listener, adopt, bind_tcp_for, bind_unix
from fastfront.http.tls import server_context


class Bound(NamedTuple):
    """TLS settings, and a socket for each worker, not listening; several may have one and the same."""

    tls: ssl.SSLContext | None
    listeners: list[Listener]

    def part(self, index: int) -> Listener:
        """The listener of one worker, which this process is from now on: the others' are closed here."""
        own = self.listeners[index]
        if index:
            own.path = None  # it is the first worker's to remove
        for listener in self.listeners:
            if listener is not own:
                listener.sock.close()
        return own

    def remove(self) -> None:
        """Closes the sockets and removes what file they have."""
        for listener in self.listeners:
            listener.remove()


def bind(http: HttpConfig, count: int = 1) -> Bound:
    """Binds for `count` workers, so that a start in vain ends early; StartError or ConfigError."""
    return Bound(_tls(http), _listeners(http, count))


def _listeners(http: HttpConfig, count: int) -> list[Listener]:
    if http.listen_fd is not None:
        return [adopt(http.listen_fd)] * count
    return [bind_unix(http.uds)] * count if http.uds is not None else bind_tcp_for(count, http.host, http.port)


def _tls(http: HttpConfig) -> ssl.SSLContext | None:
    tls = http.tls
    if tls is None:
        return None
    return server_context(tls.certfile, tls.keyfile, tls.ca_certs, tls.cert_reqs, tls.ciphers)
