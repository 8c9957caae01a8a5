"""Log-probabilities in the answers of both endpoints, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront.api.openai.logprobs import LogprobWish, chat_logprobs, completion_logprobs
from fastfront.config import ApiConfig
from fastfront.flow import Position, Token
from tests.api.fakes import Client, Script

QUESTION, EXCLAMATION = {"token": "?", "logprob": -1.5, "bytes": [63]}, {"token": "!", "logprob": -2.5, "bytes": [33]}


def chosen(token: str, *rivals: dict[str, Any]) -> dict[str, Any]:
    own = {"token": token, "logprob": -0.5, "bytes": list(token.encode())}
    return {**own, "top_logprobs": [own, *rivals]}


def joined(events: list[Any], index: int = 0) -> Any:
    """The log-probabilities of one choice's events, put together."""
    parts = [c["logprobs"] for event in events for c in event["choices"] if c["index"] == index and c["logprobs"]]
    return {key: [entry for part in parts for entry in part[key]] for key in parts[0]}


def test_chat(client: Client) -> None:
    client.pipeline.script = Script(("é", " b"))
    want = {"content": [chosen("é", QUESTION), chosen(" b", QUESTION)]}
    body = {"logprobs": True, "top_logprobs": 2}
    assert client.chat(**body).json["choices"][0]["logprobs"] == want
    assert (client.generation.sampling.logprobs, client.generation.sampling.prompt_logprobs) == (2, None)
    assert joined(client.chat(**body, stream=True).events) == want


@pytest.mark.parametrize(("top", "shown"), [(None, 0), (0, 0), (1, 1), (3, 3), (20, 3)])
def test_top(client: Client, top: int | None, shown: int) -> None:
    entries = client.chat(logprobs=True, top_logprobs=top).json["choices"][0]["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [shown, shown]
    assert client.generation.sampling.logprobs == (top or 0)


def test_all(client: Client) -> None:
    client.state.settings = ApiConfig(max_logprobs=-1)
    body = {"logprobs": True, "top_logprobs": -1}
    entries = client.chat(**body).json["choices"][0]["logprobs"]["content"]
    assert entries == [chosen("Hello", QUESTION, EXCLAMATION), chosen(" world", QUESTION, EXCLAMATION)]
    assert client.generation.sampling.logprobs == -1


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_chosen_ids(client: Client, kind: str) -> None:
    if kind == "chat":
        made = client.chat(logprobs=True, logprob_token_ids=[7, 8]).json["choices"][0]["logprobs"]
        assert made["content"][0] == chosen("Hello", QUESTION, EXCLAMATION)
    else:
        made = client.complete(logprobs=0, logprob_token_ids=[7, 8]).json["choices"][0]["logprobs"]
        assert made["top_logprobs"][0] == {"Hello": -0.5, "?": -1.5, "!": -2.5}
    assert client.generation.sampling.logprobs is None
    assert client.generation.sampling.logprob_token_ids == [7, 8]


def test_completion(client: Client) -> None:
    client.pipeline.script = Script(("é", "x"))
    want = {
        "text_offset": [0, 1],
        "token_logprobs": [-0.5, -0.5],
        "tokens": ["é", "x"],
        "top_logprobs": [{"é": -0.5, "?": -1.5}, {"x": -0.5, "?": -1.5}],
    }
    made = client.complete(logprobs=1).json["choices"][0]["logprobs"]
    assert made == want
    assert list(made) == list(want)
    assert joined(client.complete(logprobs=1, stream=True).events) == want
    assert client.complete(logprobs=0).json["choices"][0]["logprobs"]["top_logprobs"] == [{"é": -0.5}, {"x": -0.5}]


def test_echo(client: Client) -> None:
    want = {
        "text_offset": [0, 1, 2, 7],
        "token_logprobs": [None, -0.5, -0.5, -0.5],
        "tokens": ["H", "é", "Hello", " world"],
        "top_logprobs": [None, {"é": -0.5}, {"Hello": -0.5}, {" world": -0.5}],
    }
    body = {"prompt": "Hé", "echo": True, "logprobs": 0}
    (choice,) = client.complete(**body).json["choices"]
    assert (choice["text"], choice["logprobs"]) == ("HéHello world", want)
    assert choice["prompt_logprobs"] == [None, {"233": {"logprob": -0.5, "rank": 1, "decoded_token": "é"}, **RIVALS}]
    assert client.generation.sampling.prompt_logprobs == 0
    assert client.generation.sampling.skip_reading_prefix_cache
    events = client.complete(**body, stream=True).events
    assert joined(events) == want
    assert "".join(choice["text"] for event in events for choice in event["choices"]) == "HéHello world"
    assert events[0]["choices"][0]["logprobs"]["tokens"] == ["H", "é"]


RIVALS = {
    "1000": {"logprob": -1.5, "rank": 2, "decoded_token": "?"},
    "1001": {"logprob": -2.5, "rank": 3, "decoded_token": "!"},
}


def test_echo_alone(client: Client) -> None:
    client.pipeline.script = Script(("x",), "length")
    body = {"prompt": "Hé", "echo": True, "logprobs": 1, "max_tokens": 0}
    want = {
        "text_offset": [0, 1],
        "token_logprobs": [None, -0.5],
        "tokens": ["H", "é"],
        "top_logprobs": [None, {"é": -0.5, "?": -1.5}],
    }
    assert client.complete(**body).json["choices"][0]["logprobs"] == want
    assert joined(client.complete(**body, stream=True).events) == want


def test_echo_of_several_prompts(client: Client) -> None:
    body = {"prompt": ["ab", "cde"], "echo": True, "logprobs": 0, "n": 2, "temperature": 1}
    whole = client.complete(**body).json["choices"]
    events = client.complete(**body, stream=True).events
    for choice in whole:
        assert joined(events, choice["index"]) == choice["logprobs"]
    assert [choice["logprobs"]["tokens"][:-2] for choice in whole] == [["a", "b"]] * 2 + [["c", "d", "e"]] * 2


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_prompt_logprobs(client: Client, kind: str) -> None:
    if kind == "chat":
        made = client.chat(prompt_logprobs=2).json["prompt_logprobs"]
    else:
        made = client.complete(prompt_logprobs=2).json["choices"][0]["prompt_logprobs"]
    assert made[0] is None
    assert made[-1] == {"105": {"logprob": -0.5, "rank": 1, "decoded_token": "i"}, **RIVALS}
    assert client.generation.sampling.prompt_logprobs == 2


@pytest.mark.parametrize("asked", [None, True, False])
@pytest.mark.parametrize("flag", [False, True])
def test_tokens_as_ids(client: Client, asked: bool | None, flag: bool) -> None:
    client.state.settings = ApiConfig(return_tokens_as_token_ids=flag)
    as_ids = flag if asked is None else asked
    body = {"return_tokens_as_token_ids": asked}
    (entry, _) = client.chat(**body, logprobs=True, top_logprobs=2).json["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == ("token_id:0" if as_ids else "Hello", list(b"Hello"))
    assert entry["top_logprobs"][1]["token"] == ("token_id:1000" if as_ids else "?")
    assert entry["top_logprobs"][1]["bytes"] == [63]
    made = client.complete(**body, logprobs=1).json["choices"][0]["logprobs"]
    assert made["tokens"] == (["token_id:0", "token_id:1"] if as_ids else ["Hello", " world"])


def test_ids_in_every_event(client: Client) -> None:
    for events in (
        client.chat(stream=True, return_token_ids=True).events[1:],
        client.complete(stream=True, return_token_ids=True).events[1:],
    ):
        assert [event["choices"][0]["token_ids"] for event in events] == [[0], [1]]


def test_counts_with_logprobs(client: Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = client.complete(stream=True, logprobs=1, stream_options=options).events
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 2]


def test_no_logprobs_where_the_engine_gave_none() -> None:
    bare = Position([5], [Token("x", (120,))], (), ())
    made = chat_logprobs([bare], LogprobWish(2))
    assert made is not None
    assert (made.content[0].logprob, made.content[0].top_logprobs) == (-9999.0, [])
    completion = completion_logprobs([bare], LogprobWish(2))
    assert completion is not None
    assert (completion.token_logprobs, completion.top_logprobs) == ([None], [None])


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), -1e30])
def test_json_has_no_infinity(value: float) -> None:
    made = chat_logprobs([Position([5], [Token("x", (120,))], [value], [1])], LogprobWish(1))
    assert made is not None
    assert made.content[0].logprob == made.content[0].top_logprobs[0].logprob == -9999.0
