"""The pipeline and both endpoints over an engine that is played here: however it groups tokens, the answer is one."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import openai.types
import openai.types.chat
import pytest

from fastfront.api.routes import routes
from fastfront.api.state import ApiState, Limits
from fastfront.config import ApiConfig
from fastfront.errors import EngineRequestError, WireError
from fastfront.fast import Router, Vocab
from fastfront.flow import EngineRequest, HttpRequest, Prompt
from fastfront.parse.registry import Format, choose
from fastfront.pipeline import CHOICES_A_TURN, Pipeline
from fastfront.process import vocabulary
from fastfront.prompt.load import PromptSettings, load_prompter
from tests.api.fakes import QWEN, Answer, CharPrompter, FakeReply

STOP, LENGTH, ERROR = 0, 1, 3
encode = msgspec.msgpack.encode
#: One id a byte, so that characters come in parts.
BYTES = Vocab([bytes([n]) for n in range(256)], special=[0])
OPTIONS = {"include_usage": True, "continuous_usage_stats": True}


class BytePrompter(CharPrompter):
    """Prompts with an id for each byte."""

    def text_now(self, text: str, add_special_tokens: bool = True, limits: Any = None) -> Prompt:
        return Prompt(list(text.encode()), text)

    async def text(self, text: str, add_special_tokens: bool = True, limits: Any = None) -> Prompt:
        return self.text_now(text)


def array(frames: list[bytes], apart: bool, code: str, shape: list[int], values: Sequence[float]) -> list[Any]:
    data = struct.pack(f"<{len(values)}{code}", *values)
    if apart:
        frames.append(data)
    return [f"<{code}4", shape, len(frames) - 1 if apart else msgspec.msgpack.Ext(3, data)]


class Rows(NamedTuple):
    """How an engine makes up log-probabilities: the token's own and its rank, then the rivals'."""

    own: float = -0.5
    rank: int = 1
    #: One more than any test asks for.
    rivals: Sequence[tuple[int, float]] = ((65, -1.0), (66, -2.0), (67, -3.0), (0xA9, -4.0))

    def pack(self, frames: list[bytes], apart: bool, ids: Sequence[int]) -> list[Any]:
        made = [n for own in ids for n in (own, *(token_id for token_id, _ in self.rivals))]
        floats = [self.own, *(logprob for _, logprob in self.rivals)] * len(ids)
        shape = [len(ids), 1 + len(self.rivals)]
        return [
            array(frames, apart, "i", shape, made),
            array(frames, apart, "f", shape, floats),
            array(frames, apart, "i", shape[:1], [self.rank] * len(ids)),
            None,
        ]


class Engine:
    """Stands for the link: plays `parts` (ids of each step) for every request, and ends with `finish`."""

    rows = Rows()
    prompt_rows = Rows()

    def __init__(self, router: Router, parts: list[list[int]], finish: int, rare: dict[int, Any] | None = None) -> None:
        self.dead = None
        self.router = router
        self.parts = parts
        self.finish = finish
        self.rare = rare or {}
        self.frames: Sequence[bytes] = ()
        self.requests: list[EngineRequest] = []
        self.aborted: list[str] = []

    def submit(self, request: EngineRequest) -> int:
        self.requests.append(request)
        asyncio.get_running_loop().call_soon(self._play, request)
        return 0

    def abort(self, request_ids: Iterable[str]) -> None:
        self.aborted += request_ids

    def _play(self, request: EngineRequest) -> None:
        sampling = request.sampling
        for at, ids in enumerate(self.parts):
            last = at == len(self.parts) - 1
            frames = [b""]
            row: list[Any] = [request.request_id, ids, *[None] * 10]
            if sampling.logprobs is not None and ids:
                row[2] = self.rows.pack(frames, at % 2 == 1, ids)
            if sampling.prompt_logprobs is not None and at == 0 and len(request.prompt_token_ids) > 1:
                row[3] = [*self.prompt_rows.pack(frames, True, request.prompt_token_ids[1:]), None]
            if last:
                row[5] = self.finish
                for place, value in self.rare.items():
                    row[place] = value
            frames[0] = encode([0, [row], None, 1.0])
            self.frames = frames
            for step in self.router.feed(frames[0], 1.0).steps:
                owner: Any = step.stream.owner
                try:
                    owner.on_step(step)
                except WireError as error:
                    owner.on_error(error)
            self.frames = ()


def ask(
    path: str,
    body: dict[str, Any],
    parts: list[list[int]],
    finish: int = LENGTH,
    rare: dict[int, Any] | None = None,
    vocab: Vocab = BYTES,
    prompter: Any = None,
    kind: type[Engine] = Engine,
    format: Format | None = None,
) -> tuple[Answer, Engine]:
    """The answer to one request, and the engine that played it."""
    router = Router()
    engine = kind(router, parts, finish, rare)
    link: Any = engine
    prompts: Any = prompter or BytePrompter(QWEN)
    pipeline = Pipeline(QWEN, prompts, vocab, link, router)
    state = ApiState(pipeline=pipeline, engine_version="0.32.0", version="0", native=False, limits=Limits())
    if format is not None:
        state.format = format
        state.settings = ApiConfig(tool_call_parser=format.tool, reasoning_parser=format.reasoning)
    (handler,) = (handler for _, route, handler in routes(state) if route == path)
    reply = FakeReply()
    request = HttpRequest("POST", path, "", {"content-type": "application/json"}, json.dumps(body).encode(), "test")

    async def run() -> None:
        await reply.served(handler(request, reply))

    asyncio.run(run())
    return reply.answer, engine


def meaning(answer: Answer) -> dict[int, dict[str, Any]]:
    """What a stream's events say of each choice, put together like a whole answer."""
    choices: dict[int, dict[str, Any]] = {}
    for event in answer.events:
        for part in event["choices"]:
            made = choices.setdefault(part["index"], {"text": "", "logprobs": None, "token_ids": []})
            made["text"] += (part["delta"].get("content") if "delta" in part else part["text"]) or ""
            made["token_ids"] += part.get("token_ids") or []
            made["finish"] = part["finish_reason"], part.get("stop_reason")
            if part["logprobs"] is not None:
                whole = made["logprobs"] = made["logprobs"] or {key: [] for key in part["logprobs"]}
                for key, values in part["logprobs"].items():
                    whole[key] += values
    return choices


def whole(answer: Answer) -> dict[int, dict[str, Any]]:
    """The same of a whole answer."""
    return {
        choice["index"]: {
            "text": choice["text"] if "text" in choice else choice["message"]["content"] or "",
            "logprobs": choice["logprobs"],
            "token_ids": choice["token_ids"] or [],
            "finish": (choice["finish_reason"], choice["stop_reason"]),
        }
        for choice in answer.json["choices"]
    }


BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"logprobs": 0}),
    ("/v1/completions", {"logprobs": 2, "return_token_ids": True}),
    ("/v1/completions", {"return_token_ids": True}),
    ("/v1/completions", {"logprobs": 1, "echo": True}),
    ("/v1/completions", {"logprobs": 1, "echo": True, "return_token_ids": True, "n": 2}),
    ("/v1/completions", {"logprobs": 1, "echo": True, "max_tokens": 0}),
    ("/v1/completions", {"logprobs": 1, "stop": ["BC"], "n": 3}),
    ("/v1/completions", {"logprobs": 1, "stop": ["é"], "include_stop_str_in_output": True, "min_tokens": 3}),
    ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {"logprobs": True, "return_token_ids": True, "n": 2}),
    ("/v1/chat/completions", {"logprobs": True, "stop": ["A", "🫠"], "return_tokens_as_token_ids": True}),
]


def splits(ids: list[int], rng: random.Random) -> Iterator[list[list[int]]]:
    yield [ids]
    yield [[token] for token in ids]
    for _ in range(4):
        at = sorted(rng.choices(range(len(ids)), k=3))
        yield [ids[low:high] for low, high in zip([0, *at], [*at, len(ids)], strict=True)]


@pytest.mark.parametrize(("path", "asked"), BODIES)
@pytest.mark.parametrize("finish", [STOP, LENGTH])
def test_one_answer(path: str, asked: dict[str, Any], finish: int) -> None:
    rng = random.Random(7)
    prompt = {"prompt": "Hé"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "x"}]}
    body = {**prompt, **asked}
    for _ in range(6):
        ids = rng.choices([0, 65, 66, 67, 0xC3, 0xA9, *"🫠".encode()], k=rng.randrange(1, 16))
        ids[rng.randrange(len(ids)) :] += list("é🫠BC".encode())
        want = whole(ask(path, body, [ids], finish)[0])
        alone = asked.get("max_tokens") == 0
        for choice in want.values():
            if asked.get("return_token_ids") and asked.get("logprobs"):
                entries = choice["logprobs"].get("content") or choice["logprobs"]["tokens"]
                assert len(entries) == len(choice["token_ids"]) + ("echo" in asked) * len("Hé".encode())
        for parts in splits(ids, rng):
            assert whole(ask(path, body, parts, finish)[0]) == want
            for interval in (1, 3):
                streamed = {**body, "stream": True, "stream_options": OPTIONS, "stream_interval": interval}
                answer, engine = ask(path, streamed, parts, finish)
                got = meaning(answer)
                if alone:
                    got[0]["token_ids"] = want[0]["token_ids"]
                assert got == want
                counts = [event["usage"]["completion_tokens"] for event in answer.events if len(event["choices"]) == 1]
                assert counts == sorted(counts) or len(want) > 1
                assert len(engine.requests) == len(want)


def test_an_entry_for_every_token_where_text_is_held_back() -> None:
    body = {"prompt": "x", "logprobs": 0, "stop": ["ABCD"], "stream": True}
    answer, _ = ask("/v1/completions", body, [[65], [66], [67], [69]])
    shown = [(c["text"], c["logprobs"]["tokens"]) for event in answer.events for c in event["choices"]]
    assert shown == [("", ["A"]), ("", ["B"]), ("", ["C"]), ("ABCE", ["E"])]


def test_offsets_count_characters() -> None:
    body = {"prompt": "é", "logprobs": 0, "echo": True}
    made = ask("/v1/completions", body, [list("é🫠x".encode())])[0].json["choices"][0]["logprobs"]
    assert made["tokens"] == ["", "é", "", "é", "", "", "", "🫠", "x"]
    assert made["text_offset"] == [0, 0, 1, 1, 2, 2, 2, 2, 3]
    assert made["token_logprobs"] == [None, *[-0.5] * 8]


def test_bytes_are_the_tokens_own() -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 1}
    content = ask("/v1/chat/completions", body, [list("é".encode())])[0].json["choices"][0]["logprobs"]["content"]
    assert [(entry["token"], entry["bytes"]) for entry in content] == [("", [0xC3]), ("é", [0xA9])]


def test_prompt_logprobs_of_one_token() -> None:
    answer, _ = ask("/v1/completions", {"prompt": "x", "prompt_logprobs": 1}, [[65]])
    assert answer.json["choices"][0]["prompt_logprobs"] == [None]
    answer, _ = ask("/v1/completions", {"prompt": "xA", "prompt_logprobs": 1}, [[65]])
    assert answer.json["choices"][0]["prompt_logprobs"] == [
        None,
        {"65": {"logprob": -0.5, "rank": 1, "decoded_token": "A"}},
    ]


def test_hand_over_and_cached_tokens() -> None:
    rare = {8: {"block": [1, 2]}, 9: {"x": 1}, 11: {"num_cached_tokens": 7, "num_cache_creation_tokens": 2}}
    chat = {"messages": [{"role": "user", "content": "x"}]}
    made = ask("/v1/chat/completions", chat, [[65], [66]], LENGTH, rare)[0].json
    assert (made["kv_transfer_params"], made["ec_transfer_params"]) == ({"block": [1, 2]}, {"x": 1})


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_error_keeps_what_came(stream: bool) -> None:
    body = {"prompt": "x", "logprobs": 0, "stop": ["AB"], "stream": stream}
    if not stream:
        with pytest.raises(EngineRequestError):
            ask("/v1/completions", body, [[67], [65]], ERROR)
        return
    *events, last = ask("/v1/completions", body, [[67], [65]], ERROR)[0].events
    assert [(c["text"], c["logprobs"]["tokens"]) for event in events for c in event["choices"]] == [
        ("C", ["C"]),
        ("A", ["A"]),
    ]
    assert last["error"]["type"] == "server_error"


def test_a_malformed_row_fails_the_request_alone() -> None:
    rare = {2: [["<i4", [1, 1], 9], None, None, None]}
    with pytest.raises(WireError, match="array"):
        ask("/v1/completions", {"prompt": "x", "logprobs": 0}, [[65]], LENGTH, rare)


@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_openai_types(logprobs: int | None) -> None:
    chat = {"messages": [{"role": "user", "content": "x"}], "logprobs": logprobs is not None, "top_logprobs": logprobs}
    parts = [[65, 0xC3], [0xA9]]
    kinds: list[tuple[str, dict[str, Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
        ("/v1/chat/completions", chat, openai.types.chat.ChatCompletion.model_validate,
         openai.types.chat.ChatCompletionChunk.model_validate),
        ("/v1/completions", {"prompt": "x", "logprobs": logprobs}, openai.types.Completion.model_validate,
         lambda event: openai.types.Completion.model_construct(**event)),
    ]  # fmt: skip
    for path, body, read, read_event in kinds:
        read(ask(path, body, parts)[0].json)
        for event in ask(path, {**body, "stream": True}, parts)[0].events:
            read_event(event)


class GoldenEngine(Engine):
    """Its log-probabilities are those of the engine behind the golden answers; 151700 is no token of the tokenizer."""

    rows = Rows(-0.5, 1, ((151700, -1.0),))
    prompt_rows = Rows(-2.0, 5, ((0, -3.0),))


@pytest.mark.peer
def test_golden(shared: Path, peers: Path) -> None:
    """What vLLM itself answered to the same tokens."""
    prompter = load_prompter(PromptSettings(model=str(peers / "models" / "qwen3"), max_model_len=2048))
    vocab = vocabulary(prompter.tokenizer)
    lines = (shared / "features" / "main_golden_py.jsonl").read_text().splitlines()
    pairs = {pair["name"]: pair for pair in map(json.loads, lines)}
    for name, tokens in (
        ("chat logprobs", [151644, 872]),
        ("chat logprobs as ids", [151644]),
        ("chat prompt_logprobs", [151644]),
        ("compl logprobs echo", [9707, 1879]),
    ):
        body = {**pairs[name]["request"], "model": "m"}
        answer, _ = ask(pairs[name]["path"], body, [tokens], vocab=vocab, prompter=prompter, kind=GoldenEngine)
        want, got = json.loads(pairs[name]["body"]), answer.json
        if name == "chat logprobs as ids":  # vLLM gives the best tokens the bytes of "token_id:N"
            (entry,) = want["choices"][0]["logprobs"]["content"]
            entry["top_logprobs"][0]["bytes"] = entry["bytes"]
        assert got["choices"][0]["logprobs"] == want["choices"][0]["logprobs"], name
        assert got.get("prompt_logprobs") == want.get("prompt_logprobs"), name
        assert got["choices"][0].get("prompt_logprobs") == want["choices"][0].get("prompt_logprobs"), name


class Failing(Engine):
    """Fails the first request as soon as the loop turns; `made` is the last one."""

    made: list[Engine] = []  # noqa: RUF012

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made.append(self)

    def _play(self, request: EngineRequest) -> None:
        if request is self.requests[0]:
            owner: Any = self.router.streams()[0].owner
            owner.on_error(EngineRequestError("the first one failed"))


def test_nothing_more_is_given_to_the_engines_once_a_choice_has_failed() -> None:
    with pytest.raises(EngineRequestError, match="the first one failed"):
        ask("/v1/completions", {"prompt": "x", "n": 500, "temperature": 1}, [[65]], kind=Failing)
    engine = Failing.made[-1]
    assert len(engine.requests) == CHOICES_A_TURN
    # all but the failed one are ended in the engine
    assert sorted(engine.aborted) == sorted(request.request_id for request in engine.requests[1:])


class Silent(Engine):
    """Says nothing."""

    def _play(self, request: EngineRequest) -> None:
        pass


class Refusing(Silent):
    """Takes one request and refuses the next."""

    def submit(self, request: EngineRequest) -> int:
        if self.requests:
            raise EngineRequestError("no more than one")
        return super().submit(request)


def test_a_choice_that_no_engine_takes_ends_them_all() -> None:
    body = {"prompt": "x", "n": 2, "temperature": 1}
    with pytest.raises(EngineRequestError, match="no more than one"):
        ask("/v1/completions", body, [[65]], kind=Refusing)
    # the stream had begun: the error is its last event
    answer, engine = ask("/v1/completions", {**body, "stream": True}, [[65]], kind=Refusing)
    assert (answer.status, answer.closed) == (200, True)
    assert [event["error"]["message"] for event in answer.events] == ["Internal server error"]
    assert engine.requests[0].request_id in engine.aborted


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_nobody_wants_is_given_up(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    router = Router()
    engine = Silent(router, [], LENGTH)
    link: Any = engine
    prompter: Any = BytePrompter(QWEN)
    settings = ApiConfig(log_requests=True)
    pipeline = Pipeline(QWEN, prompter, BYTES, link, router)
    state = ApiState(pipeline, "0.32.0", "0", False, settings=settings, limits=Limits())
    (handler,) = (handler for _, path, handler in routes(state) if path == "/v1/completions")
    content = json.dumps({"prompt": "x", "n": 2, "temperature": 1, "stream": stream, "request_id": "r"}).encode()

    async def run() -> None:
        reply = FakeReply()
        headers = {"content-type": "application/json"}
        running: Any = handler(HttpRequest("POST", "", "", headers, content, ""), reply)
        assert (state.in_flight, len(engine.requests), len(router)) == (1, 2, 2)
        running.cancel()
        running.cancel()
        assert state.in_flight == 0
        assert engine.aborted == [request.request_id for request in engine.requests]

    with caplog.at_level("INFO", "fastfront.requests"):
        asyncio.run(run())
    ended = [record.getMessage() for record in caplog.records if record.getMessage().startswith("ended ")]
    assert ended == ["ended cmpl-r: CancelledError"]


@pytest.mark.parametrize("steps", [1, 4, 14])
def test_an_error_loses_no_text_that_a_parser_holds_back(steps: int) -> None:
    text = "plain <tool_ca"  # may still become a marker
    tool = {"type": "function", "function": {"name": "f"}}
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [tool], "stream": True}
    ids = list(text.encode())
    parts = [ids[at : at + steps] for at in range(0, len(ids), steps)]
    for played in (parts, [*parts, []]):  # the error comes with the last tokens, or after them
        answer = ask("/v1/chat/completions", body, played, ERROR, format=choose("hermes"))[0]
        *events, last = answer.events
        content = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
        assert content == text
        assert last["error"]["type"] == "server_error"
