"""How a process comes to its engines: on sockets that a supervisor hands over, or on its own, with engines that it
starts and watches or that join from outside."""

from __future__ import annotations

import asyncio
import logging
import shlex
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fastfront import env
from fastfront.config import Config, EngineConfig, InheritedConfig
from fastfront.engine.engine_sockets import EngineSockets, Pair
from fastfront.engine.handshake import Handshake
from fastfront.engine.link import EngineLink
from fastfront.engine.registration import EngineInfo
from fastfront.engine.supervisor import Launch, Supervisor, command_for
from fastfront.engine.wire import Addresses
from fastfront.errors import StartError
from fastfront.fast import Flusher, Router
from fastfront.flow import ModelInfo
from fastfront.progress import wants_bar

if TYPE_CHECKING:
    from fastfront.engine.coordinator import InProcessCoordinator
    from fastfront.engine.coordinator_client import CoordinatorClient

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


@dataclass(frozen=True, slots=True)
class Client:
    """Which of `count` clients of the engines this process is, and their sockets: None under a supervisor."""

    index: int
    count: int
    sockets: EngineSockets | None


def attach(config: Config, info: ModelInfo, router: Router, flusher: Flusher, client: Client) -> Attachment:
    """The attachment that the configuration asks for; nothing is opened yet."""
    if isinstance(config.engine, InheritedConfig):
        return _inherited(config.engine, info, router, flusher)
    return _own(config.engine, config.model.place, info, router, flusher, client)


def _inherited(config: InheritedConfig, info: ModelInfo, router: Router, flusher: Flusher) -> Joined:
    link = EngineLink(router, flusher, vocab_size=info.vocab_size, start=config.start_index, count=config.count)
    pair = Pair(_adopted(config.input_fd), _adopted(config.output_fd))
    return Joined(link, pair, config.coordinator_address, must_live=True)


def _own(
    config: EngineConfig, place: str | None, info: ModelInfo, router: Router, flusher: Flusher, client: Client
) -> Attachment:
    assert client.sockets is not None
    pair = client.sockets.take(client.index)
    link = EngineLink(
        router, flusher, vocab_size=info.vocab_size, count=config.size, client=client.index, clients=client.count
    )
    if client.index:
        # The first worker ends all when the engines have.
        return Joined(link, pair, client.sockets.front, must_live=False)
    # vLLM finds the model by its name; the built-in engine looks for nothing.
    model = (place if config.kind == "torch" else None) or info.root
    return Owned(config, model, info.max_model_len, link, pair, client, lockstep=info.is_moe)


class Joined:
    """Engines that somebody else starts, watches and ends: vLLM's supervisor (wire a.2), or the first worker."""

    def __init__(self, link: EngineLink, pair: Pair, coordinator_address: str | None, *, must_live: bool) -> None:
        self.link = link
        self.must_live = must_live
        self._pair = pair
        self._coordinator_address = coordinator_address
        self._coordinator: CoordinatorClient | None = None

    async def start(self, fail: Fail) -> None:
        if self._coordinator_address is not None:
            from fastfront.engine.coordinator_client import CoordinatorClient  # loads zmq, which only this needs

            self._coordinator = CoordinatorClient(self._coordinator_address, self.link.take_counts)
            await self._coordinator.start()
            self.link.waves = self._coordinator
        await self.link.start(*self._pair)

    async def wait_ready(self, timeout: float) -> EngineInfo:  # noqa: ASYNC109
        log.info("waiting for %d engine(s)", len(self.link.balancer.loads))
        return await self.link.wait_ready(timeout)

    async def close(self) -> None:
        self.link.close()
        if self._coordinator is not None:
            self._coordinator.close()


class Owned:
    """`serve`, the first worker: it owns the handshake (wire b.2), in which engines learn of every worker's sockets."""

    def __init__(
        self,
        config: EngineConfig,
        model: str,
        max_model_len: int,
        link: EngineLink,
        pair: Pair,
        client: Client,
        *,
        lockstep: bool,
    ) -> None:
        assert client.sockets is not None
        self.link = link
        self.must_live = config.kind != "none"
        self._config = config
        self._model = model
        self._max_model_len = max_model_len
        self._pair = pair
        self._sockets = client.sockets
        self._clients = client.count
        self._lockstep = lockstep
        self._coordinator: InProcessCoordinator | None = None
        self._handshake: Handshake | None = None
        self._supervisor: Supervisor | None = None

    async def start(self, fail: Fail) -> None:
        config = self._config
        addresses = self._sockets.addresses
        if config.size > 1 and (self._lockstep or self._clients > 1):
            await self._coordinate(addresses)
        await self.link.start(*self._pair)
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

    async def _coordinate(self, addresses: Addresses) -> None:
        """Somebody must tell a mixture of experts when to step, and several workers how busy all ranks are."""
        from fastfront.engine.coordinator import InProcessCoordinator  # loads zmq, which only this needs

        self._coordinator = InProcessCoordinator(
            self._config.size,
            self._sockets.host,
            self.link.take_counts,
            front=self._sockets.front,
            lockstep=self._lockstep,
        )
        await self._coordinator.start()
        addresses.coordinator_input, addresses.coordinator_output = self._coordinator.addresses
        self.link.waves = self._coordinator

    async def _spawn(self, port: int, fail: Fail) -> None:
        config = self._config
        words = config.arguments.get(config.kind, ())
        launch = Launch(
            self._model,
            config.host,
            port,
            size=config.size,
            size_local=config.size_local,
            arguments=words,
            python=config.python,
            max_model_len=self._max_model_len,
        )
        command = command_for(config.kind, launch)
        log.info("starting the engine: %s", shlex.join(command))
        environment = env.for_child(FASTFRONT_PROGRESS="bar" if wants_bar() else "lines")
        self._supervisor = Supervisor(
            command, lambda ended: fail(StartError(ended.reason or str(ended))), environment=environment
        )
        await self._supervisor.start()


def _adopted(fd: int) -> socket.socket:
    """An engine socket that the supervisor has bound."""
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        raise StartError(f"file descriptor {fd} is not a socket: {error.strerror}") from error
