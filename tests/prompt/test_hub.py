"""Folders from the hub, by its own client, from a hub on this machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from fastfront.errors import StartError
from fastfront.prompt import hub
from fastfront.prompt.hub import NotThereError, Wish, find_folder, from_cache, from_hub
from tests.hub import COMMIT, hub_of

NAME = "org/model"
WHOLE = Wish(weights=True)
FILES = {
    "config.json": b'{"vocab_size": 5}', "tokenizer.json": b"{}", "tokenizer_config.json": b'{"chat_template": "T"}',
    "model.safetensors": b"w" * 3000, "consolidated.safetensors": b"c", "original/x.safetensors": b"o",
    "README.md": b"r", "pytorch_model.bin": b"b",
}  # fmt: skip


def use(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """The hub's client asks this address."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    use(monkeypatch, "http://127.0.0.1:9")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a hub with FILES is asked for."""
    with hub_of(NAME, FILES) as (address, asked):
        use(monkeypatch, address)
        yield asked


def test_small_files_first_and_weights_when_they_are_wanted(asked: list[str], tmp_path: Path) -> None:
    small = find_folder(NAME, Wish())
    assert {path.name for path in small.iterdir()} == {"config.json", "tokenizer.json", "tokenizer_config.json"}
    assert find_folder(NAME, WHOLE) == small == tmp_path / "hub" / "models--org--model" / "snapshots" / COMMIT
    assert (small / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert not (small / "consolidated.safetensors").exists()
    assert not (small / "original").exists()
    asked.clear()
    assert find_folder(NAME, WHOLE) == small
    assert asked == []


def test_a_folder_of_the_users_own(asked: list[str], tmp_path: Path) -> None:
    assert find_folder(NAME, Wish(download_dir=str(tmp_path / "own"))).is_relative_to(tmp_path / "own")


def test_shards_must_all_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}).encode()
    files = {**FILES, "model.safetensors.index.json": index, "1.safetensors": b"1", "2.safetensors": b"2"}
    with hub_of(NAME, files) as (address, asked):
        use(monkeypatch, address)
        folder = find_folder(NAME, WHOLE)
        (folder / "2.safetensors").unlink()
        asked.clear()
        assert (find_folder(NAME, WHOLE) / "2.safetensors").read_bytes() == b"2"
        assert asked


def test_offline_the_hub_is_not_asked(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NotThereError, match="HF_HUB_OFFLINE is set"):
        from_hub(NAME, WHOLE)
    with pytest.raises(StartError, match=r"cannot find the model 'org/model': no such .*; cache: .*; hub: not asked"):
        find_folder(NAME, WHOLE)
    assert asked == []


def test_an_unreachable_hub_and_an_unknown_name(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartError, match=r"'org/other': .*; hub: .*404") as caught:
        find_folder("org/other", WHOLE)
    assert "\n" not in str(caught.value)
    find_folder(NAME, Wish())
    use(monkeypatch, "http://127.0.0.1:9")
    assert find_folder(NAME, Wish()) == from_cache(NAME, Wish())
    with pytest.raises(StartError, match=r"cache: .*not whole; hub: .*refused"):
        find_folder(NAME, WHOLE)


def test_a_hub_that_is_silent_does_not_hold_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HUB_TIMEOUT", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        use(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(NotThereError, match="timed out"):
            from_hub(NAME, WHOLE)


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="neither a folder nor a GGUF file here, nor a hub name"):
        find_folder("/no/such/folder/anywhere", Wish())
    with pytest.raises(StartError, match=r"no config\.json"):
        find_folder(str(tmp_path), Wish())
    assert find_folder(str(tmp_path), Wish(need_config=False)) == tmp_path
    assert huggingface_hub.constants.ENDPOINT == "http://127.0.0.1:9"
