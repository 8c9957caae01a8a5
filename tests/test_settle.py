"""What `serve` decides before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastfront import settle as module
from fastfront.config import ApiConfig, Config, EngineConfig, HttpConfig, InheritedConfig, ModelConfig
from fastfront.engine.choose import Choice
from fastfront.errors import ConfigError, StartError
from fastfront.prompt.hub import Wish
from fastfront.settle import settle

WORDS = {"torch": (), "vllm": ()}


class World:
    """What is installed, and where the default model is found; keeps what was looked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, default: Path, kind: str = "torch") -> None:
        self.default, self.kind = default, kind
        self.looked: list[tuple[str, Wish]] = []
        monkeypatch.setattr(module, "choose", self.choose)
        monkeypatch.setattr(module, "find_default_model", self.find_default)
        monkeypatch.setattr(module, "find_folder", self.find)

    def choose(self, asked: str, python: str, *, gguf: bool) -> Choice:
        """As engine.choose does it, with `kind` for auto."""
        if gguf and asked == "vllm":
            raise StartError("no GGUF files")
        kind = self.kind if asked == "auto" else asked
        return Choice("torch" if gguf and asked == "auto" else kind, "because")  # type: ignore[arg-type]

    def find_default(self, wish: Wish) -> Path:
        self.looked.append(("default", wish))
        return self.default

    def find(self, name: str, wish: Wish) -> Path:
        self.looked.append((name, wish))
        return Path("/snapshot")


def config(model: ModelConfig, **engine: object) -> Config:
    return Config(
        http=HttpConfig(), model=model, api=ApiConfig(), engine=EngineConfig(**{"arguments": WORDS, **engine})  # type: ignore[arg-type]
    )


def settled(given: Config) -> tuple[str, str | None]:
    """The engine's kind and the model's place."""
    result = settle(given)
    assert isinstance(result.engine, EngineConfig)
    assert result.model.names == given.model.names
    return result.engine.kind, result.model.place


def test_a_named_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path)
    model = ModelConfig(model="org/name", revision="r", hf_token="t", download_dir="d")
    assert settled(config(model)) == ("torch", "/snapshot")
    assert world.looked == [("org/name", Wish("r", "d", "t", True, True))]
    for kind in ("vllm", "mock", "none"):
        assert settled(config(model, kind=kind)) == (kind, None), "others find what they want by themselves"
    assert len(world.looked) == 1


def test_a_gguf_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path, "vllm")
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    model = ModelConfig(model=str(file))
    assert settled(config(model)) == ("torch", str(file))
    assert settled(config(model, kind="mock")) == ("mock", str(file))
    with pytest.raises(StartError, match="no GGUF files"):
        settle(config(model, kind="vllm"))
    assert world.looked == []


def test_the_default_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = ModelConfig(is_default=True)
    world = World(monkeypatch, tmp_path)
    assert settled(config(model)) == ("torch", str(tmp_path))
    assert settled(config(model, kind="mock")) == ("mock", str(tmp_path))
    assert [wish.weights for _, wish in world.looked] == [True, False]
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    World(monkeypatch, file, "vllm")
    assert settled(config(model)) == ("torch", str(file)), "there is only a form of it that vLLM does not read"
    with pytest.raises(StartError, match="no GGUF files"):
        settle(config(model, kind="vllm"))


def test_words_are_checked_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path)
    for model in (ModelConfig(is_default=True), ModelConfig(model="org/name")):
        with pytest.raises(ConfigError, match="does not have these options: --no-such"):
            settle(config(model, arguments={"torch": ("--no-such",), "vllm": ()}))
        with pytest.raises(ConfigError, match="the built-in engine is one engine"):
            settle(config(model, size=2))
    assert world.looked == []


def test_under_a_supervisor_nothing_is_decided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    World(monkeypatch, tmp_path)
    engine = InheritedConfig(input_fd=1, output_fd=2)
    given = Config(http=HttpConfig(), model=ModelConfig(model="m"), api=ApiConfig(), engine=engine)
    assert settle(given) is given
