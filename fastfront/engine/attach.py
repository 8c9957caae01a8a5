"""How a process comes to its engines: on sockets that a supervisor hands over, or on its own, with engines that it
starts and watches or that join from outside."""

from __future__ import annotations

import asyncio
import logging
import shlex
import socket
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from fastfront import env
from fastfront.config import Config, EngineConfig, InheritedConfig
from fastfront.engine.handshake import Handshake
from fastfront.engine.link import EngineLink
from fastfront.engine.registration import EngineInfo
from fastfront.engine.sockets import address_of, tcp_listener, unix_listener
from fastfront.engine.supervisor import Launch, Supervisor, command_for
from fastfront.engine.wire import Addresses
from fastfront.errors import StartError
from fastfront.fast import Flusher, Router
from fastfront.flow import ModelInfo
from fastfront.progress import wants_bar

if TYPE_CHECKING:
    from fastfront.engine.coordinator import CoordinatorClient, InProcessCoordinator

log = logging.getLogger(__name__)

Fail = Callable[[StartError], None]


class Attachment(Protocol):
    """The engines of this process."""

    link: EngineLink
    #: Whether the process has no more use once its engines are gone.
    must_live: bool

    async def start(self, fail: Fail) -> None:
        """Opens the sockets; `fail` is told when the engines have ended for good."""

    async def wait_ready(self, timeout: float) -> EngineInfo:  # noqa: ASYNC109
        """Returns once every engine can take requests; StartError after `timeout` seconds."""

    async def close(self) -> None:
        """Closes the sockets and ends what was started."""


def attach(config: Config, info: ModelInfo, router: Router, flusher: Flusher) -> Attachment:
    """The attachment that the configuration asks for; nothing is opened yet."""
    if isinstance(config.engine, InheritedConfig):
        return Inherited(config.engine, info, router, flusher)
    # vLLM finds the model by its name; the built-in engine looks for nothing.
    place = config.model.place if config.engine.kind == "torch" else None
    return Owned(config.engine, place or info.root, info, router, flusher)


class Inherited:
    """Under vLLM's supervisor (wire a.2): it has bound the sockets and starts, watches and ends the engines."""

    must_live = True

    def __init__(self, config: InheritedConfig, info: ModelInfo, router: Router, flusher: Flusher) -> None:
        self._config = config
        self._coordinator: CoordinatorClient | None = None
        self.link = EngineLink(
            router, flusher, vocab_size=info.vocab_size, start=config.start_index, count=config.count
        )

    async def start(self, fail: Fail) -> None:
        config = self._config
        if config.coordinator_address is not None:
            self._coordinator = CoordinatorClient(config.coordinator_address, self.link.take_counts)
            await self._coordinator.start()
            self.link.waves = self._coordinator
        await self.link.start(_adopted(config.input_fd), _adopted(config.output_fd))

    async def wait_ready(self, timeout: float) -> EngineInfo:  # noqa: ASYNC109
        log.info("waiting for %d engine(s)", self._config.count)
        return await self.link.wait_ready(timeout)

    async def close(self) -> None:
        self.link.close()
        if self._coordinator is not None:
            self._coordinator.close()


class Owned:
    """`serve`: this process owns the handshake (wire b.2)."""

    def __init__(
        self, config: EngineConfig, model: str, info: ModelInfo, router: Router, flusher: Flusher
    ) -> None:
        self._config = config
        self._model = model
        self._info = info
        self._coordinator: InProcessCoordinator | None = None
        self._handshake: Handshake | None = None
        self._supervisor: Supervisor | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.must_live = config.kind != "none"
        self.link = EngineLink(router, flusher, vocab_size=info.vocab_size, count=config.size)

    async def start(self, fail: Fail) -> None:
        config = self._config
        inputs, outputs = self._listeners()
        addresses = Addresses([address_of(inputs)], [address_of(outputs)])
        if config.size > 1 and self._info.is_moe:
            await self._coordinate(addresses)
        await self.link.start(inputs, outputs)
        self._handshake = Handshake(addresses, 0, config.size)
        where = await self._handshake.start(config.host, config.rpc_port or 0)
        log.info("engines join at %s", where)
        if config.kind != "none":
            await self._spawn(int(where.rpartition(":")[2]), fail)

    async def wait_ready(self, timeout: float) -> EngineInfo:  # noqa: ASYNC109
        assert self._handshake is not None
        # Together: what goes wrong in the handshake must not wait for a registration that never comes.
        info, _ = await asyncio.gather(self.link.wait_ready(timeout), self._handshake.wait(timeout))
        return info

    async def close(self) -> None:
        if self._handshake is not None:
            self._handshake.close()
        self.link.close()
        if self._supervisor is not None:
            await self._supervisor.stop()
        if self._coordinator is not None:
            self._coordinator.close()
        if self._folder is not None:
            self._folder.cleanup()

    async def _coordinate(self, addresses: Addresses) -> None:
        """The ranks of a mixture of experts step together: somebody must tell them when."""
        from fastfront.engine.coordinator import InProcessCoordinator  # loads zmq, which only this needs

        config = self._config
        self._coordinator = InProcessCoordinator(
            config.size, None if self._all_local() else config.host, self.link.take_counts
        )
        await self._coordinator.start()
        addresses.coordinator_input, addresses.coordinator_output = self._coordinator.addresses
        self.link.waves = self._coordinator

    async def _spawn(self, port: int, fail: Fail) -> None:
        config = self._config
        words = config.arguments.get(config.kind, ())
        launch = Launch(self._model, config.host, port, config.size, config.size_local, words, config.python)
        command = command_for(config.kind, launch)
        log.info("starting the engine: %s", shlex.join(command))
        environment = env.for_child(FASTFRONT_PROGRESS="bar" if wants_bar() else "lines")
        self._supervisor = Supervisor(
            command, lambda ended: fail(StartError(ended.reason or str(ended))), environment=environment
        )
        await self._supervisor.start()

    def _all_local(self) -> bool:
        return self._config.size_local is None or self._config.size_local == self._config.size

    def _listeners(self) -> tuple[socket.socket, socket.socket]:
        """Input and output: unix sockets in a folder of their own where every engine is on this machine, else TCP."""
        config = self._config
        if not self._all_local():
            return tcp_listener(config.host), tcp_listener(config.host)
        self._folder = tempfile.TemporaryDirectory(prefix="fastfront-", dir=env.rpc_base_path())
        return unix_listener(f"{self._folder.name}/input"), unix_listener(f"{self._folder.name}/output")


def _adopted(fd: int) -> socket.socket:
    """An engine socket that the supervisor has bound."""
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        raise StartError(f"file descriptor {fd} is not a socket: {error.strerror}") from error
