"""POST /v1/completions: prompts, echo, n, identity, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront.api.state import Limits
from fastfront.errors import EngineDeadError, EngineRequestError
from tests.api.fakes import Client, Script


@pytest.mark.parametrize(
    "prompt, ids",
    [
        ("ab", [[97, 98]]),
        ([97, 98], [[97, 98]]),
        (["ab", "c"], [[97, 98], [99]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
    ],
)
def test_prompt_forms(client: Client, prompt: object, ids: list[list[int]]) -> None:
    answer = client.complete(prompt=prompt)
    assert [list(p.token_ids) for p in client.generation.prompts] == ids
    assert [choice["index"] for choice in answer.json["choices"]] == list(range(len(ids)))
    assert answer.json["usage"]["prompt_tokens"] == sum(map(len, ids))


@pytest.mark.parametrize(
    "prompt, param",
    [
        (None, "prompt"),
        ("", "prompt"),
        ([], "prompt"),
        ([151936], "prompt"),
        (["a", 5], "body.prompt"),
        (["a", [5]], "body.prompt"),
        ([1.5], "body.prompt.0"),
        (5, "body.prompt"),
        ([-5], "body.prompt.0"),
        ([[-5]], "body.prompt.0.0"),
        ([True], None),
    ],
)
def test_bad_prompts(client: Client, prompt: object, param: str | None) -> None:
    answer = client.complete(prompt=prompt)
    if param is None:  # pydantic takes true for 1
        assert answer.status == 200
        return
    assert (answer.status, answer.error["param"]) == (400, param)


def test_prompt_count_is_limited() -> None:
    client = Client(limits=Limits(prompts=2))
    assert client.complete(prompt=["a", "b"]).status == 200
    assert client.complete(prompt=["a", "b", "c"]).error["param"] == "prompt"
    assert client.complete(prompt=[1, 2, 3]).status == 200  # one prompt of ids


def test_choices_of_n(client: Client) -> None:
    answer = client.complete(prompt=["a", "bc"], n=2, temperature=1, seed=5)
    assert client.generation.n == 2
    assert client.generation.seed == 5  # the pipeline adds the choice's number
    assert [choice["index"] for choice in answer.json["choices"]] == [0, 1, 2, 3]
    usage = answer.json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 8, 11)


class TestEcho:
    """The prompt comes back before the text."""

    def test_whole(self, client: Client) -> None:
        answer = client.complete(prompt=["ab", "c"], n=2, temperature=1, echo=True)
        texts = [choice["text"] for choice in answer.json["choices"]]
        assert texts == ["abHello world", "abHello world", "cHello world", "cHello world"]

    def test_ids_are_decoded(self, client: Client) -> None:
        assert client.complete(prompt=[97, 98], echo=True).json["choices"][0]["text"] == "abHello world"

    def test_nothing_but_the_prompt(self, client: Client) -> None:
        client.pipeline.script = Script(("x",), "length")
        answer = client.complete(prompt="ab", echo=True, max_tokens=0)
        choice = answer.json["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("ab", "length")
        assert client.generation.max_tokens == 1
        assert answer.json["usage"]["completion_tokens"] == 1

    def test_returned_ids_stand_for_the_text(self, client: Client) -> None:
        choice = client.complete(prompt="ab", echo=True, return_token_ids=True).json["choices"][0]
        assert choice["text"] == "Hello world"
        assert choice["prompt_token_ids"] == [97, 98]


def test_token_ids(client: Client) -> None:
    choice = client.complete(prompt=["ab", "c"], return_token_ids=True).json["choices"][1]
    assert choice["token_ids"] == [0, 1]
    assert choice["prompt_token_ids"] == [99]
    plain = client.complete().json["choices"][0]
    assert plain["token_ids"] is plain["prompt_token_ids"] is None


def test_add_special_tokens_and_truncation(client: Client) -> None:
    client.complete(truncate_prompt_tokens=5, truncation_side="left", max_tokens=7)
    assert client.pipeline.prompter.limits_asked == [
        {"max_tokens": 7, "truncate_prompt_tokens": 5, "truncation_side": "left"}
    ]


@pytest.mark.parametrize("model", [None, "", "m", "alias"])
def test_model(client: Client, model: str | None) -> None:
    assert client.complete(model=model).json["model"] == "m"


def test_other_model(client: Client) -> None:
    answer = client.complete(model="other")
    assert answer.status == 404
    assert answer.error == {
        "message": "The model `other` does not exist. Valid aliases: m, alias.",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }
    assert Client(limits=Limits(any_model_name=True)).complete(model="other").json["model"] == "m"


@pytest.mark.parametrize(
    "body, headers, public",
    [
        ({"request_id": "mine"}, {}, "cmpl-mine"),
        ({"request_id": ""}, {}, "cmpl-"),
        ({}, {"x-request-id": "head"}, "cmpl-head"),
        ({"request_id": "mine"}, {"x-request-id": "head"}, "cmpl-head"),
        ({"request_id": 'a"\n'}, {}, 'cmpl-a"\n'),
    ],
)
def test_request_id(client: Client, body: dict[str, Any], headers: dict[str, str], public: str) -> None:
    answer = client.post("/v1/completions", {"prompt": "x", **body}, headers)
    assert answer.json["id"] == client.generation.request_id == public
    stream = client.post("/v1/completions", {"prompt": "x", "stream": True, **body}, headers)
    assert {event["id"] for event in stream.events} == {public}


@pytest.mark.parametrize(
    "body, headers, priority, session, rank",
    [
        ({}, {}, 0, None, None),
        ({"priority": -3, "session_id": "s"}, {}, -3, "s", None),
        ({"priority": -3}, {"x-vllm-priority": "4", "x-session-id": "h", "x-data-parallel-rank": "1"}, 4, "h", 1),
        ({"priority": 2}, {"x-vllm-priority": "x", "x-data-parallel-rank": "x"}, 2, None, None),
        ({"vllm_xargs": {"session_id": "x"}}, {"x-data-parallel-rank": "-1"}, 0, "x", -1),
        ({"session_id": "s"}, {"x-session-id": "h"}, 0, "s", None),
        ({}, {"x-vllm-priority": "9" * 19, "x-data-parallel-rank": "9" * 5000}, 0, None, None),
    ],
)
def test_headers(
    client: Client,
    body: dict[str, Any],
    headers: dict[str, str],
    priority: int,
    session: str | None,
    rank: int | None,
) -> None:
    client.post("/v1/completions", {"prompt": "x", **body}, headers)
    g = client.generation
    assert (g.priority, g.session_id, g.data_parallel_rank) == (priority, session, rank)


def test_trace_and_salt(client: Client) -> None:
    trace = {"traceparent": "00-1-2-01", "tracestate": "a=b"}
    client.post("/v1/completions", {"prompt": "x", "cache_salt": "salt"}, trace)
    assert client.generation.trace_headers == trace
    assert client.generation.cache_salt == "salt"
    client.complete()
    assert client.generation.trace_headers is None


@pytest.mark.parametrize(
    "field, value",
    [
        ("suffix", ""),
        ("suffix", "tail"),
        ("prompt_embeds", "AA=="),
    ],
)
def test_not_served(client: Client, field: str, value: object) -> None:
    answer = client.complete(**{field: value})
    assert (answer.status, answer.error["type"], answer.error["param"]) == (400, "BadRequestError", field)
    assert field in answer.error["message"]


@pytest.mark.parametrize(
    "field, value",
    [
        ("logprobs", None),
        ("prompt_logprobs", None),
        ("logprob_token_ids", []),
        ("use_beam_search", False),
        ("length_penalty", 0.5),
        ("suffix", None),
        ("prompt_embeds", None),
        ("spaces_between_special_tokens", False),
        ("return_tokens_as_token_ids", True),
        ("prompt_logprobs", 0),
        ("user", "u"),
        ("stream_options", {}),
        ("stream_options", None),
        ("return_token_offsets", True),
        ("mm_payload", "none"),
    ],
)
def test_neutral_values(client: Client, field: str, value: object) -> None:
    assert client.complete(**{field: value}).status == 200


@pytest.mark.parametrize(
    "body, param",
    [
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -2}, "logprobs"),
        ({"prompt_logprobs": -2}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"logprob_token_ids": [1], "logprobs": 1, "echo": True, "max_tokens": 0}, "logprob_token_ids"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"stream_options": {"include_usage": False}}, "stream_options"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_rules_between_fields(client: Client, body: dict[str, Any], param: str) -> None:
    answer = client.complete(**body)
    assert (answer.status, answer.error["param"]) == (400, param)


def test_dead_engine(client: Client) -> None:
    client.dead = EngineDeadError("the engine died")
    for answer in (client.complete(), client.complete(stream=True), client.chat()):
        assert answer.status == 500
        assert answer.error["type"] == "InternalServerError"
    assert not client.pipeline.asked
    assert client.complete(model="other").status == 404


def test_engine_error(client: Client) -> None:
    client.pipeline.script = Script(error=EngineRequestError("x"))
    assert (client.complete().status, client.complete().error["message"]) == (500, "Internal server error")


@pytest.mark.parametrize("reason, stop", [("abort", None), ("repetition", "repetition_detected"), ("stop", 7)])
def test_finish(client: Client, reason: str, stop: int | str | None) -> None:
    client.pipeline.script = Script(("a",), reason, stop)
    choice = client.complete().json["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == (reason, stop)
    last = client.complete(stream=True).events[-1]["choices"][0]
    assert (last["finish_reason"], last["stop_reason"]) == (reason, stop)


@pytest.mark.parametrize("stream", [False, True])
def test_every_choice_has_a_seed(client: Client, stream: bool) -> None:
    last = (1 << 63) - 1
    for seed, n in ((last, 1), (last - 2, 3), (-(1 << 63), 3)):
        assert client.complete(seed=seed, n=n, temperature=1, stream=stream).status == 200
        assert client.generation.seed == seed
    asked = len(client.pipeline.asked)
    for seed, n in ((last, 2), (last - 1, 3)):
        answer = client.complete(seed=seed, n=n, temperature=1, stream=stream)
        assert (answer.status, answer.error["param"]) == (400, "seed")
        assert answer.error["message"].startswith(f"seed must be at most {last - n + 1} for {n} choices, got {seed}.")
    assert len(client.pipeline.asked) == asked


def test_in_flight(client: Client) -> None:
    client.complete()
    client.pipeline.script = Script(error=EngineRequestError("x"))
    client.complete(stream=True)
    client.complete()
    assert client.state.in_flight == 0
