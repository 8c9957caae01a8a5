"""A start from nothing but a name, and starts in vain: one line that says what to do, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from fastfront.config import DEFAULT_MODEL
from fastfront.prompt.default_model import GGUF
from tests.conftest import Start, Started
from tests.ggufs import byte_level_values, write_gguf

pytestmark = pytest.mark.peer


class Place:
    """A world of its own: caches, folder for temporary files, and a mark by which its processes are known."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.folder, self._start = folder, start
        self.mark = uuid.uuid4().hex
        self.cache, self.temporary = folder / "cache", folder / "tmp"
        self.temporary.mkdir()
        self.env = {
            "XDG_CACHE_HOME": str(self.cache), "HF_HOME": str(folder / "hf"), "TMPDIR": str(self.temporary),
            "HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "OMP_NUM_THREADS": "1", "FASTFRONT_TEST_MARK": self.mark,
        }  # fmt: skip

    def serve(self, *words: str | Path, env: dict[str, str] | None = None, python: Sequence[str] = ()) -> Started:
        """`fastfront serve` with these words."""
        command = [*(python or (sys.executable, "-m", "fastfront")), "serve", *words]
        return self._start(command, env={**self.env, **(env or {})})

    def alone(self) -> bool:
        """Whether no process of this world is left, and no temporary file."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (process / "environ").read_bytes():
                    return False
            except OSError:
                continue
        return list(self.temporary.iterdir()) == []

    def fails(self, started: Started, says: str, code: int = 1) -> None:
        """It ends with this code and one line that says this."""
        assert started.process.wait(120) == code, started.output()
        *_, last = started.output().splitlines()
        assert last.startswith("fastfront serve: error: ")
        assert says in last
        assert "Traceback" not in started.output()
        assert sum(says in line for line in started.output().splitlines()) == 1
        assert self.alone()


@pytest.fixture
def place(tmp_path: Path, start: Start) -> Place:
    """A world of its own."""
    return Place(tmp_path, start)


def put_default(place: Place, peers: Path) -> None:
    """The default model, as an earlier start has left it in the cache."""
    models = place.cache / "fastfront" / "models"
    models.mkdir(parents=True)
    shutil.copy(peers / "smollm2.gguf", models / GGUF)


def test_no_model_no_gpu_no_network(place: Place, peers: Path, free_port: Callable[[], int]) -> None:
    put_default(place, peers)
    port = free_port()
    started = place.serve("--port", str(port), "--max-model-len", "512", "--max-num-seqs", "4")
    base = f"http://127.0.0.1:{port}"
    started.wait_http(f"{base}/health")
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0)
    question: Any = [{"role": "user", "content": "What is the capital of France?"}]
    answer = client.chat.completions.create(model=DEFAULT_MODEL, messages=question, temperature=0)
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert [model.id for model in client.models.list().data] == [DEFAULT_MODEL]
    log = started.output()
    assert "engine: the built-in one, on torch" in log
    assert f"try: curl {base}/v1/chat/completions -H 'content-type: application/json' -d '{{\"messages\"" in log
    assert started.end() == 0
    assert place.alone()


def test_a_folder(place: Place, peers: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    words = ["--port", str(port), "--max-model-len", "256", "--dtype", "half"]
    started = place.serve(peers / "models" / "smollm2", *words)
    started.wait_http(f"http://127.0.0.1:{port}/health")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    done = client.completions.create(model=model, prompt="The capital of France is", temperature=0)
    assert done.choices[0].text.startswith(" Paris")
    assert "engine: float16, up to 256 tokens" in started.output()
    assert started.end() == 0
    assert place.alone()


def test_nothing_to_serve(place: Place) -> None:
    place.fails(place.serve("--port", "0"), f"cannot get the default model {DEFAULT_MODEL}: no copy in ")


def test_ended_in_the_middle_of_a_download(place: Place) -> None:
    with socket.socket() as index:  # takes connections and says nothing
        index.bind(("127.0.0.1", 0))
        index.listen()
        pip = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}/simple/"}
        started = place.serve("--port", "0", env={**pip, "PIP_CONFIG_FILE": os.devnull})
        models = place.cache / "fastfront" / "models"
        index.settimeout(60)
        index.accept()[0].close()
        started.process.send_signal(signal.SIGTERM)
        assert started.process.wait(30) == 0
    assert place.alone()
    assert {path.name for path in models.iterdir()} == {".lock"}


def model_folder(folder: Path, peers: Path, **config: Any) -> Path:
    """A folder with smollm2's tokenizer, this config and no weights."""
    folder.mkdir()
    given = json.loads((peers / "models" / "smollm2" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**given, **config}))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).symlink_to(peers / "models" / "smollm2" / name)
    return folder


def test_models_that_cannot_be_loaded(place: Place, peers: Path, tmp_path: Path) -> None:
    other = model_folder(tmp_path / "other", peers, architectures=["RwkvForCausalLM"], model_type="rwkv")
    place.fails(place.serve(other, "--engine", "torch", "--port", "0"), "RwkvForCausalLM")
    empty = model_folder(tmp_path / "empty", peers)
    place.fails(place.serve(empty, "--engine", "torch", "--port", "0"), "safetensors")
    place.fails(place.serve(tmp_path / "none", "--port", "0"), "neither a folder nor a GGUF file here, nor a hub name")
    place.fails(place.serve("org/none", "--engine", "torch", "--port", "0"), "hub: not asked, HF_HUB_OFFLINE is set")


def test_gguf_files_that_cannot_be_loaded(place: Place, peers: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with (peers / "smollm2.gguf").open("rb") as whole:
        cut.write_bytes(whole.read(3_000_000))
    place.fails(place.serve(cut, "--port", "0"), "not downloaded whole")
    strange = write_gguf(tmp_path / "strange.gguf", byte_level_values(), architecture="strange")
    place.fails(place.serve(strange, "--port", "0"), "strange.context_length is not there")
    rwkv = write_gguf(tmp_path / "rwkv.gguf", byte_level_values(**{"rwkv6.context_length": 64}), architecture="rwkv6")
    place.fails(place.serve(rwkv, "--port", "0"), "rwkv6")
    vllm = place.serve(cut, "--engine", "vllm", "--port", "0")
    place.fails(vllm, "vLLM 0.32 reads no GGUF files; the built-in engine does: --engine torch")


def test_too_little_memory(place: Place, peers: Path) -> None:
    words = ["--engine", "torch", "--port", "0", "--num-gpu-blocks-override", "100000000"]
    place.fails(place.serve(peers / "models" / "smollm2", *words), "too little memory")


def test_no_torch(place: Place, peers: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from fastfront.cli.main import main; sys.exit(main(sys.argv[1:]))"
    started = place.serve(peers / "smollm2.gguf", "--port", "0", python=(sys.executable, "-c", code))
    place.fails(started, "needs the package torch, which ")


def test_a_port_in_use(place: Place, peers: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        place.fails(place.serve("--port", port), f"cannot listen on 127.0.0.1:{port}: Address already in use; --port")


def test_options_that_the_engine_does_not_have(place: Place, peers: Path) -> None:
    words = ["--engine", "torch", "--port", "0", "--quantization", "awq", "--no-such"]
    started = place.serve(peers / "models" / "smollm2", *words)
    place.fails(started, "the built-in engine does not have these options: --quantization, --no-such", 2)
    path = place.folder / "s"
    started = place.serve(peers / "models" / "smollm2", "--engine", "torch", "-dp", "2", "--uds", path)
    place.fails(started, "the built-in engine is one engine: --data-parallel-size 2 is not served", 2)
    assert not path.exists()
