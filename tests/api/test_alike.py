"""Requests alike but for their messages or prompt: what was decided once serves the next, and nothing else changes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfront.api import alike
from fastfront.api.openai.chat.plan import ChatPlan
from fastfront.config import ApiConfig
from fastfront.parse.prepare import Preparation
from fastfront.parse.registry import choose
from tests.api.fakes import Client

RENDER, CHAT, COMPLETIONS = "/v1/chat/completions/render", "/v1/chat/completions", "/v1/completions"
HEADERS = {"x-request-id": "r", "content-type": "application/json"}


def user(text: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[ChatPlan]:
    """The plans that chats make."""
    made: list[ChatPlan] = []
    begin = ChatPlan.__init__

    def spied(self: ChatPlan, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(ChatPlan, "__init__", spied)
    return made


def test_a_plan_serves_from_the_third_time_on(client: Client, plans: list[ChatPlan]) -> None:
    for at in range(5):
        client.chat(model="m", messages=user(f"text {at}"), temperature=0.5)
        assert client.generation.prompts[0].text == f"<user>text {at}"
        assert client.generation.sampling.temperature == 0.5
    assert len(plans) == 2
    client.chat(model="m", messages=user("other"), temperature=0.25)
    assert client.generation.sampling.temperature == 0.25 and len(plans) == 3


def test_each_endpoint_has_its_own(client: Client, plans: list[ChatPlan]) -> None:
    body = {"messages": user("x"), "max_tokens": 3}
    for _ in range(3):
        assert client.chat(**body).json["choices"]
        assert client.post(RENDER, body).json["sampling_params"]["max_tokens"] == 3
    assert len(plans) == 4


def test_messages_are_checked_each_time(client: Client) -> None:
    for bad, status, word in (
        ([], 400, "empty conversation"),
        ([{"role": "user", "content": None}], 400, "messages"),
        ([{"role": "user"}, 5], 400, "messages"),
        ("text", 400, "messages"),
        ({"role": "user"}, 400, "messages"),
    ):
        for _ in range(3):
            client.chat(messages=user("fine"))
            answer = client.chat(messages=bad)
            assert answer.status == status and word in answer.error["message"]
    strict = Client(settings=ApiConfig(strict_request_fields=True))
    for _ in range(3):
        assert strict.chat(messages=user("fine")).status == 200
        assert "messages.0.colour" in strict.chat(messages=[{**user("x")[0], "colour": "red"}]).error["message"]


def test_other_faults_are_told_each_time(client: Client) -> None:
    ids: list[Any] = [["x"], [], "x", [10**9]]
    reused: list[dict[str, Any]] = [{"kv_transfer_params": {"prompt_token_ids": each}} for each in ids]
    others: list[dict[str, Any]] = [{"temperature": 9}, {"model": "other"}, {"n": 0}, {"max_tokens": 10**6}]
    for body in (*reused, *others, {"top_logprobs": -5}):
        for _ in range(4):
            assert client.chat(messages=user("x"), **body).status in (400, 404), body
    for _ in range(4):
        answer = client.post(CHAT, b'{"messages": [{"role": "user", "content": "x"}], "n": 1', HEADERS)
        assert answer.status == 400
        answer = client.post(CHAT, b'{"messages": []}', {"content-type": "text/plain"})
        assert "Unsupported Media Type" in answer.error["message"]


def test_of_a_field_that_comes_twice_the_last_counts(client: Client) -> None:
    for other in (b'"messages"', rb'"m\u0065ssages"'):
        for at in range(4):
            first, last = json.dumps(user(f"first {at}")).encode(), json.dumps(user("last")).encode()
            client.post(CHAT, b'{"messages": %b, %b: %b}' % (first, other, last), HEADERS)
            assert client.generation.prompts[0].text == "<user>last"


def test_a_body_in_utf_16_is_read_whole(client: Client) -> None:
    """Its bytes may hold those of a field within a text."""
    rest = f'","max_tokens":1,"messages":{json.dumps(user("real"))}}}'.encode("utf-16-le")
    for at in range(5):
        inner = b'"messages":%b' % json.dumps(user(f"evil {at}")).encode()
        quote = "\u4e22".encode("utf-16-le")  # whose first byte is that of a quote
        hidden = quote + inner + b" " * (len(inner) % 2) + quote
        client.post(CHAT, '{"user":"'.encode("utf-16-le") + hidden + rest, HEADERS)
        assert client.generation.prompts[0].text == "<user>real"


def test_a_prompt(client: Client) -> None:
    for prompt in ("a", "bc", [100, 101], ["a", "b"], "", None, [], ["a", 5], "d", [[97], [98]], 5, "e"):
        for _ in range(2):
            fresh = Client().post(COMPLETIONS, {"prompt": prompt, "max_tokens": 2}, HEADERS)
            answer = client.post(COMPLETIONS, {"prompt": prompt, "max_tokens": 2}, HEADERS)
            assert answer.status == fresh.status
            assert answer.json.get("choices") == fresh.json.get("choices")
            assert answer.status == 200 or answer.error == fresh.error


def test_what_is_kept_is_bounded(client: Client, plans: list[ChatPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        client.chat(messages=user("x"), user="y" * 40_000)
        client.chat(messages=user("x" * 70_000), max_tokens=1)
    assert len(plans) == 6  # too long to be kept, or to be looked at
    monkeypatch.setattr(alike, "_KEPT", 4)
    monkeypatch.setattr(alike, "_ONCE", 4)
    for round in range(2):
        for at in range(12):
            for _ in range(3):
                client.chat(messages=user("x"), user=f"{round} {at}")
    assert len(plans) == 6 + 2 * 24


def test_a_reused_prompt_stays_out_of_what_the_engine_gets(client: Client) -> None:
    for at in range(4):
        client.chat(messages=user(f"{at}"), kv_transfer_params={"prompt_token_ids": [97, 98], "remote": 1})
        assert client.generation.prompts[0].token_ids == [97, 98]
        assert client.generation.sampling.extra_args == {"kv_transfer_params": {"remote": 1}}


TEXTS = st.text(max_size=6) | st.sampled_from(["</think>", "<tool_call>", '"', "\\u0041", "[]", "}"])
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
CONVERSATIONS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool", "developer"])},
        optional={
            "content": TEXTS | st.none() | st.lists(TEXTS.map(lambda text: {"type": "text", "text": text}), max_size=2),
            "name": TEXTS,
            "tool_calls": st.just([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
        },
    ),
    max_size=3,
)
FIELDS: dict[str, Any] = {
    "model": st.sampled_from(["m", None, "other"]),
    "stream": st.booleans(),
    "temperature": st.sampled_from([0, 0.5, "0.5", 3]),
    "max_tokens": st.sampled_from([None, 1, 5, 0, 10**9]),
    "stop": st.sampled_from(["x", ["x", "y"], [], 5]),
    "tools": st.sampled_from([[TOOL], [], None]),
    "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "function", "function": {"name": "f"}}]),
    "add_generation_prompt": st.booleans(),
    "continue_final_message": st.booleans(),
    "chat_template_kwargs": st.sampled_from([{}, {"enable_thinking": False}, {"enable_thinking": True}]),
    "reasoning_effort": st.sampled_from(["none", "low"]),
    "include_reasoning": st.booleans(),
    "documents": st.sampled_from([None, [{"title": "t", "text": "x"}]]),
    "response_format": st.sampled_from([{"type": "json_object"}, {"type": "text"}, {"type": "odd"}]),
    "logit_bias": st.sampled_from([{"5": 1}, {"999999999": 1}]),
    "truncate_prompt_tokens": st.sampled_from([-1, 3]),
    "n": st.sampled_from([1, 2]),
    "unknown": st.integers(),
    "return_token_offsets": st.booleans(),
}


def parsing_client(qwen: Callable[..., Client]) -> Client:
    """As with --tool-call-parser hermes --reasoning-parser qwen3."""
    prompter = qwen_prompter(qwen)
    config = ApiConfig(tool_call_parser="hermes", reasoning_parser="qwen3")
    client = Client(prompter.info, prompter, settings=config)
    client.state.preparation = Preparation("hermes", "qwen3", prompter.tokenizer.token_to_id)
    client.state.format = choose("hermes", "qwen3")
    return client


@functools.cache
def qwen_prompter(qwen: Callable[..., Client]) -> Any:
    """One for all examples."""
    return qwen(2048).pipeline.prompter


@pytest.mark.peer
@settings(deadline=None, max_examples=150)
@given(
    st.fixed_dictionaries({}, optional=FIELDS),
    st.lists(CONVERSATIONS, min_size=3, max_size=5),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_nothing_tells_a_request_that_came_before(
    qwen: Callable[..., Client], fields: dict[str, Any], conversations: list[Any], first: bool, indent: int | None
) -> None:
    """Whatever else a chat says, its prompt and its parameters are those that it would have had alone."""
    used = parsing_client(qwen)
    for messages in conversations:
        body = {"messages": messages, **fields} if first else {**fields, "messages": messages}
        text = json.dumps(body, indent=indent).encode()
        got, want = (client.post(RENDER, text, HEADERS) for client in (used, parsing_client(qwen)))
        assert (got.status, got.body) == (want.status, want.body)
