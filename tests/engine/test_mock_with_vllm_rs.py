"""The mock engine behind vLLM's own Rust frontend, where it must do as well as the reference mock."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request

import pytest

from tests.conftest import DIRECT, Started

Serve = Callable[..., str]
PLAIN = ("--tool-call-parser", "none", "--reasoning-parser", "none")


@pytest.fixture
def serve(start: Callable[..., Started], peers: Path, free_port: Callable[[], int]) -> Serve:
    """serve(*mock_flags, ranks=, mock=, rs=): both started and ready; the base URL."""

    def begin(
        *flags: str | Path,
        ranks: int = 1,
        mock: tuple[str | Path, ...] = ("-m", "fastfront.cli.mock_engine"),
        rs: tuple[str, ...] = PLAIN,
    ) -> str:
        port, rpc = free_port(), free_port()
        frontend = start(
            [
                *(peers / "vllm-rs", "serve", peers / "models/qwen3", "--served-model-name", "m"),
                *("--port", port, "--data-parallel-size", ranks, "--data-parallel-size-local", 0),
                *("--data-parallel-rpc-port", rpc, *rs),
            ],
            env={"HF_HUB_OFFLINE": "1", "VLLM_SERVER_DEV_MODE": "1"},
        )
        size = ("--data-parallel-size", ranks) if ranks > 1 else ()
        start([sys.executable, *mock, "--handshake", f"tcp://127.0.0.1:{rpc}", *size, *flags])
        frontend.wait_http(f"http://127.0.0.1:{port}/health")
        return f"http://127.0.0.1:{port}"

    return begin


def ask(url: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """The status and body of a POST."""
    data = json.dumps(body or {}).encode()
    request = Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method="POST")
    try:
        with DIRECT.open(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def text(base: str, api: str, *, stream: bool, headers: dict[str, str] | None = None, **fields: Any) -> tuple[str, int]:
    """The generated text and its count of tokens."""
    body: dict[str, Any] = {"model": "m", "stream": stream, "temperature": 0, **fields}
    if api == "completions":
        body["prompt"] = "Hello"
    else:
        body["messages"] = [{"role": "user", "content": "Hello"}]
        api = "chat/completions"
    if stream:
        body["stream_options"] = {"include_usage": True}
    status, raw = ask(f"{base}/v1/{api}", body, headers)
    assert status == 200, raw
    if not stream:
        events = [json.loads(raw)]
    else:
        *lines, done = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: ")]
        assert done == "[DONE]"
        events = [json.loads(line) for line in lines]
    choices = [choice for event in events for choice in event["choices"]]
    pieces = [
        choice.get("text") or (choice.get("message") or choice.get("delta") or {}).get("content") for choice in choices
    ]
    return "".join(piece or "" for piece in pieces), events[-1]["usage"]["completion_tokens"]


def test_completions_and_chat(serve: Serve, tmp_path: Path) -> None:
    scripts = tmp_path / "scripts.json"
    scripts.write_text(json.dumps({"5": {"steps": [[9707], [11, 1879], [0]], "finish": "length"}}))
    base = serve("--scripts", scripts, "--stats", "--full-arrays")
    for api in ("completions", "chat"):
        for stream in (False, True):
            assert text(base, api, stream=stream, seed=5, max_tokens=9) == ("Hello, world!", 4)
            assert text(base, api, stream=stream, max_tokens=40, ignore_eos=True)[1] == 40


@pytest.mark.parametrize("moe", [False, True])
def test_ranks(serve: Serve, tmp_path: Path, moe: bool) -> None:
    """Dense engines each on their own; those of a mixture of experts in waves, woken by vllm-rs's coordinator."""
    record = tmp_path / "record"
    flags = ("--moe",) if moe else ()
    experts = ("--hf-overrides", '{"num_experts": 8}') if moe else ()
    base = serve(*flags, "--record", record, ranks=2, rs=(*PLAIN, *experts))
    for number in range(6):
        headers = {"X-data-parallel-rank": str(number % 2)} if number < 4 else None
        assert (
            text(base, "completions", stream=bool(number % 3), max_tokens=20, ignore_eos=True, headers=headers)[1] == 20
        )
    received = [json.loads(line) for line in record.read_text().splitlines()]
    assert [message["body"][8] for message in received if message["kind"] == 0] == [0, 1, 0, 1, None, None]
    waves = [message["body"][0] for message in received if message["kind"] == 2]
    assert sorted(set(waves)) == (list(range(6)) if moe else [])


def test_utility_routes(serve: Serve) -> None:
    base = serve()
    assert ask(f"{base}/reset_prefix_cache")[0] == 200
    assert ask(f"{base}/sleep?level=1&mode=abort")[0] == 200
    assert json.loads(DIRECT.open(f"{base}/is_sleeping", timeout=20).read()) == {"is_sleeping": True}
    assert ask(f"{base}/wake_up")[0] == 200
    status, body = ask(f"{base}/collective_rpc", {"method": "echo", "args": [1], "kwargs": {"a": 2}})
    assert status == 200 and b'"echo"' in body
    assert text(base, "completions", stream=False, max_tokens=3, ignore_eos=True)[1] == 3


def test_death_and_nonsense_reach_the_client(serve: Serve) -> None:
    for fault in ("--die-after", "--malformed-after"):
        base = serve(fault, "3")
        body = {"model": "m", "prompt": "Hello", "max_tokens": 50, "stream": True, "ignore_eos": True}
        status, raw = ask(f"{base}/v1/completions", body)
        assert status == 200 and b'"error"' in raw
        assert ask(f"{base}/v1/completions", {**body, "stream": False})[0] == 500


def test_http_cases_answer_as_with_the_reference_mock(serve: Serve, shared: Path, tmp_path: Path) -> None:
    cases, tool = shared / "cases/http", shared / "tools/http_cases.py"
    outs = []
    for name, mock in (("theirs", (shared / "tools/mock_engine.py",)), ("ours", ("-m", "fastfront.cli.mock_engine"))):
        rs = ("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
        base = serve("--scripts", cases / "scripts.json", mock=mock, rs=rs)
        outs.append(tmp_path / name)
        words = [str(tool), "run", "--requests", f"{cases}/requests.json", "--url", base, "--out", str(outs[-1])]
        subprocess.run([sys.executable, *words], check=True)
    theirs, ours = (json.loads(out.read_text()) for out in outs)
    compared = subprocess.run(
        [sys.executable, str(tool), "compare", "--expected", str(outs[0]), "--got", str(outs[1]), "--verbose"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compared.returncode == 0, compared.stdout
    assert len(theirs) == len(ours) > 180
