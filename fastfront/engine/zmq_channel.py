"""A ZMQ socket on an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

ZmqSocket = zmq.Socket[bytes]
ZmqContext = zmq.Context[ZmqSocket]

POLLIN: Final = int(zmq.POLLIN)


def open_socket(context: ZmqContext, kind: int, send_limit: int = 0) -> ZmqSocket:
    """A socket that waits for nothing when it is closed; it queues `send_limit` messages for each peer, 0: all."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.SNDHWM, send_limit)
    return socket


class Channel:
    """Gives each message of a socket to `take`, on the running loop; sends on those kinds whose sends never block.

    ZMQ's file descriptor tells of changes only, and a send can use one up: so each send is followed by a look.
    """

    def __init__(self, socket: ZmqSocket, take: Callable[[list[bytes]], None]) -> None:
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._loop.call_soon(self._drain)

    def send(self, *frames: bytes) -> None:
        """Sends one message."""
        self._socket.send_multipart(frames)
        self._loop.call_soon(self._drain)

    def close(self) -> None:
        """Reads no more; the socket is closed with its context."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1

    def _drain(self) -> None:
        while self._fd >= 0 and int(self._socket.getsockopt(zmq.EVENTS)) & POLLIN:
            self._take(self._socket.recv_multipart())
