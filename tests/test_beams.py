"""Beam search: the texts of a plain search over the same log-probabilities, through the whole stack and alone."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fastfront.api.errors import render_error
from fastfront.api.routes import routes
from fastfront.api.state import ApiState, Limits
from fastfront.beams import Beam, BeamOptions, BeamSearch, chosen
from fastfront.config import ApiConfig
from fastfront.errors import FastfrontError
from fastfront.fast import Router
from fastfront.flow import ChatInput, HttpRequest, Position, SamplingParams, Token
from fastfront.pipeline import Pipeline
from tests.api.fakes import QWEN, Answer, FakeReply
from tests.test_pipeline import BYTES, BytePrompter, Engine, Rows

#: An end token that ends texts now and then, and the letters that texts are made of.
EOS, LETTERS = 0, b"abcdefghijkl"
CHAT = ChatInput([{"role": "user", "content": "ab"}])


def rows(ids: Sequence[int], seed: int = 0) -> list[tuple[int, float]]:
    """The log-probabilities of all tokens after a text, the best first: made up, and always the same."""
    chance = random.Random(f"{seed} {list(ids)}")
    weights = {token_id: chance.random() ** 3 for token_id in (EOS, *LETTERS)}
    weights[EOS] *= 1.5
    total = math.log(sum(weights.values()))
    return sorted(((token_id, math.log(w) - total) for token_id, w in weights.items()), key=lambda row: -row[1])


def plain_search(
    prompt: list[int], width: int, steps: int, penalty: float = 1.0, ignore_eos: bool = False, include: bool = False
) -> list[tuple[list[int], str]]:
    """The texts and why each ended, by the definition: every continuation of every beam, then the best of them."""
    going: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int], str]] = []
    for _ in range(steps):
        grown = []
        for logprob, text in going:
            for token_id, more in rows([*prompt, *text])[: 2 * width]:
                if token_id == EOS and not ignore_eos:
                    ended.append((logprob + more, [*text, EOS] if include else text, "stop"))
                else:
                    grown.append((logprob + more, [*text, token_id]))
        going = sorted(grown, key=lambda one: -one[0])[:width]
    every = [*ended, *((logprob, text, "length") for logprob, text in going)]

    def score(one: tuple[float, list[int], str]) -> float:
        whole = [*prompt, *one[1]]
        return float(one[0] / (len(whole) - (whole[-1] == EOS)) ** penalty)

    return [(text, why) for _, text, why in sorted(every, key=score, reverse=True)[:width]]


class Model(Engine):
    """An engine whose tokens come with the log-probabilities of `rows`; what it samples is any of them."""

    def _play(self, request: Any) -> None:
        after = rows(request.prompt_token_ids)
        sampled = random.Random(repr(list(request.prompt_token_ids))).randrange(2 * len(LETTERS) // 3)
        token_id, logprob = after[sampled]
        self.parts = [[token_id]]
        self.rows = Rows(logprob, sampled + 1, after[: request.sampling.logprobs])
        super()._play(request)


class Failing(Model):
    """Fails the request after the third token."""

    def _play(self, request: Any) -> None:
        self.finish = 3 if len(request.prompt_token_ids) == 5 else 1
        super()._play(request)


class Telling(Model):
    """Tells nothing but ids."""

    def _play(self, request: Any) -> None:
        self.parts = [[LETTERS[0]]]
        request.sampling = msgspec.structs.replace(request.sampling, logprobs=None)
        super(Model, self)._play(request)


class Aborting(Model):
    """Gives requests up after the third token."""

    def _play(self, request: Any) -> None:
        self.finish = 2 if len(request.prompt_token_ids) == 5 else 1
        super()._play(request)


class Silent(Model):
    """Takes requests and does not answer; `busy` once it has two."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.busy = asyncio.Event()

    def _play(self, request: Any) -> None:
        if len(self.requests) == 2:
            self.busy.set()


class Server:
    """The API over such an engine."""

    def __init__(self, model: type[Engine] = Model, **settings: Any) -> None:
        info = msgspec.structs.replace(QWEN, vocab_size=256, eos_token_id=EOS, extra_eos_token_ids=[])
        router = Router()
        self.engine: Any = model(router, [[1]], 1)
        prompter: Any = BytePrompter(info)
        prompter.detokenize = self._detokenize
        link: Any = self.engine
        pipeline = Pipeline(info, prompter, BYTES, link, router)
        self.state = ApiState(pipeline, "0.32.0", "0", False, settings=ApiConfig(**settings), limits=Limits())
        self.handlers = {path: handler for method, path, handler in routes(self.state) if method == "POST"}

    async def _detokenize(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return bytes(n for n in ids if n != EOS or not skip_special_tokens).decode()

    def begin(self, path: str, body: dict[str, Any]) -> tuple[FakeReply, Any]:
        """A request, and what serves it."""
        reply = FakeReply()
        content = json.dumps({"use_beam_search": True, **body}).encode()
        headers = {"content-type": "application/json"}
        return reply, self.handlers[path](HttpRequest("POST", path, "", headers, content, ""), reply)

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        async def run() -> Answer:
            try:
                reply, work = self.begin(path, body)
                return await reply.served(work)
            except FastfrontError as error:
                status, answer, kind, headers = render_error(error)
                return Answer(status, answer, kind, dict(headers), True)

        return asyncio.run(run())

    def complete(self, **body: Any) -> Answer:
        return self.post("/v1/completions", {"prompt": "ab", **body})

    def chat(self, **body: Any) -> Answer:
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "ab"}], **body})


def texts(answer: Answer) -> list[tuple[str, str]]:
    """Each choice's text and why it ended."""
    assert answer.status == 200, answer.body
    return [(c["text"] if "text" in c else c["message"]["content"], c["finish_reason"]) for c in answer.json["choices"]]


def expected(prompt: bytes, *args: Any, **kwargs: Any) -> list[tuple[str, str]]:
    return [
        (bytes(n for n in text if n != EOS).decode(), why) for text, why in plain_search(list(prompt), *args, **kwargs)
    ]


@pytest.mark.parametrize("prompt", ["a", "ab", "the sea", "é", "x y"])
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.5, -1.0])
def test_as_the_plain_search(prompt: str, width: int, penalty: float) -> None:
    answer = Server().complete(prompt=prompt, n=width, max_tokens=7, length_penalty=penalty)
    found = expected(prompt.encode(), width, 7, penalty)
    assert texts(answer) == found
    assert len(found) == width


def test_some_end_and_some_do_not() -> None:
    reasons = {why for _, why in expected(b"ab", 5, 7)}
    assert reasons == {"stop", "length"}


def test_ignoring_the_end() -> None:
    answer = Server().complete(n=3, max_tokens=9, ignore_eos=True)
    assert texts(answer) == expected(b"ab", 3, 9, ignore_eos=True)


def test_the_end_token_among_the_ids() -> None:
    bodies = {"n": 4, "max_tokens": 7, "return_token_ids": True}
    with_end = Server().complete(**bodies, include_stop_str_in_output=True)
    assert [c["token_ids"] for c in with_end.json["choices"]] == [
        text for text, _ in plain_search(list(b"ab"), 4, 7, include=True)
    ]
    assert any(c["token_ids"][-1] == EOS for c in with_end.json["choices"])
    assert all("\0" not in text for text, _ in texts(with_end))
    without = Server().complete(**bodies)
    assert [c["token_ids"] for c in without.json["choices"]] == [text for text, _ in plain_search(list(b"ab"), 4, 7)]
    stops = {(c["finish_reason"], c["stop_reason"]) for c in without.json["choices"]}
    assert stops == {("stop", EOS), ("length", None)}


def test_usage_and_several_prompts() -> None:
    answer = Server().complete(prompt=["ab", "c"], n=2, max_tokens=5, return_token_ids=True)
    assert texts(answer) == expected(b"ab", 2, 5) + expected(b"c", 2, 5)
    choices = answer.json["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    tokens = sum(len(choice["token_ids"]) for choice in choices)
    usage = answer.json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, tokens, 3 + tokens)


def test_what_the_engine_is_asked() -> None:
    server = Server()
    server.complete(n=3, max_tokens=2, temperature=0.5, seed=3, top_p=0.5, cache_salt="s", priority=2)
    first, *rest = server.engine.requests
    assert len(rest) == 3
    for request in server.engine.requests:
        assert msgspec.structs.asdict(request.sampling) == msgspec.structs.asdict(
            SamplingParams(temperature=0.5, logprobs=6, output_kind=1, watermarking=False)
        )
        assert (request.max_tokens, request.seed) == (1, None)
        assert (request.cache_salt, request.priority) == ("s", 2)
    assert first.prompt_token_ids == list(b"ab")
    assert {tuple(request.prompt_token_ids[:2]) for request in rest} == {tuple(b"ab")}
    assert len({request.request_id for request in server.engine.requests}) == 4


def test_the_search_ends_where_the_window_does() -> None:
    server = Server()
    asked = asyncio.run(BytePrompter(QWEN).chat(CHAT)).token_ids
    server.state.pipeline.info.max_model_len = len(asked) + 4
    assert texts(server.chat(n=2, ignore_eos=True)) == expected(bytes(list(asked)), 2, 4, ignore_eos=True)


def test_log_probabilities_of_a_completion() -> None:
    answer = Server().complete(n=2, max_tokens=4, logprobs=1, return_token_ids=True)
    for choice in answer.json["choices"]:
        logprobs, before = choice["logprobs"], list(b"ab")
        assert "".join(logprobs["tokens"]) == choice["text"]
        assert logprobs["text_offset"] == list(range(len(choice["text"])))
        for at, token_id in enumerate(choice["token_ids"]):
            after = dict(rows(before))
            assert logprobs["token_logprobs"][at] == pytest.approx(after[token_id], abs=1e-6)
            assert chr(token_id) in logprobs["top_logprobs"][at]
            before.append(token_id)


def test_a_chat() -> None:
    answer = Server().chat(n=2, max_tokens=4, logprobs=True, top_logprobs=2)
    asked = asyncio.run(BytePrompter(QWEN).chat(CHAT)).token_ids
    assert [text for text, _ in texts(answer)] == [text for text, _ in expected(bytes(list(asked)), 2, 4)]
    content = answer.json["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == answer.json["choices"][0]["message"]["content"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in content)
    streamed = Server().chat(n=2, max_tokens=4, stream=True, stream_options={"include_usage": True})
    told = ["", ""]
    for event in streamed.events:
        for part in event["choices"]:
            told[part["index"]] += part["delta"].get("content") or ""
    assert told == [text for text, _ in texts(answer)]
    assert streamed.events[-1]["usage"]["completion_tokens"] == answer.json["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    "body, param",
    [
        ({"n": 11}, "logprobs"),
        ({"n": 0}, None),
        ({"stream": True}, None),
        ({"logprobs": 1, "logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"temperature": 3}, "temperature"),
        ({"stop": ["a"]}, "stop"),
        ({"stop_token_ids": [1]}, "stop_token_ids"),
        ({"min_tokens": 1}, "min_tokens"),
        ({"logit_bias": {"1": 1}}, "logit_bias"),
        ({"bad_words": ["a"]}, "bad_words"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"length_penalty": float("inf")}, "length_penalty"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ],
)
def test_refused(body: dict[str, Any], param: str | None) -> None:
    server = Server()
    answer = server.complete(**body)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert not server.engine.requests


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": 0, "n": 2},
        {"echo": True},
        {"top_k": 1, "min_p": 0.1, "seed": 1},
        {"repetition_penalty": 1.0, "frequency_penalty": 0, "stop": [], "min_tokens": 0},
        {"response_format": {"type": "text"}},
    ],
)
def test_taken(body: dict[str, Any]) -> None:
    assert Server().complete(max_tokens=2, **body).status == 200


def test_a_wider_search_where_the_server_gives_more() -> None:
    assert len(texts(Server(max_logprobs=-1).complete(n=6, max_tokens=2))) == 6


def test_a_failure_is_an_error() -> None:
    answer = Server(Failing).complete(n=2, max_tokens=6, ignore_eos=True)
    assert (answer.status, answer.error["type"]) == (500, "InternalServerError")


def test_an_engine_that_gives_no_log_probabilities() -> None:
    answer = Server(Telling).complete(n=2, max_tokens=6, ignore_eos=True)
    assert (answer.status, answer.error["type"]) == (500, "InternalServerError")


def test_beams_that_the_engine_gives_up() -> None:
    answer = Server(Aborting).complete(n=2, max_tokens=6, ignore_eos=True)
    assert texts(answer) == [(text, "abort") for text, _ in expected(b"ab", 2, 3, ignore_eos=True)]


def test_a_client_that_leaves_ends_every_beam() -> None:
    server = Server(Silent)

    async def run() -> None:
        _, work = server.begin("/v1/completions", {"prompt": ["a", "b"], "n": 2})
        task = asyncio.ensure_future(work)
        await server.engine.busy.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert set(server.engine.aborted) == {request.request_id for request in server.engine.requests}

    asyncio.run(run())


# --- the search alone -------------------------------------------------------------------------------------------------


def position(*candidates: tuple[int, float]) -> Position:
    ids, logprobs = zip(*candidates, strict=True)
    return Position(ids, [Token(str(n), ()) for n in ids], logprobs, range(1, len(ids) + 1))


def test_scores_that_no_number_holds() -> None:
    for penalty in (1e308, -1e308, 0.0):
        found = BeamSearch([7], BeamOptions(2, penalty))
        for _ in range(2):
            found.step([position((1, -1.0), (2, -2.0))] * len(found.beams))
        assert len(found.best()) == 2


def test_a_prompt_that_ends_with_the_end_token() -> None:
    found = BeamSearch([EOS], BeamOptions(1, eos_token_id=EOS))
    found.step([position((EOS, -0.1), (5, -3.0))])
    assert found.best() == [Beam((), (position((EOS, -0.1), (5, -3.0)),), -0.1, "stop")]
    assert found.text_ids(found.best()[0]) == []


def test_without_any_alternative_the_search_is_over() -> None:
    found = BeamSearch([7], BeamOptions(2))
    found.step([Position((), (), (), ())])
    assert found.beams == []
    assert found.best() == []


def test_the_chosen_goes_first_and_its_rivals_by_probability() -> None:
    # an engine's first is what it sampled
    seen = chosen(position((9, -5.0), (1, -0.5), (2, -1.0)), 2)
    assert list(seen.ids) == [2, 1, 9]
    assert list(seen.logprobs) == [-1.0, -0.5, -5.0]
    assert [token.text for token in seen.tokens] == ["2", "1", "9"]
