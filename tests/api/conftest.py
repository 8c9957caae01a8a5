"""Fixtures of the API's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastfront.prompt.load import PromptSettings, load_prompter
from tests.api.fakes import Client


@pytest.fixture
def client() -> Client:
    """Handlers in front of a fake pipeline."""
    return Client()


@pytest.fixture(scope="session")
def qwen(peers: Path) -> Iterator[Callable[..., Client]]:
    """Makes clients whose prompts are qwen3's own; keyword: max_model_len."""
    made: list[Any] = []

    def make(max_model_len: int, names: tuple[str, ...] = ("m",), **settings: Any) -> Client:
        prompter = load_prompter(
            PromptSettings(
                str(peers / "models" / "qwen3"), served_model_name=names, max_model_len=max_model_len, **settings
            )
        )
        made.append(prompter)
        return Client(prompter.info, prompter)

    yield make
    for prompter in made:
        asyncio.run(prompter.close())
