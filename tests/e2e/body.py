"""What every server must do, whatever engine is behind it: the mock, the built-in one, vLLM's."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.conftest import DIRECT

MODEL = "smollm2"
QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: dict[str, Any] = {"temperature": 0}
#: Says as much as it may, whatever the model would like.
ON: dict[str, Any] = {"extra_body": {"ignore_eos": True}}
AT_ONCE = 32


def connect(base: str) -> openai.OpenAI:
    """The official client."""
    return openai.OpenAI(base_url=f"{base}/v1", api_key="none", timeout=300, max_retries=0)


def check_serving(base: str) -> None:
    """All of it that needs no model that makes sense."""
    client = connect(base)
    assert [model.id for model in client.models.list().data] == [MODEL]
    _check_counts(client)
    _check_logprobs(client)
    _check_many(client)
    _check_leaving(client, base)
    _check_refusals(client)


def _check_counts(client: openai.OpenAI) -> None:
    done = client.completions.create(model=MODEL, prompt=["One", "Two"], n=2, max_tokens=7, **ON)
    assert [(choice.index, choice.finish_reason) for choice in done.choices] == [(n, "length") for n in range(4)]
    assert done.usage is not None and done.usage.completion_tokens == 28
    chat = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=5, **ON)
    assert chat.choices[0].finish_reason == "length" and chat.choices[0].message.content
    options: Any = {"include_usage": True}
    events = list(
        client.completions.create(
            model=MODEL, prompt="One", max_tokens=9, stream=True, stream_options=options, **ON
        )
    )
    assert events[-1].usage is not None and events[-1].usage.completion_tokens == 9
    assert [event.choices[0].finish_reason for event in events[:-1]][-1] == "length"
    ids = client.completions.create(model=MODEL, prompt=[504, 1181, 314], max_tokens=1, **ON)
    assert ids.usage is not None and (ids.usage.prompt_tokens, ids.usage.completion_tokens) == (3, 1)


def _check_logprobs(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": QUESTION, "max_tokens": 6, "logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(**asked, **ON).choices[0]
    assert whole.logprobs is not None and whole.logprobs.content is not None
    assert [len(entry.top_logprobs) for entry in whole.logprobs.content] == [3] * 6
    assert all(entry.logprob <= 0 for entry in whole.logprobs.content)
    streamed = [
        entry
        for chunk in client.chat.completions.create(**asked, stream=True, **ON)
        for choice in chunk.choices
        if choice.logprobs
        for entry in choice.logprobs.content or ()
    ]
    assert len(streamed) == 6
    prompt = "The capital of France is"
    done = client.completions.create(model=MODEL, prompt=prompt, max_tokens=4, echo=True, logprobs=2, **ON).choices[0]
    assert done.text.startswith(prompt) and done.logprobs is not None
    assert done.logprobs.token_logprobs is not None and done.logprobs.tokens is not None
    values = done.logprobs.token_logprobs
    assert values[0] is None and len(values) == 9 and all(value <= 0 for value in values[1:])
    assert "".join(done.logprobs.tokens[:5]) == prompt


def _check_many(client: openai.OpenAI) -> None:
    def ask(number: int) -> int:
        done = client.completions.create(model=MODEL, prompt=f"Number {number} is", max_tokens=8, **ON)
        assert done.usage is not None and done.choices[0].finish_reason == "length"
        tokens: int = done.usage.completion_tokens
        return tokens

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert list(threads.map(ask, range(AT_ONCE))) == [8] * AT_ONCE


def _check_leaving(client: openai.OpenAI, base: str) -> None:
    """A client that leaves ends its requests; the engine says so soon."""
    for n in range(3):
        stream = client.completions.create(model=MODEL, prompt="Once", max_tokens=1500 + n, n=2, stream=True, **ON)
        next(iter(stream))
        stream.close()
    deadline = time.monotonic() + 60
    while running(base):
        assert time.monotonic() < deadline, "requests go on though their clients have left"
    assert client.completions.create(model=MODEL, prompt="Still", max_tokens=2, **ON).choices[0].text


def running(base: str) -> float:
    """Requests that the engine has, by its own statistics."""
    with DIRECT.open(f"{base}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r"^vllm:num_requests_(?:running|waiting){[^}]*} ([\d.]+)$", text, re.MULTILINE)
    assert len(found) == 2
    return sum(map(float, found))


def _check_refusals(client: openai.OpenAI) -> None:
    bad: tuple[dict[str, Any], ...] = (
        {"prompt": "x" * 400_000},
        {"prompt": [10_000_000]},
        {"prompt": "x", "temperature": -1},
        {"prompt": "x", "logit_bias": {"99999999": 1}},
    )
    for fields in bad:
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model=MODEL, **fields)
    assert client.completions.create(model=MODEL, prompt="Still", max_tokens=2, **ON).choices[0].text


def check_text(base: str) -> None:
    """What needs a model, SmolLM2-135M-Instruct, and an engine that samples."""
    client = connect(base)

    def chat(**fields: Any) -> str:
        made = client.chat.completions.create(model=MODEL, messages=QUESTION, **{"max_tokens": 24, **fields})
        return made.choices[0].message.content or ""

    assert chat(**GREEDY) == "The capital of France is Paris."
    assert chat(**GREEDY, stop=[" Paris"]) == "The capital of France is"
    assert chat(temperature=1.0, seed=7) == chat(temperature=1.0, seed=7) != chat(temperature=1.0, seed=8)
    assert chat(temperature=1.0, top_p=1e-4) == chat(temperature=1.0, extra_body={"top_k": 1}) == chat(**GREEDY)
    assert "Paris" not in chat(**GREEDY, extra_body={"bad_words": ["Paris"]})
    assert len(chat(**GREEDY, extra_body={"min_tokens": 20})) > len("The capital of France is Paris.")
    assert chat(**GREEDY, extra_body={"structured_outputs": {"regex": "[0-9]{3}-[ab]"}})[3] == "-"
    assert chat(**GREEDY, extra_body={"structured_outputs": {"choice": ["Rome", "Oslo"]}}) in ("Rome", "Oslo")
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": [1, 2]}},
        "required": ["city", "size"],
        "additionalProperties": False,
    }
    asked: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    assert set(json.loads(chat(**GREEDY, response_format=asked, max_tokens=80))) == {"city", "size"}
    bias: Any = {"logit_bias": {"42": 100}}
    made = client.completions.create(model=MODEL, prompt="One two three", max_tokens=3, **bias, **GREEDY)
    assert made.usage is not None and len(set(made.choices[0].text)) <= 1
