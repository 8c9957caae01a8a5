"""Tool calls and reasoning as the official client sees them, in front of a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.conftest import Start
from tests.e2e.serving import add_engine, serve

pytestmark = pytest.mark.peer

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@pytest.fixture
def client(
    start: Start, fastfront: list[str], shared: Path, peers: Path, free_port: Callable[[], int]
) -> openai.OpenAI:
    """The official client of a server with parsers, whose engine plays the reference scripts by seed."""
    options = ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    serving = serve(start, fastfront, peers, free_port, *options, engine=None)
    add_engine(start, fastfront, serving, "--scripts", str(shared / "cases" / "http" / "scripts.json"))
    serving.front.wait_http(f"{serving.base}/health")
    return openai.OpenAI(base_url=f"{serving.base}/v1", api_key="none", max_retries=0)


def seed_of(shared: Path, case: str) -> int:
    """The seed by which the engine plays a case's script."""
    seed: int = json.loads((shared / "cases" / "http" / "requests.json").read_text())[case]["body"]["seed"]
    return seed


@pytest.mark.parametrize("case", ["tool.one_k1", "tool.one_k3", "tool.two", "tool.after_reasoning", "tool.nested"])
def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI, shared: Path, case: str) -> None:
    asked: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": TOOLS,
        "max_tokens": 200,
        "seed": seed_of(shared, case),
    }
    whole = client.chat.completions.create(**asked).choices[0]
    calls = whole.message.tool_calls or []
    assert calls
    assert whole.finish_reason == "tool_calls"
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    assert [(c.function.name, c.function.arguments) for c in final.message.tool_calls or []] == [
        (c.function.name, c.function.arguments) for c in calls if c.type == "function"
    ]
    assert final.finish_reason == whole.finish_reason
    assert (final.message.content or None) == whole.message.content
    for call in calls:
        assert call.type == "function"
        assert isinstance(json.loads(call.function.arguments), dict)


def test_log_probabilities_come_with_what_was_parsed(client: openai.OpenAI, shared: Path) -> None:
    asked: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 200,
        "seed": seed_of(shared, "chat.reasoning"),
        "logprobs": True,
        "top_logprobs": 1,
    }
    whole = client.chat.completions.create(**asked)
    assert whole.usage is not None
    assert whole.choices[0].logprobs is not None
    entries = whole.choices[0].logprobs.content or []
    assert len(entries) == whole.usage.completion_tokens
    reasoning, content = "", ""
    streamed: list[Any] = []
    for chunk in client.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            content += choice.delta.content or ""
            streamed += (choice.logprobs.content or []) if choice.logprobs else []
    assert streamed == entries
    message: Any = whole.choices[0].message
    assert (reasoning, content) == (message.reasoning, message.content)
