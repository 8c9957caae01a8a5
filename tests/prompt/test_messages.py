from __future__ import annotations

import contextlib
import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.content_format import ContentFormat
from fastfront.prompt.messages import conversation, developer_as_system, is_heavy, tool_definitions, weight


def one(message: dict[str, Any], content_format: ContentFormat = "string") -> dict[str, Any]:
    return conversation([message], content_format, "m")[0]


def test_text_parts_are_joined_or_kept() -> None:
    parts = [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": ""},
        "b",
        {"type": "thinking", "thinking": "c", "closed": True},
        {"type": "refusal", "refusal": "d"},
    ]
    assert one({"role": "user", "content": parts}) == {"role": "user", "content": "a\nb\nc\nd"}
    assert one({"role": "user", "content": parts}, "openai")["content"] == [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": ""},
        {"type": "text", "text": "b"},
        {"type": "text", "text": "c"},
        {"type": "text", "text": "d"},
    ]


def test_no_content() -> None:
    for message in ({"role": "assistant"}, {"role": "assistant", "content": None}):
        assert one(message) == {"role": "assistant", "content": ""}
        assert one(message, "openai") == {"role": "assistant", "content": []}


def test_history_of_tool_calls() -> None:
    call = {"function": {"name": "f", "arguments": '{"x":1}', "y": 2}, "z": 3, "type": "function", "id": "c1"}
    out = one({"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "r"})
    assert json.dumps(out) == json.dumps(
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c1", "function": {"arguments": {"x": 1}, "name": "f", "y": 2}, "type": "function", "z": 3}
            ],
            "reasoning": "r",
            "reasoning_content": "r",
        }
    )
    assert one({"role": "assistant", "content": "x", "tool_calls": []}) == {"role": "assistant", "content": "x"}
    assert one({"role": "user", "content": "x", "tool_calls": [call]}) == {"role": "user", "content": "x"}


@pytest.mark.parametrize("arguments", ["", None, "{", "[1]", "42", "null", '"x"', 5, [], "[" * 100_000])
def test_arguments_that_are_no_object_become_an_empty_one(arguments: Any) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert one({"role": "assistant", "tool_calls": [call]})["tool_calls"][0]["function"]["arguments"] == {}


def test_tool_answers() -> None:
    message = {"role": "tool", "tool_call_id": "c", "name": "f", "content": [{"type": "text", "text": t} for t in "ab"]}
    want = {"role": "tool", "content": "a\nb", "tool_call_id": "c", "name": "f"}
    assert one(message) == one(message, "openai") == want
    reference = {"role": "tool", "content": [{"type": "tool_reference", "name": "f"}]}
    assert one(reference)["content"] == "f"
    assert one(reference, "openai")["content"] == [{"type": "tool_reference", "name": "f"}]


def test_roles_and_names() -> None:
    assert one({"role": "wizard", "content": "x", "name": "n", "task": "t", "other": 1}) == {
        "role": "wizard",
        "content": "x",
        "name": "n",
        "task": "t",
    }
    assert one({"role": "developer", "content": "x", "tools": [1]})["tools"] == [1]


def test_billing_header_of_a_client_is_dropped() -> None:
    for content in (
        "x-anthropic-billing-header: cch=1\nrest",
        [{"type": "text", "text": "x-anthropic-billing-header\nrest"}],
    ):
        assert one({"role": "system", "content": content})["content"] == "rest"
    assert one({"role": "system", "content": "x-anthropic-billing-header: 1"})["content"] == ""
    assert one({"role": "user", "content": "x-anthropic-billing-header: 1"})["content"] != ""


@pytest.mark.parametrize(
    "message, param, words",
    [
        ("x", "messages.0", "must be an object"),
        ({"content": "x"}, "messages.0.role", "must be a string"),
        ({"role": "user", "content": 5}, "messages.0.content", "must be a string or a list of parts"),
        ({"role": "user", "content": [5]}, "messages.0.content.0", "must be an object or a string"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages.0.content.0.type", "is missing"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content.0.text", "must be a string"),
        ({"role": "user", "content": [{"type": "bogus"}]}, "messages.0.content.0", "'bogus'. Supported types"),
        ({"role": "user", "content": [{"type": ["x"]}]}, "messages.0.content.0", "Unsupported chat content part"),
        (
            {"role": "user", "content": ["a", {"type": "image_url", "image_url": {"url": "data:,"}}]},
            "messages.0.content.1",
            "m is not a multimodal model here: content parts of type 'image_url'",
        ),
        ({"role": "user", "content": [{"input_audio": {}}]}, "messages.0.content.0", "'input_audio'"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "messages.0.tool_calls", "must be a list"),
        ({"role": "assistant", "tool_calls": [1]}, "tool_calls", "must be objects"),
        ({"role": "assistant", "tool_calls": [{"type": "custom"}]}, "tool_calls", "of type 'function'"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": 1}}]},
            "messages.0.tool_calls.0.function.name",
            "must be a string",
        ),
    ],
)  # fmt: skip
def test_refusals_name_the_field(message: Any, param: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        conversation([message], "string", "m")
    assert caught.value.param == param
    assert words in caught.value.message


def test_developer_as_system() -> None:
    messages = conversation(
        [
            {"role": "user", "content": "u"},
            {"role": "developer", "content": [{"type": "text", "text": "d"}], "tools": [1]},
            {"role": "system", "content": "s"},
        ],
        "string",
    )
    assert developer_as_system(messages) == [{"role": "system", "content": "d\n\ns"}, {"role": "user", "content": "u"}]
    assert developer_as_system(messages[1:2]) == [{"role": "system", "content": "d"}]
    parts = conversation([{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}], "openai")
    assert developer_as_system(parts) == [{"role": "system", "content": "a\n\nb"}]


def test_tool_definitions() -> None:
    given_tool = {"function": {"parameters": {"type": "object"}, "name": "f", "zz": 1}, "type": "function", "xx": 1}
    assert json.dumps(tool_definitions([given_tool])) == (
        '[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object"}}}]'
    )
    deferred = {"function": {"name": "f", "strict": True}, "defer_loading": True}
    assert tool_definitions([deferred]) == [
        {
            "type": "function",
            "function": {"name": "f", "description": None, "parameters": None, "strict": True, "defer_loading": True},
            "defer_loading": True,
        }
    ]
    assert tool_definitions(None) is None
    wrong: list[Any] = [1, {}, {"function": {}}, {"function": {"name": 1}}]
    for bad in wrong:
        with pytest.raises(RequestError, match=r"tools\.0\.function"):
            tool_definitions([bad])


def test_tools_that_were_seen_are_not_worked_out_again() -> None:
    def tool(value: Any) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": "f", "parameters": {"default": value}}}]

    first = tool_definitions(tool(1))
    assert tool_definitions(tool(1)) is first
    values: list[Any] = [1, 1.0, True, "1", None, float("inf"), [1], 1 << 70]
    texts = [json.dumps(tool_definitions(tool(value))) for value in values]
    assert texts == [json.dumps([{"type": "function", "function": {
        "name": "f", "description": None, "parameters": {"default": value}}}]) for value in values]  # fmt: skip
    for n in range(200):
        tool_definitions(tool(f"other {n}"))
    again = tool_definitions(tool(1))
    assert again == first
    assert again is not first  # there is a bound
    large = tool("x" * (1 << 16))
    assert tool_definitions(large) is not tool_definitions(large)


def test_weight() -> None:
    assert 1000 < weight(ChatInput([{"content": "x" * 1000}])) < 1200
    assert weight(ChatInput([{"content": "世" * 1000}])) > 3000
    assert weight(ChatInput([], documents=[{"x": ["x"] * 1000}])) > 10_000
    assert weight(ChatInput([{"bad": "\ud800"}])) > 2**60
    source = b'{"messages": [{"content": "x"}]}'
    assert weight(ChatInput([{"content": "x"}], source=source)) == 32 + 4 * 6
    for most in range(200):
        assert is_heavy(source, most) == (most < 32 + 4 * 6)
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    assert weight(ChatInput([{"content": nested}])) > 2**60


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PART = st.one_of(
    st.text(max_size=8),
    st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=8)}, optional={"extra": JSON}),
    st.fixed_dictionaries({"type": st.just("refusal"), "refusal": st.text(max_size=8)}),
)
CALL = st.fixed_dictionaries(
    {
        "id": st.text(max_size=4),
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": st.text(max_size=4), "arguments": st.one_of(st.text(max_size=8), JSON.map(json.dumps))}
        ),
    }
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer", "x"])},
    optional={
        "content": st.none() | st.text(max_size=20) | st.lists(PART, max_size=4),
        "name": st.none() | st.text(max_size=4),
        "tool_calls": st.none() | st.lists(CALL, max_size=2),
        "reasoning_content": st.none() | st.text(max_size=5),
        "tool_call_id": st.text(max_size=4),
    },
)


@given(st.lists(MESSAGE, max_size=5), st.sampled_from(["string", "openai"]))
def test_any_valid_history_is_taken_and_left_unchanged(messages: list[Any], content_format: ContentFormat) -> None:
    before = deepcopy(messages)
    out = conversation(messages, content_format)
    assert messages == before
    assert [m["role"] for m in out] == [m["role"] for m in messages]
    for message in out:
        assert isinstance(message["content"], str if content_format == "string" or message["role"] == "tool" else list)
        for call in message.get("tool_calls", []):
            assert isinstance(call["function"]["arguments"], dict)
    systems = [m for m in developer_as_system(out) if m["role"] == "system"]
    assert len(systems) == any(m["role"] in ("system", "developer") for m in out) or len(out) == len(systems) == 1


@given(st.lists(JSON, max_size=4), st.sampled_from(["string", "openai"]))
def test_any_json_is_taken_or_refused(messages: list[Any], content_format: ContentFormat) -> None:
    with contextlib.suppress(RequestError):
        conversation(messages, content_format)
