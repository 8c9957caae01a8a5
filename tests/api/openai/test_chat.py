"""POST /v1/chat/completions: the prompt's variables, tools, echo, and what is refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from fastfront.api import unknown
from fastfront.config import ApiConfig
from fastfront.flow import ChatInput
from tests.api.fakes import Client

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def rendered(client: Client, **body: Any) -> ChatInput:
    """What the prompt stage gets."""
    answer = client.chat(**body)
    assert answer.status == 200, answer.body
    chat: ChatInput = client.pipeline.prompter.asked[-1]
    return chat


def test_answer(client: Client) -> None:
    answer = client.chat().json
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Hello world",
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }
    assert answer["usage"]["prompt_tokens"] == len("<user>Hi")


def test_prompt_variables(client: Client) -> None:
    documents = [{"title": "t", "text": "x"}]
    chat = rendered(
        client,
        chat_template_kwargs={"enable_thinking": False},
        documents=documents,
        add_special_tokens=True,
        add_generation_prompt=False,
        continue_final_message=True,
    )
    assert chat.messages == [USER]
    assert chat.documents == documents
    assert chat.chat_template_kwargs == {"enable_thinking": False}
    assert chat.add_special_tokens
    assert not chat.add_generation_prompt
    assert chat.continue_final_message


@pytest.mark.parametrize(
    "effort, own, kwargs",
    [
        ("low", {}, {"reasoning_effort": "low", "enable_thinking": True}),
        ("none", {}, {"reasoning_effort": "none", "enable_thinking": False}),
        ("low", {"enable_thinking": False}, {"reasoning_effort": "low", "enable_thinking": False}),
        (None, {"a": 1}, {"a": 1}),
    ],
)
def test_reasoning_effort(client: Client, effort: str | None, own: dict[str, Any], kwargs: dict[str, Any]) -> None:
    assert rendered(client, reasoning_effort=effort, chat_template_kwargs=own).chat_template_kwargs == kwargs


@pytest.mark.parametrize(
    "max_tokens, max_completion_tokens, sent",
    [(None, None, 2048 - 8), (5, None, 5), (None, 6, 6), (5, 6, 6), ("5", None, 5)],
)
def test_max_tokens(client: Client, max_tokens: object, max_completion_tokens: object, sent: int) -> None:
    assert client.chat(max_tokens=max_tokens, max_completion_tokens=max_completion_tokens).status == 200
    assert client.generation.max_tokens == sent


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -1, 2049])
def test_max_tokens_out_of_range(client: Client, field: str, value: int) -> None:
    answer = client.chat(**{field: value})
    assert (answer.status, answer.error["param"]) == (400, field)


@pytest.mark.parametrize("n", [None, 1, 2])
def test_n(client: Client, n: int | None) -> None:
    assert len(client.chat(n=n).json["choices"]) == (n or 1)


class TestTools:
    """Tools reach the template; calls are not parsed yet."""

    @pytest.mark.parametrize("choice", ["none", None])
    def test_shown(self, client: Client, choice: str | None) -> None:
        tools = rendered(client, tools=[TOOL], tool_choice=choice).tools
        assert tools is not None
        assert tools[0]["function"]["name"] == "f"
        assert tools[0]["function"]["parameters"] == {"type": "object"}

    def test_hidden(self) -> None:
        client = Client(settings=ApiConfig(exclude_tools_when_tool_choice_none=True))
        assert rendered(client, tools=[TOOL], tool_choice="none").tools is None

    @pytest.mark.parametrize(
        "body, param",
        [
            ({"tools": []}, "tools"),
            ({"tools": [TOOL]}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
            ({"tool_choice": "auto"}, "tool_choice"),
            ({"tool_choice": "required"}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function"),
            ({"tools": [TOOL], "tool_choice": {"function": {}}}, "tool_choice.function.name"),
            ({"tools": [TOOL], "tool_choice": {"type": "x"}}, "body.tool_choice.type"),
            ({"tools": [{"type": "function"}]}, "body.tools.0.function"),
            ({"tools": [{"type": "x", "function": {"name": "f"}}]}, "body.tools.0.type"),
        ],
    )
    def test_refused(self, client: Client, body: dict[str, Any], param: str) -> None:
        answer = client.chat(**body)
        assert (answer.status, answer.error["param"]) == (400, param)


class TestEcho:
    """The last message is said again if the same role goes on."""

    conversation: ClassVar = [USER, {"role": "assistant", "content": "Well"}]
    flags: ClassVar = {"echo": True, "add_generation_prompt": False, "continue_final_message": True}

    def test_whole(self, client: Client) -> None:
        message = client.chat(messages=self.conversation, **self.flags).json["choices"][0]["message"]
        assert (message["role"], message["content"]) == ("assistant", "WellHello world")

    def test_stream(self, client: Client) -> None:
        events = client.chat(messages=self.conversation, stream=True, **self.flags).events
        deltas = [event["choices"][0]["delta"] for event in events]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert [delta["content"] for delta in deltas[1:]] == ["Well", "Hello", " world"]

    def test_parts(self, client: Client) -> None:
        last = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        assert client.chat(messages=[last], **self.flags).json["choices"][0]["message"]["content"] == "a\nbHello world"

    def test_another_role(self, client: Client) -> None:
        message = client.chat(messages=[USER], echo=True).json["choices"][0]["message"]
        assert message["content"] == "Hello world"


def test_role_without_a_generation_prompt(client: Client) -> None:
    assert client.chat(add_generation_prompt=False).json["choices"][0]["message"]["role"] == "user"
    client.state.settings = ApiConfig(response_role="bot")
    assert client.chat().json["choices"][0]["message"]["role"] == "bot"


def test_prompt_back(client: Client) -> None:
    answer = client.chat(return_prompt_text=True, return_token_ids=True).json
    assert answer["prompt_text"] == "<user>Hi"
    assert answer["prompt_token_ids"] == [ord(character) for character in "<user>Hi"]
    assert answer["choices"][0]["token_ids"] == [0, 1]
    plain = client.chat().json
    assert plain["prompt_text"] is plain["prompt_token_ids"] is plain["choices"][0]["token_ids"] is None


class TestReusedIds:
    """A prefill server hands the prompt's ids on."""

    def test_used_and_not_sent(self, client: Client) -> None:
        client.chat(kv_transfer_params={"prompt_token_ids": [5, 6], "do_remote_prefill": True})
        assert client.generation.prompts[0].token_ids == [5, 6]
        assert client.generation.sampling.extra_args == {"kv_transfer_params": {"do_remote_prefill": True}}
        assert not client.pipeline.prompter.asked

    def test_not_with_echo(self, client: Client) -> None:
        client.chat(kv_transfer_params={"prompt_token_ids": [5, 6]}, echo=True)
        assert client.generation.prompts[0].text == "<user>Hi"

    @pytest.mark.parametrize("ids", [[], "x", [True], [-1], ["a"]])
    def test_malformed(self, client: Client, ids: object) -> None:
        answer = client.chat(kv_transfer_params={"prompt_token_ids": ids})
        assert (answer.status, answer.error["param"]) == (400, "kv_transfer_params.prompt_token_ids")


def test_template_of_the_client(qwen: Callable[..., Client]) -> None:
    client = qwen(2048)
    for path in ("/v1/chat/completions", "/v1/chat/completions/render", "/tokenize"):
        for body in ({"chat_template": "x"}, {"chat_template": ""}, {"chat_template_kwargs": {"chat_template": "x"}}):
            answer = client.post(path, {"messages": [USER], **body})
            assert (answer.status, answer.error["param"]) == (400, None)
            assert "--trust-request-chat-template" in answer.error["message"]


@pytest.mark.parametrize(
    "body, param",
    [
        ({"messages": []}, None),
        ({"messages": "x"}, "body.messages"),
        ({"messages": ["x"]}, "body.messages.0"),
        ({"messages": None}, "body.messages"),
        ({"messages": [{"role": "user", "content": None}]}, "body.messages.0.content"),
        ({"messages": [USER, {"role": "tool", "content": None}]}, "body.messages.1.content"),
        ({"add_generation_prompt": True, "continue_final_message": True}, None),
        ({"continue_final_message": True}, None),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": -2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "logprobs"),
        ({"logprobs": True, "logprob_token_ids": [151936]}, "logprob_token_ids"),
        ({"logprobs": True, "logprob_token_ids": [1] * 129}, "logprob_token_ids"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"chat_template_kwargs": "x"}, "body.chat_template_kwargs"),
        ({"reasoning_effort": "huge"}, "body.reasoning_effort"),
        ({"documents": [{"title": 1}]}, "body.documents.0.title"),
        ({"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
        ({"media_io_kwargs": {"image": {}}}, "media_io_kwargs"),
    ],
)
def test_refused(client: Client, body: dict[str, Any], param: str | None) -> None:
    answer = client.chat(**body)
    assert (answer.status, answer.error["param"]) == (400, param)


@pytest.mark.parametrize(
    "body",
    [
        {"logprobs": None},
        {"logprobs": False, "top_logprobs": 0},
        {"top_logprobs": None},
        {"mm_processor_kwargs": {}, "media_io_kwargs": {}},
        {"parallel_tool_calls": False},
        {"messages": [USER, {"role": "assistant", "content": None}, USER]},
        {"messages": [USER, {"role": "assistant"}, USER]},
        {"messages": [{"role": "function", "name": "f", "content": "x"}]},
        {"messages": [{"role": "wizard", "content": "x"}]},
    ],
)
def test_served(client: Client, body: dict[str, Any]) -> None:
    assert client.chat(**body).status == 200


def test_messages_are_required(client: Client) -> None:
    answer = client.post("/v1/chat/completions", {"model": "m"})
    assert (answer.status, answer.error["param"]) == (400, "body.messages")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "user", "content": "x", "prefix": True}]}, "messages.0.prefix"),
        ({"tools": [{"type": "function", "function": {"name": "f", "x": 1}}], "tool_choice": "none"},
         "tools.0.function.x"),
        ({"response_format": {"type": "json_object", "x": 1}}, "response_format.x"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "x": 1}}},
         "response_format.json_schema.x"),
        ({"best_of": 2}, "best_of"),
    ],
)  # fmt: skip
def test_unknown_names_at_any_level(
    fields: dict[str, Any], param: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown, "_warned", set())
    strict = Client(settings=ApiConfig(strict_request_fields=True)).chat(**fields)
    assert (strict.status, strict.error["param"]) == (400, param)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert Client().chat(**fields).status == 200
    assert [record.args for record in caplog.records] == [(".".join(re.findall(r"[a-z_]+", param)),)]


def test_names_of_answers_and_templates_are_known() -> None:
    call = {"id": "c", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
    answer = {"role": "assistant", "content": None, "refusal": None, "annotations": None, "audio": None,
              "function_call": None, "tool_calls": [call], "reasoning": "r", "reasoning_content": "r"}  # fmt: skip
    parts = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "user", "content": "x", "name": "n"}, answer, {"role": "user", "content": parts}]
    strict = Client(settings=ApiConfig(strict_request_fields=True))
    assert strict.chat(messages=messages, chat_template_kwargs={"anything": 1}).status == 200
