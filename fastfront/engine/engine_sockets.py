"""The sockets that `serve`'s engines connect to: a pair for each worker, bound before the workers part."""

from __future__ import annotations

import shutil
import socket
import tempfile
from typing import NamedTuple

from fastfront import env
from fastfront.config import EngineConfig, InheritedConfig
from fastfront.engine.sockets import address_of, tcp_listener, unix_listener
from fastfront.engine.wire import Addresses
from fastfront.errors import StartError


class Pair(NamedTuple):
    """What one worker sends requests on and gets outputs on, bound."""

    inputs: socket.socket
    outputs: socket.socket


class EngineSockets:
    """Unix sockets in a folder of their own where every engine is on this machine, else TCP; `count` pairs of them.

    Raises StartError where that cannot be.
    """

    def __init__(self, config: EngineConfig, count: int) -> None:
        #: Where engines find other sockets than these; None: every one of them is on this machine.
        self.host = None if config.size_local in (None, config.size) else config.host
        self._folder: str | None = None
        self._pairs: list[Pair] = []
        try:
            for index in range(count):
                self._pairs.append(Pair(self._listener(f"input{index}"), self._listener(f"output{index}")))
            #: Where the other workers find the coordinator, if there is one.
            self.front = f"ipc://{self._path('coordinator')}" if count > 1 and config.size > 1 else None
        except BaseException:
            self.remove()
            raise
        self.addresses = Addresses(
            [address_of(pair.inputs) for pair in self._pairs], [address_of(pair.outputs) for pair in self._pairs]
        )

    def take(self, index: int) -> Pair:
        """The sockets of one worker, which this process is from now on: the others' are closed here."""
        for other in self._pairs[:index] + self._pairs[index + 1 :]:
            other.inputs.close()
            other.outputs.close()
        return self._pairs[index]

    def remove(self) -> None:
        """Removes the folder: the first worker's to do."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _listener(self, name: str) -> socket.socket:
        return unix_listener(self._path(name)) if self.host is None else tcp_listener(self.host)

    def _path(self, name: str) -> str:
        if self._folder is None:
            base = env.rpc_base_path()
            try:
                self._folder = tempfile.mkdtemp(prefix="fastfront-", dir=base)
            except OSError as error:
                where = base or "the folder for temporary files (TMPDIR)"
                raise StartError(f"cannot make sockets for the engines in {where}: {error.strerror}") from error
        return f"{self._folder}/{name}"


def open_sockets(config: EngineConfig | InheritedConfig, count: int) -> EngineSockets | None:
    """Those of `count` workers; None where a supervisor has seen to it."""
    return None if isinstance(config, InheritedConfig) else EngineSockets(config, count)
