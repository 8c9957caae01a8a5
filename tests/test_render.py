"""`fastfront render` as a process: what it loads, what it answers, how it ends, and vllm-rs beside it."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DIRECT, ROOT, Start, Started
from tests.hub import hub_of

RENDER = "/v1/chat/completions/render"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


def post(base: str, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    """Status and JSON of the answer; bytes are sent as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json", **headers})
    try:
        with DIRECT.open(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def get(base: str, path: str) -> tuple[int, bytes]:
    """Status and body."""
    try:
        with DIRECT.open(base + path, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture(scope="module")
def served(
    peers: Path, fastfront: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A render server of qwen3, as the peers are started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--served-model-name", "m", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    log = tmp_path_factory.mktemp("render") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*fastfront, "render", peers / "models" / "qwen3", *words, "--port", str(port)],
            stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
    started = Started(process, log)
    try:
        started.wait_http(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        assert started.end() == 0, started.output()


def test_every_route(served: str) -> None:
    for path in ("/health", "/ping", "/version", "/load", "/v1/models", "/metrics", "/tokenizer_info"):
        assert get(served, path)[0] == 200, path
    assert json.loads(get(served, "/version")[1])["version"] == "0.32.0"
    assert json.loads(get(served, "/tokenizer_info")[1])["tokenizer_class"] == "Qwen2Tokenizer"
    assert post(served, "/tokenize", {"prompt": "Hello world"})[1]["tokens"] == [9707, 1879]
    assert post(served, "/detokenize", {"tokens": [9707, 1879]})[1] == {"prompt": "Hello world"}
    status, rendered = post(served, "/v1/completions/render", {"prompt": "Hello world"})
    assert (status, rendered[0]["token_ids"]) == (200, [9707, 1879])
    whole = {"generate_responses": [{"choices": [{"index": 0, "token_ids": [9707, 1879]}]}]}
    assert post(served, "/v1/completions/derender", whole)[1]["choices"][0]["text"] == "Hello world"
    for path in ("/v1/chat/completions", "/v1/completions"):
        assert post(served, path, HELLO)[0] == 404
    counts = get(served, "/metrics")[1].decode()
    assert 'http_requests_total{handler="/v1/completions/derender",method="POST",status="2xx"} 1.0' in counts
    assert 'http_requests_total{handler="none",method="POST",status="4xx"} 2.0' in counts
    assert 'handler="/health"' not in counts


BAD = {
    "broken JSON": (b'{"messages": [', 400, "JSON decode error"),
    "not UTF-8": (b'{"messages": [{"role": "user", "content": "\xff"}]}', 400, "error"),
    "no object": (b"[]", 400, "Input should be a valid dictionary"),
    "wrong type": ({**HELLO, "max_tokens": "many"}, 400, "body.max_tokens"),
    "unknown model": ({**HELLO, "model": "nope"}, 404, "The model `nope` does not exist"),
    "no messages": ({"messages": []}, 400, "empty conversation"),
    "lone surrogate": (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, "lone surrogate"),
    "too long": (
        {"messages": [{"role": "user", "content": "word " * 50000}]}, 400,
        "maximum context length is 40960 tokens. However, your prompt contains 50009 input tokens",
    ),
    "too many tokens": ({**HELLO, "max_tokens": 40961}, 400, "max_model_len=40960"),
    "untrusted template": ({**HELLO, "chat_template": "x"}, 400, "--trust-request-chat-template"),
    "unknown tool": (
        {**HELLO, "tools": [{"type": "function", "function": {"name": "f"}}],
         "tool_choice": {"type": "function", "function": {"name": "g"}}}, 400, "does not match any",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_chats(served: str, name: str) -> None:
    body, status, says = BAD[name]
    got, answer = post(served, RENDER, body)
    assert got == status
    assert answer["error"]["code"] == status
    assert says in answer["error"]["message"]


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "Either prompt or prompt_embeds must be provided and non-empty"),
        ([], "at least one prompt"),
        ([[]], "cannot be empty"),
        ([151936], "151936 is out of vocabulary (ids go from 0 to 151935)"),
        ([-1], "body.prompt"),
        ([1, "a"], "a list of one kind"),
    ],
)
def test_bad_prompts(served: str, prompt: Any, says: str) -> None:
    status, answer = post(served, "/v1/completions/render", {"prompt": prompt})
    assert status == 400
    assert says in answer["error"]["message"]


def test_a_body_of_33_mib(served: str) -> None:
    status, answer = post(served, RENDER, b" " * (33 << 20))
    assert status == 413
    assert str(32 << 20) in answer["error"]["message"]


def _words() -> Any:
    rng = random.Random(3)
    return {"prompt": " ".join("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(250_000))}


def _lax() -> Any:
    """Half a million numbers as texts, which each must be made one."""
    return {"prompt": "x", "stop_token_ids": ["1"] * 500_000}


def _probabilities() -> Any:
    rivals = [{"token_id": 2, "logprob": -1.0}] * 20
    entries = [{"token_id": 1, "logprob": -1.0, "top_logprobs": rivals}] * 10_000
    choice = {"index": 0, "token_ids": [1] * 10_000, "logprobs": {"content": entries}}
    return {"generate_responses": [{"choices": [choice]}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [("/tokenize", _words), ("/v1/completions/render", _lax), ("/v1/completions/derender", _probabilities)],
)
def test_health_is_answered_meanwhile(served: str, path: str, body: Callable[[], Any]) -> None:
    """Megabytes are worked on; the health checks that began after that have ended before it."""
    data = json.dumps(body()).encode()
    ended: list[str] = []

    def much() -> None:
        assert post(served, path, data)[0] == 200
        ended.append("much")

    thread = threading.Thread(target=much)
    thread.start()
    while thread.is_alive() and len(ended) < 3:
        assert get(served, "/health")[0] == 200
        ended.append("health")
    thread.join()
    assert ended[:3] == ["health"] * 3
    assert "much" in ended


LOADED = """
import os, signal, sys, threading, time, urllib.request
from fastfront.cli.main import main

def look(port):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(1200):
        try:
            body = b'{"messages": [{"role": "user", "content": "Hello"}]}'
            url = f"http://127.0.0.1:{port}/v1/chat/completions/render"
            opener.open(urllib.request.Request(url, body, {"content-type": "application/json"})).read()
            break
        except OSError:
            time.sleep(0.05)
    heavy = ("torch", "zmq", "vllm", "sglang", "transformers", "numpy", "fastfront.engine", "fastfront.pipeline")
    print([name for name in heavy if name in sys.modules], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=look, args=(sys.argv[-1],), daemon=True).start()
sys.exit(main(["render", *sys.argv[1:-1], "--port", sys.argv[-1]]))
"""


def test_it_loads_no_engine(peers: Path, free_port: Callable[[], int]) -> None:
    """In a fresh interpreter, while it serves; then SIGTERM ends it with 0."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, peers / "models" / "qwen3", str(free_port())],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def _chats(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Conversations of one and of many turns, with and without tools, in many scripts."""
    texts = (
        "Hello!", "What is the capital of country 17?", " leading and trailing ", "Zürich façade 👩‍👩‍👧 🫠🇩🇪",
        "世界,你好!ひらがな", "Привет мир", "a  b   c\n\n\nd\te", "def f(x):\n    return x ** 2\n",
        "<|im_start|>system\nno<|im_end|>", "<think>x</think>",
        '{"a": [1, 2.5, null], "é": "\\u00e9"}', "हिन्दी ไทย العربية", "x" * 300, "1,000,000 3.14159", "",
    )  # fmt: skip
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'Looks up "weather" in <a place> & a day: é 世',
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
                "required": ["place"],
            },
        },
    }

    def text() -> str:
        return "".join(rng.choices(texts, k=rng.randint(1, 3))) or "ok"

    for number in range(40):
        messages: list[dict[str, Any]] = [{"role": "system", "content": text()}] if rng.random() < 0.5 else []
        for _ in range(rng.randint(1, 4)):
            messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
        messages.pop()
        chat: dict[str, Any] = {"model": "m", "messages": messages}
        if number % 3 == 1:
            chat["tools"] = [tool, {"type": "function", "function": {"name": f"other_{number}"}}]
        if number % 6 == 4:
            call = {"name": "get_weather", "arguments": json.dumps({"place": text(), "days": [1, 2]})}
            calls = [{"id": "c1", "type": "function", "function": call}]
            messages += [
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": text()},
            ]
        if number % 5 == 2:
            chat["chat_template_kwargs"] = {"enable_thinking": False}
        if number % 7 == 3:
            # One part: vllm-rs joins several with nothing, vLLM's Python frontend and we with a line end.
            messages[-1] = {**messages[-1], "content": [{"type": "text", "text": text()}]}
        yield chat


@pytest.mark.peer
def test_ids_as_vllm_rs(peers: Path, served: str, start: Start, free_port: Callable[[], int]) -> None:
    port = free_port()
    words = ["--served-model-name", "m", "--port", str(port), "--tool-call-parser", "hermes"]
    theirs = start(
        [peers / "vllm-rs", "render", peers / "models" / "qwen3", *words, "--reasoning-parser", "qwen3"],
        {"HF_HUB_OFFLINE": "1"},
    )
    base = f"http://127.0.0.1:{port}"
    theirs.wait_http(f"{base}/health")
    different = []
    for chat in _chats(random.Random(11)):
        (status, ours), (their_status, peer) = post(served, RENDER, chat), post(base, RENDER, chat)
        assert (status, their_status) == (200, 200), (ours, peer)
        if ours["token_ids"] != peer["token_ids"]:
            different.append(chat)
    assert not different


@pytest.mark.peer
def test_a_name_on_the_hub(
    peers: Path, fastfront: list[str], start: Start, free_port: Callable[[], int], tmp_path: Path
) -> None:
    """Fetched from the hub, then served from its client's cache; where neither has it one line says so."""
    folder = peers / "models" / "smollm2"
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    files = {name: (folder / name).read_bytes() for name in names}
    ids = None
    with hub_of("org/small", files) as (address, asked):
        for offline in ("0", "1"):
            env = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": offline}
            base = f"http://127.0.0.1:{(port := free_port())}"
            started = start([*fastfront, "render", "org/small", "--port", str(port)], env=env)
            started.wait_http(base + "/health")
            status, answer = post(base, RENDER, HELLO)
            assert status == 200
            assert ids in (None, answer["token_ids"])
            ids = answer["token_ids"]
            assert started.end() == 0
            assert bool(asked) == (offline == "0")
            asked.clear()
    missing = start([*fastfront, "render", "org/other", "--port", str(free_port())], env=env)
    assert missing.process.wait(60) == 1
    assert missing.output().splitlines()[-1].startswith("fastfront render: error: cannot find the model 'org/other'")
