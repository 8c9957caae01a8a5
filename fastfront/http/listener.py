"""Sockets to listen on: bound here or inherited. None of them listens before the server is started."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass

from fastfront.errors import StartError


@dataclass(slots=True)
class Listener:
    """A bound stream socket; `path` is the file of a unix socket that we made and so remove at the end."""

    sock: socket.socket
    path: str | None = None

    @property
    def unix(self) -> bool:
        """Whether it is a unix socket."""
        return self.sock.family == socket.AF_UNIX

    def port(self) -> int | None:
        """The TCP port, None for a unix socket."""
        name = self.sock.getsockname()
        return int(name[1]) if isinstance(name, tuple) else None

    def remove(self) -> None:
        """Closes the socket and removes its file."""
        self.sock.close()
        if self.path is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            self.path = None


def bind_tcp(host: str | None, port: int, *, reuse_port: bool = False) -> Listener:
    """Binds `host` (name, IPv4, IPv6, or None for all of IPv4); port 0 takes a free one. Raises StartError."""
    where = f"[{host}]:{port}" if host and ":" in host else f"{host or '0.0.0.0'}:{port}"
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise StartError(f"cannot listen on {where}: {error}") from error
    family, kind, protocol, _, address = found[0]
    try:
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartError(f"cannot listen on {where}: {error.strerror}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        hint = "; --port takes another one (0: any that is free)" if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"cannot listen on {where}: {error.strerror}{hint}") from error
    return Listener(sock)


def bind_tcp_for(count: int, host: str | None, port: int) -> list[Listener]:
    """A listener for each of `count` processes, on one port: where the system spreads connections over sockets, one of
    its own each, else the same for all. Raises StartError."""
    first = bind_tcp(host, port)
    if count == 1 or sys.platform != "linux":
        return [first] * count
    # The first holds the port meanwhile: none of them listens, so they may be bound together.
    address, found = _bound_to(first.sock)
    sharing = [bind_tcp(address, found, reuse_port=True) for _ in range(count)]
    first.sock.close()
    return sharing


def check_alone(listener: Listener) -> None:
    """Raises StartError where another server listens on the same port: what shares it would share it in silence."""
    if not listener.unix and listener.sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
        bind_tcp(*_bound_to(listener.sock)).sock.close()


def _bound_to(sock: socket.socket) -> tuple[str, int]:
    """Address and port; of a link-local address its interface, too."""
    where = sock.getsockname()
    return socket.getnameinfo(where, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0], where[1]


def bind_unix(path: str, mode: int = 0o666) -> Listener:
    """Binds a unix socket and sets its file's mode; one that a dead process left is replaced. Raises StartError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        sock.bind(path)
        os.chmod(path, mode)
    except OSError as error:
        sock.close()
        raise StartError(f"cannot listen on {path}: {error.strerror or error}") from error
    except StartError:
        sock.close()
        raise
    return Listener(sock, path)


def adopt(fd: int) -> Listener:
    """Takes over an inherited socket, bound or already listening. Raises StartError when it is not one."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError as error:
        raise StartError(f"file descriptor {fd} is not a socket: {error.strerror}") from error
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    if sock.type != socket.SOCK_STREAM or sock.family not in families:
        sock.detach()
        raise StartError(f"file descriptor {fd} is not a TCP or unix stream socket")
    sock.set_inheritable(False)
    return Listener(sock)


def _remove_stale(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(f"cannot listen on {path}: a file that is not a socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:  # its accept queue is full: somebody lives there
            pass
    raise StartError(f"cannot listen on {path}: another process listens there")
