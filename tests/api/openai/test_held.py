"""A chat with tools and reasoning through the whole stack: what the engine is held to, and what is read and counted."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from fastfront.api.openai.chat.prepare import prepare
from fastfront.api.openai.chat.request import ChatRequest
from fastfront.api.openai.tools import Function, Tool
from fastfront.api.routes import routes
from fastfront.api.state import ApiState, Limits
from fastfront.config import ApiConfig
from fastfront.errors import RequestError, UnsupportedError
from fastfront.fast import Router
from fastfront.flow import HttpRequest
from fastfront.parse.counting import Counting
from fastfront.parse.prepare import Preparation
from fastfront.parse.registry import choose
from fastfront.pipeline import Pipeline
from tests.api.fakes import QWEN, Answer, FakeReply
from tests.test_pipeline import BYTES, BytePrompter, Engine

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
CALL = '{"name": "get_weather", "arguments": {"a": 1}}'
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def chat(
    text: str, tool: str | None, reasoning: str | None = None, *, level: Any = "auto", step: int = 3, **body: Any
) -> tuple[Answer, Any]:
    """The answer to a chat for which the engine writes `text`, some bytes a step; and what the engine was asked."""
    router = Router()
    ids = [*text.encode(), 0]  # what ends it
    engine: Any = Engine(router, [ids[at : at + step] for at in range(0, len(ids), step)], 0)
    prompter: Any = BytePrompter(QWEN)
    format = choose(tool, reasoning)
    state = ApiState(
        Pipeline(QWEN, prompter, BYTES, engine, router),
        "0.32.0",
        "0",
        False,
        settings=ApiConfig(tool_call_parser=tool, reasoning_parser=reasoning),
        limits=Limits(),
        format=format,
        preparation=Preparation(tool, reasoning, lambda text: None, level),
        counting=Counting(format, lambda text: list(text.encode())) if reasoning else None,
    )
    (handler,) = (handler for method, path, handler in routes(state) if path == "/v1/chat/completions")
    content = json.dumps({"messages": [{"role": "user", "content": "x"}], **body}).encode()
    reply = FakeReply()
    request = HttpRequest("POST", "", "", {"content-type": "application/json"}, content, "")

    async def run() -> None:
        await reply.served(handler(request, reply))

    asyncio.run(run())
    return reply.answer, engine.requests[0]


def held(request: Any) -> Any:
    """The constraint that the engine got, without what says its backend."""
    wire = request.sampling.structured_outputs
    return wire and {key: value for key, value in wire.items() if not key.startswith("_")}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("tool", "choice", "text", "kind"),
    [
        ("hermes", "required", f"<tool_call>\n{CALL}\n</tool_call>", "structural_tag"),
        ("hermes", NAMED, f"<tool_call>{CALL}</tool_call>", "structural_tag"),
        ("jamba", "required", '[{"name": "get_weather", "parameters": {"a": 1}}]', "json"),
        ("pythonic", NAMED, '{"a": 1}', "json"),
        ("gemma4", "required", "<|tool_call>call:get_weather{a:1}<tool_call|>", None),
        # no constraint: the format's own
        ("jamba", "auto", f"<tool_calls>[{CALL}]</tool_calls>", None),
    ],
)
def test_calls_are_held_and_read(tool: str, choice: Any, text: str, kind: str | None, stream: bool) -> None:
    answer, request = chat(text, tool, tools=[WEATHER], tool_choice=choice, stream=stream)
    assert list(held(request) or {}) == ([kind] if kind else [])
    if stream:
        parts = [part for event in answer.events for part in event["choices"]]
        pieces = [piece["function"] for part in parts for piece in part["delta"].get("tool_calls") or ()]
        names, arguments = [p["name"] for p in pieces if "name" in p], "".join(p["arguments"] for p in pieces)
        reason = parts[-1]["finish_reason"]
    else:
        choice_made = answer.json["choices"][0]
        calls = [call["function"] for call in choice_made["message"]["tool_calls"]]
        names, arguments = [call["name"] for call in calls], "".join(call["arguments"] for call in calls)
        reason = choice_made["finish_reason"]
    assert (names, json.loads(arguments)) == (["get_weather"], {"a": 1})
    assert reason == ("stop" if choice is NAMED else "tool_calls")


@pytest.mark.parametrize(
    ("level", "body", "is_held"),
    [
        ("auto", {}, False),
        ("auto", {"parallel_tool_calls": False}, True),
        ("function", {}, True),
        ("parameter", {}, True),
        ("parameter", {"tool_choice": "none"}, False),
        # the format of the answer stays what the request says
        ("auto", {"parallel_tool_calls": False, "response_format": {"type": "json_object"}}, False),
    ],
)
def test_strict_level(level: str, body: dict[str, Any], is_held: bool) -> None:
    _, request = chat("x", "hermes", level=level, tools=[WEATHER], **body)
    assert ("structural_tag" in (held(request) or {})) is is_held
    if level == "parameter" and is_held:
        (tag, *_) = json.loads(held(request)["structural_tag"])["format"]["tags"]
        assert tag["content"]["json_schema"] == {"type": "object"}


def test_strict_tools_beside_a_format() -> None:
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    _, request = chat("{}", "hermes", tools=[strict], response_format={"type": "json_object"})
    calls, answer = json.loads(held(request)["structural_tag"])["format"]["elements"]
    assert (calls["type"], answer["json_schema"]) == ("tags_with_separator", {"type": "object"})


def deep(levels: int) -> dict[str, Any]:
    """Parameters whose objects lie in each other."""
    document: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        document = {"items": document}
    return document


@pytest.mark.parametrize("levels", [100, 5000])
@pytest.mark.parametrize("tool", ["hermes", "mistral"])
def test_parameters_that_nest_too_deeply_are_told_of_as_tools(tool: str, levels: int) -> None:
    function = Function(name="f", parameters=deep(levels), strict=True)
    body = ChatRequest(messages=[], tools=[Tool(function=function)], tool_choice="required")
    state: Any = SimpleNamespace(preparation=Preparation(tool, None, lambda text: None))
    with pytest.raises(RequestError, match=r"tools: .* is nested too deeply") as caught:
        prepare(state, body)
    assert caught.value.param == "tools"


def test_calls_that_are_held_go_with_no_beams() -> None:
    with pytest.raises(UnsupportedError) as caught:
        chat("x", "hermes", tools=[WEATHER], tool_choice="required", use_beam_search=True, n=2)
    assert caught.value.param == "tools"


def test_a_format_in_harmony_leaves_room_for_the_analysis() -> None:
    text = "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final json<|message|>{}"
    answer, request = chat(text, "openai", "openai_gptoss", response_format={"type": "json_object"})
    assert "analysis" in held(request)["structural_tag"]
    message = answer.json["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("why", "{}")


THOUGHT = "why not</think>\n\nYes."


@pytest.mark.parametrize("step", [1, 4, 100])
def test_reasoning_tokens(step: int) -> None:
    whole, _ = chat(THOUGHT, None, "qwen3", step=step)
    assert whole.json["usage"]["completion_tokens_details"] == {"reasoning_tokens": 7}
    options = {"include_usage": True, "continuous_usage_stats": True}
    streamed, _ = chat(THOUGHT, None, "qwen3", step=step, stream=True, stream_options=options)
    *events, last = [event["usage"] for event in streamed.events]
    assert last["completion_tokens_details"] == {"reasoning_tokens": 7}
    counts = [event["completion_tokens_details"]["reasoning_tokens"] for event in events[1:]]
    assert counts[-1] == 7
    assert counts == sorted(counts) or step < 9  # the end mark's own tokens are taken back when it is complete
    hidden, _ = chat(THOUGHT, None, "qwen3", step=step, include_reasoning=False)
    assert hidden.json["usage"]["completion_tokens_details"] == {"reasoning_tokens": 7}


def test_without_a_reasoning_parser_nothing_is_counted() -> None:
    answer, _ = chat("x", "hermes")
    assert answer.json["usage"]["completion_tokens_details"] is None
