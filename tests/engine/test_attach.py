"""What a process attaches to: sockets that somebody hands over, and the coordinator whose address it is given."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastfront.config import ApiConfig, Config, EngineConfig, HttpConfig, InheritedConfig, ModelConfig
from fastfront.engine.attach import Client, Joined, Owned, attach
from fastfront.engine.coordinator import InProcessCoordinator
from fastfront.engine.coordinator_client import CoordinatorClient
from fastfront.engine.engine_sockets import EngineSockets
from tests.engine.coordination import until

Run = Callable[[Coroutine[Any, Any, None]], None]


def attachment(engine: EngineConfig | InheritedConfig, client: Client, *, is_moe: bool = False) -> Joined | Owned:
    """For a model of 1000 tokens."""
    info: Any = SimpleNamespace(vocab_size=1000, root="m", max_model_len=8192, is_moe=is_moe)
    nothing: Any = SimpleNamespace(close=lambda request_id: None, flush=lambda: None)
    config = Config(http=HttpConfig(), model=ModelConfig(), api=ApiConfig(), engine=engine)
    attached = attach(config, info, nothing, nothing, client)
    assert isinstance(attached, (Joined, Owned))
    return attached


def test_a_supervisors_coordinator_is_listened_to(tmp_path: Path, run: Run) -> None:
    async def scene() -> None:
        coordinator = InProcessCoordinator(2, front=f"ipc://{tmp_path}/front")
        await coordinator.start()
        coordinator.on_start_wave(0, 5)
        fds = []
        for name in ("input", "output"):
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(str(tmp_path / name))
            fds.append(sock.detach())
        inherited = InheritedConfig(
            input_fd=fds[0], output_fd=fds[1], count=2, coordinator_address=f"ipc://{tmp_path}/front"
        )
        attached = attachment(inherited, Client(0, 1, None))
        await attached.start(lambda error: None)
        waves = attached.link.waves
        assert isinstance(waves, CoordinatorClient)
        await until(lambda: waves.wave == 5 and waves.running)
        await attached.close()
        coordinator.close()

    run(scene())


@pytest.mark.parametrize(
    ("size", "is_moe", "workers", "coordinated"),
    [(1, True, 1, False), (1, True, 2, False), (2, False, 1, False), (2, True, 1, True), (2, False, 2, True)],
)
def test_who_needs_a_coordinator(
    size: int, is_moe: bool, workers: int, coordinated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", str(tmp_path))

    async def scene() -> None:
        engine = EngineConfig(kind="none", size=size)
        sockets = [EngineSockets(engine, workers) for _ in range(workers)]  # a fork gives each worker its own
        for its in sockets[1:]:
            its.front = sockets[0].front
        attached = [
            attachment(engine, Client(index, workers, its), is_moe=is_moe) for index, its in enumerate(sockets)
        ]
        for one in attached:
            await one.start(lambda error: None)
        kinds = [type(one.link.waves) for one in attached]
        if coordinated:
            assert kinds == [InProcessCoordinator, *[CoordinatorClient] * (workers - 1)]
            # For a dense model nobody is woken: there it only passes loads on.
            assert attached[0].link.waves.running is not is_moe  # type: ignore[union-attr]
        else:
            assert kinds == [type(None)] * workers
        assert [one.must_live for one in attached] == [False] * workers
        for one in reversed(attached):
            await one.close()
        await asyncio.sleep(0)
        for its in sockets:
            its.remove()

    run(scene())
    assert list(tmp_path.iterdir()) == []
