"""POST /tokenize and /detokenize."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fastfront.config import ApiConfig
from tests.api.fakes import CharTokenizer, Client


def test_text(client: Client) -> None:
    answer = client.post("/tokenize", {"prompt": "ab", "return_token_strs": True})
    assert answer.json == {"count": 2, "max_model_len": 2048, "tokens": [97, 98], "token_strs": ["a", "b"]}


def test_empty(client: Client) -> None:
    assert client.post("/tokenize", {"prompt": ""}).json["tokens"] == []


def test_many_ids_are_spelled_in_a_thread(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    spell = CharTokenizer.tokens

    def spied(self: CharTokenizer, ids: list[int]) -> list[str]:
        threads.append(threading.current_thread())
        return spell(self, ids)

    monkeypatch.setattr(CharTokenizer, "tokens", spied)
    for count in (10, 3000):
        answer = client.post("/tokenize", {"prompt": "a" * count, "return_token_strs": True})
        assert answer.json["token_strs"] == ["a"] * count
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


def test_conversation_wins(client: Client) -> None:
    tools = [{"function": {"name": "f"}}]
    body = {"prompt": "x", "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "add_special_tokens": True}
    assert client.post("/tokenize", body).json["count"] == len("<user>Hi")
    chat = client.pipeline.prompter.asked[-1]
    assert chat.add_special_tokens
    assert chat.add_generation_prompt
    assert chat.tools[0]["function"]["name"] == "f"


def test_special_tokens_by_default(client: Client) -> None:
    asked: list[bool] = []

    async def tokenize(text: str, add_special_tokens: bool = True) -> list[int]:
        asked.append(add_special_tokens)
        return []

    client.pipeline.prompter.tokenize = tokenize
    for body in ({}, {"add_special_tokens": False}, {"add_special_tokens": True}):
        client.post("/tokenize", {"prompt": "x", **body})
    client.post("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})
    assert asked == [True, False, True]
    assert not client.pipeline.prompter.asked[-1].add_special_tokens


@pytest.mark.parametrize(
    "body, status, param",
    [
        ({}, 400, "body.prompt"),
        ({"prompt": None}, 400, "body.prompt"),
        ({"prompt": [1]}, 400, "body.prompt"),
        ({"model": "other", "prompt": "x"}, 404, "model"),
        ({"messages": []}, 400, None),
        ({"messages": [{"role": "user", "content": "x"}], "continue_final_message": True}, 400, None),
    ],
)
def test_tokenize_refused(client: Client, body: dict[str, Any], status: int, param: str | None) -> None:
    answer = client.post("/tokenize", body)
    assert (answer.status, answer.error["param"]) == (status, param)


def test_detokenize(client: Client) -> None:
    assert client.post("/detokenize", {"tokens": [97, "98"]}).json == {"prompt": "ab"}
    assert client.post("/detokenize", {"tokens": []}).json == {"prompt": ""}


@pytest.mark.parametrize(
    "body, status, param",
    [
        ({}, 400, "body.tokens"),
        ({"tokens": [-1]}, 400, "body.tokens.0"),
        ({"tokens": "x"}, 400, "body.tokens"),
        ({"tokens": [2**32]}, 400, None),
        ({"tokens": [2**63]}, 400, "body.tokens.0"),
        ({"model": "other", "tokens": []}, 404, "model"),
    ],
)
def test_detokenize_refused(client: Client, body: dict[str, Any], status: int, param: str | None) -> None:
    answer = client.post("/detokenize", body)
    assert (answer.status, answer.error["param"]) == (status, param)


def test_trusted_template() -> None:
    client = Client(settings=ApiConfig(trust_request_chat_template=True))
    body = {"messages": [{"role": "user", "content": "x"}], "chat_template": "t"}
    assert client.post("/tokenize", body).status == 200
    assert client.pipeline.prompter.asked[-1].chat_template == "t"
