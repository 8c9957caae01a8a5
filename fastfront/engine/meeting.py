"""Where `serve`'s workers meet its engines: a pair of sockets for each worker, bound before the workers part."""

from __future__ import annotations

import shutil
import socket
import tempfile
from typing import NamedTuple

from fastfront import env
from fastfront.config import EngineConfig, InheritedConfig
from fastfront.engine.sockets import address_of, tcp_listener, unix_listener
from fastfront.engine.wire import Addresses


class Pair(NamedTuple):
    """What one worker sends requests on and gets outputs on, bound."""

    inputs: socket.socket
    outputs: socket.socket


class Meeting:
    """Unix sockets in a folder of their own where every engine is on this machine, else TCP; `count` pairs of them.

    Raises StartError where that cannot be.
    """

    def __init__(self, config: EngineConfig, count: int) -> None:
        #: Where engines find other sockets than these; None: every one of them is on this machine.
        self.host = None if config.size_local in (None, config.size) else config.host
        self._folder = tempfile.mkdtemp(prefix="fastfront-", dir=env.rpc_base_path())
        self._pairs = [Pair(self._listener(f"input{k}"), self._listener(f"output{k}")) for k in range(count)]
        self.addresses = Addresses(
            [address_of(pair.inputs) for pair in self._pairs], [address_of(pair.outputs) for pair in self._pairs]
        )
        #: Where the other workers find the coordinator, if there is one.
        self.front = f"ipc://{self._folder}/coordinator"

    def take(self, index: int) -> Pair:
        """The sockets of one worker, which this process is from now on: the others' are closed here."""
        for other in self._pairs[:index] + self._pairs[index + 1 :]:
            other.inputs.close()
            other.outputs.close()
        return self._pairs[index]

    def close(self) -> None:
        """Removes the folder: the first worker's to do."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listener(self, name: str) -> socket.socket:
        return unix_listener(f"{self._folder}/{name}") if self.host is None else tcp_listener(self.host)


def meet(config: EngineConfig | InheritedConfig, count: int) -> Meeting | None:
    """The meeting of `count` workers with their engines; None where a supervisor has seen to it."""
    return None if isinstance(config, InheritedConfig) else Meeting(config, count)
