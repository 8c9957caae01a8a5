"""What `serve` decides before anything runs: which engine it starts, and where the model lies.

In the main thread and before there is a loop, so that a signal ends a long download, and leaves nothing of it behind.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from fastfront.config import Config, EngineConfig, ModelConfig
from fastfront.engine.choose import Choice, check_words, choose
from fastfront.errors import ConfigError
from fastfront.gguf_file import is_gguf
from fastfront.prompt.default_model import find_default_model
from fastfront.prompt.hub import Wish, find_folder

log = logging.getLogger(__name__)


def settle(config: Config) -> Config:
    """The configuration with one kind of engine and, where this process looks for the model, its place. StartError."""
    engine = config.engine
    if not isinstance(engine, EngineConfig):
        return config
    choice, place = _default(config.model, engine) if config.model.is_default else _named(config.model, engine)
    if choice.kind != "none":
        log.info("engine: %s", choice.why)
    return replace(
        config,
        engine=replace(engine, kind=choice.kind),
        model=replace(config.model, place=None if place is None else str(place)),
    )


def _named(model: ModelConfig, engine: EngineConfig) -> tuple[Choice, Path | None]:
    """For a model that was named: the built-in engine gets a place, vLLM finds what it wants by itself."""
    local = Path(model.model).expanduser()
    gguf = is_gguf(local)
    choice = _choose(engine, gguf)
    if gguf or choice.kind != "torch":
        return choice, local if gguf else None
    return choice, find_folder(model.model, _wish(model, choice))


def _default(model: ModelConfig, engine: EngineConfig) -> tuple[Choice, Path]:
    """For the default model: what form there is of it may decide the engine."""
    choice = _choose(engine, False)
    place = find_default_model(_wish(model, choice))
    if place.is_file():
        choice = _choose(engine, True)
    return choice, place


def _choose(engine: EngineConfig, gguf: bool) -> Choice:
    choice = choose(engine.kind, engine.python, gguf=gguf)
    if choice.kind == "torch":
        if engine.size > 1:
            raise ConfigError(f"the built-in engine is one engine: --data-parallel-size {engine.size} is not served")
        check_words(engine.arguments["torch"])
    return choice


def _wish(model: ModelConfig, choice: Choice) -> Wish:
    return Wish(model.revision, model.download_dir, model.hf_token, weights=choice.kind == "torch")
