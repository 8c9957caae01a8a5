"""The official client with its strict reading of answers: every whole one and every chunk is of its types."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from tokenizers import Tokenizer

from tests.conftest import Start
from tests.e2e.serving import add_engine, serve

pytestmark = pytest.mark.peer

END = 151645
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
#: What the engine says to each seed.
TEXTS = (
    "Hello, wörld 🫠",
    '{"city": "Zürich", "degrees": 21}',
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>',
    "<think>\nHm.\n</think>\n\nYes.",
)
PLAIN, OBJECT, CALL, THOUGHT = range(len(TEXTS))


class Weather(pydantic.BaseModel):
    """What the answer is to be."""

    city: str
    degrees: int


@pytest.fixture(scope="module")
def client(
    start_for_all: Start,
    fastfront: list[str],
    peers: Path,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> openai.OpenAI:
    """The client of a server with parsers, whose engine plays the texts."""
    tokenizer = Tokenizer.from_file(str(peers / "models" / "qwen3" / "tokenizer.json"))
    scripts = {}
    for seed, text in enumerate(TEXTS):
        steps = [[token] for token in tokenizer.encode(text, add_special_tokens=False).ids]
        scripts[str(seed)] = {"steps": [*steps, [END]], "finish": "stop", "stop_reason": None}
    played = tmp_path_factory.mktemp("engine") / "scripts.json"
    played.write_text(json.dumps(scripts))
    words = ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    serving = serve(start_for_all, fastfront, peers, free_port, *words, engine=None)
    add_engine(start_for_all, fastfront, serving, "--scripts", str(played))
    serving.front.wait_http(f"{serving.base}/health")
    return openai.OpenAI(
        base_url=f"{serving.base}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    )


def asked(seed: int, **more: Any) -> dict[str, Any]:
    """A chat whose answer is that text; it does not reason unless that is the text."""
    thinking = {"chat_template_kwargs": {"enable_thinking": seed == THOUGHT}}
    messages = [{"role": "user", "content": "x"}]
    return {"model": "m", "messages": messages, "max_tokens": 100, "seed": seed, "extra_body": thinking, **more}


@pytest.mark.parametrize("seed", range(len(TEXTS)))
@pytest.mark.parametrize(
    "more",
    [
        {}, {"logprobs": True, "top_logprobs": 2}, {"n": 2, "temperature": 1}, {"tools": [TOOL]}, {"stop": ["Z"]},
        {"tools": [TOOL], "tool_choice": "required"}, {"response_format": {"type": "json_object"}},
        {"max_tokens": 1}, {"extra_body": {"return_token_ids": True, "prompt_logprobs": None}},
    ],
)  # fmt: skip
def test_chat(client: openai.OpenAI, seed: int, more: dict[str, Any]) -> None:
    whole = client.chat.completions.create(**asked(seed, **more))
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(client.chat.completions.create(**asked(seed, **more), stream=True, stream_options=options))
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.delta.content or "" for part in parts) == (choice.message.content or "")
        assert [part.finish_reason for part in parts if part.finish_reason] == [choice.finish_reason]
        assert [part.delta.role for part in parts if part.delta.role] == ["assistant"]


@pytest.mark.parametrize(
    "more", [{}, {"logprobs": 2}, {"logprobs": 0, "echo": True}, {"n": 2, "temperature": 1}, {"prompt": ["a", "b"]}]
)
def test_completion(client: openai.OpenAI, more: dict[str, Any]) -> None:
    ask: Any = {"model": "m", "prompt": "x", "max_tokens": 100, "seed": PLAIN, **more}
    # Its types have no null where OpenAI sends one: in a chunk's finish_reason, for a prompt's first token.
    lax = client.with_options(_extra_kwargs={"_strict_response_validation": False})
    whole = (lax if "echo" in more else client).completions.create(**ask)
    chunks = list(lax.completions.create(**ask, stream=True))
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.text for part in parts) == choice.text
        assert [part.finish_reason for part in parts if part.finish_reason] == [choice.finish_reason]


def test_an_object_is_parsed(client: openai.OpenAI) -> None:
    want = Weather(city="Zürich", degrees=21)
    made = client.chat.completions.parse(**asked(OBJECT), response_format=Weather)
    assert made.choices[0].message.parsed == want
    with client.chat.completions.stream(**asked(OBJECT), response_format=Weather) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == want
    assert {"chunk", "content.delta", "content.done"} <= kinds


def test_a_call_is_parsed(client: openai.OpenAI) -> None:
    made = client.chat.completions.parse(**asked(CALL), tools=[TOOL])
    calls = made.choices[0].message.tool_calls or []
    assert [call.function.parsed_arguments for call in calls] == [{"city": "Zürich"}]
    with client.chat.completions.stream(**asked(CALL), tools=[TOOL]) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [(event.name, event.parsed_arguments) for event in done] == [("get_weather", {"city": "Zürich"})]
    assert final.choices[0].finish_reason == "tool_calls"


def test_log_probabilities_in_the_stream_helper(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked(PLAIN), logprobs=True, top_logprobs=1).choices[0].logprobs
    with client.chat.completions.stream(**asked(PLAIN), logprobs=True, top_logprobs=1) as stream:
        done = [event for event in stream if event.type == "logprobs.content.done"]
        final = stream.get_final_completion()
    assert whole is not None
    assert final.choices[0].logprobs is not None
    assert final.choices[0].logprobs.content == whole.content == done[0].content


def test_models_and_errors(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["m"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**asked(PLAIN, temperature=9))
    assert (caught.value.param, caught.value.code) == ("temperature", "400")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**asked(PLAIN, model="nobody"))
