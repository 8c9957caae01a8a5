"""Derendering beyond vLLM's recorded answers: any cut of a stream gives the text of the whole; wrong input is named."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfront.api.vllm.derender import chat, chat_chunk, completions
from fastfront.api.vllm.derender.logprobs import shown
from fastfront.api.vllm.derender.request import Logprobs, PositionLogprobs
from fastfront.api.vllm.derender.window import HELD, REPLACEMENT, WINDOW, advance, seeded
from fastfront.config import ApiConfig
from fastfront.fast import Decoder
from fastfront.flow import HttpRequest
from fastfront.parse.prepare import Preparation
from fastfront.parse.registry import choose
from fastfront.process import vocabulary
from fastfront.prompt.files import read_model_files
from fastfront.prompt.tokenizer import Tokenizer, load_tokenizer
from tests.api.fakes import Answer, Client, FakeReply

CHAT, COMPLETION = "/v1/chat/completions/derender", "/v1/completions/derender"
TEXTS = (
    "Hello, world! ", "Zürich façade 👩‍👩‍👧 🫠🇩🇪 ", "世界,你好!ひらがな", "  two  spaces\n\n\tand tabs ",
    "Привет мир العربية हिन्दी ",
)  # fmt: skip


@pytest.fixture(scope="module", params=["qwen3", "llama2", "gemma3"])
def tokenizer(request: pytest.FixtureRequest, peers: Path) -> Tokenizer:
    return load_tokenizer(read_model_files(str(peers / "models" / request.param)), fast=False)


def _cut(rng: random.Random, ids: list[int]) -> list[list[int]]:
    chunks, at = [], 0
    while at < len(ids):
        size = rng.randint(1, 4)
        chunks.append(ids[at : at + size])
        at += size
    return chunks


@pytest.mark.parametrize("skip_special", [True, False])
def test_any_cut_gives_the_whole(tokenizer: Tokenizer, skip_special: bool) -> None:
    rng, vocab = random.Random(5), vocabulary(tokenizer)
    skip = tokenizer.special_ids if skip_special else frozenset[int]()
    special = sorted(tokenizer.special_ids)
    for _ in range(60):
        before, after = (tokenizer.encode("".join(rng.choices(TEXTS, k=2)), add_special_tokens=False) for _ in "ab")
        ids = [*before, rng.choice(special), *after]
        prompt = tokenizer.encode(rng.choice(TEXTS))
        decoder = Decoder(vocab, skip_special, prompt)
        want = decoder.feed(ids) + decoder.finish()
        state = seeded(tokenizer, skip, prompt)
        got = ""
        for chunk in _cut(rng, ids):
            got += advance(tokenizer, skip, state, chunk)
            assert len(state.prev_tokens) < 64
        assert got == want


def test_an_unfinished_character_is_kept_back(tokenizer: Tokenizer) -> None:
    skip = frozenset[int]()
    ids = tokenizer.encode("a🫠", add_special_tokens=False)
    state = seeded(tokenizer, skip, None)
    texts = [advance(tokenizer, skip, state, [token_id]) for token_id in ids]
    assert "".join(texts).strip() == "a🫠"
    assert REPLACEMENT not in "".join(texts)


class Counting:
    """A tokenizer, and how many spellings it was given to join."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.joined: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def join(self, tokens: list[str]) -> str:
        self.joined.append(len(tokens))
        return self.tokenizer.join(tokens)


def test_the_window_never_grows(tokenizer: Tokenizer) -> None:
    """Bytes that never become a character: each id costs one join, and each join has a bound."""
    spelled = ((i, tokenizer.id_to_token(i)) for i in range(tokenizer.max_token_id))
    broken = next(i for i, token in spelled if token and tokenizer.join([token]) == REPLACEMENT)
    counting: Any = Counting(tokenizer)
    state, ids = seeded(tokenizer, frozenset(), None), [broken] * 3000
    text = advance(counting, frozenset(), state, ids)
    assert 3000 - HELD <= text.count(REPLACEMENT) <= 3000
    assert len(counting.joined) <= 1 + len(ids) + len(ids) // HELD
    assert max(counting.joined) <= WINDOW
    assert len(state.prev_tokens) <= WINDOW
    # and goes on as if nothing had been
    rest = advance(tokenizer, frozenset(), state, tokenizer.encode("word word", add_special_tokens=False))
    assert rest.endswith("word word")


def test_what_is_not_shown_costs_nothing(tokenizer: Tokenizer) -> None:
    special = sorted(tokenizer.special_ids)[0]
    counting: Any = Counting(tokenizer)
    state = seeded(tokenizer, tokenizer.special_ids, tokenizer.encode("Hello"))
    assert advance(counting, tokenizer.special_ids, state, [special] * 3000) == ""
    assert len(counting.joined) == 1


def test_log_probabilities_of_a_character_in_pieces(tokenizer: Tokenizer) -> None:
    vocab = vocabulary(tokenizer)
    ids = tokenizer.encode("x 🫠", add_special_tokens=False)
    given = Logprobs(content=[PositionLogprobs(token_id=token_id, logprob=-1.0) for token_id in ids])
    whole = shown(given, vocab)
    assert whole is not None and whole.content is not None
    assert "".join(position.token for position in whole.content).strip() == "x 🫠"
    assert [bytes(position.bytes or ()).decode() for position in whole.content] == [p.token for p in whole.content]
    # The last piece alone, with those before it as context.
    last = shown(Logprobs(content=given.content[-1:] if given.content else None), vocab, ids[:-1])
    assert last is not None and last.content is not None
    assert last.content[0].token == whole.content[-1].token


@pytest.fixture(scope="module")
def served(qwen: Callable[..., Client]) -> Client:
    return qwen(64, ("m",))


def _whole(client: Client, *choices: dict[str, Any], **more: Any) -> Answer:
    response = {"request_id": "r", "choices": list(choices)}
    return client.post(CHAT, {"generate_response": response, **more})


def _chunk(client: Client, choice: dict[str, Any], **more: Any) -> Answer:
    return client.post(CHAT, {"stream": True, "generate_chunk": {"choices": [{"index": 0, **choice}]}, **more})


def test_a_stream_of_chunks(served: Client) -> None:
    ids = [9707, 11162, 104, 254, 151645]
    state, texts, roles = None, [], []
    for token_id in ids:
        answer = _chunk(served, {"token_ids": [token_id]}, stream_state=state).json
        state = answer["stream_state"]
        delta = answer["chunk"]["choices"][0]["delta"]
        texts.append(delta["content"])
        roles.append(delta["role"])
    assert texts == ["Hello", None, None, " 🫠", None]
    assert roles == ["assistant", None, None, None, None]
    unary = _whole(served, {"index": 0, "token_ids": ids}).json
    assert unary["choices"][0]["message"]["content"] == "Hello 🫠"
    assert (unary["id"], unary["usage"]["completion_tokens"]) == ("r", 5)


def test_the_request_decides_what_is_shown(served: Client) -> None:
    request = {"messages": [], "skip_special_tokens": False, "return_token_ids": True, "unknown": 1}
    choice = _whole(served, {"index": 0, "token_ids": [9707, 151645]}, chat_request=request).json["choices"][0]
    assert (choice["message"]["content"], choice["token_ids"]) == ("Hello<|im_end|>", [9707, 151645])
    wrong = _whole(served, {"index": 0, "token_ids": [1]}, chat_request={"messages": 5})
    assert wrong.error["param"] == "body.chat_request.messages"


def test_finish_reasons(served: Client) -> None:
    assert _whole(served, {"index": 0, "token_ids": [1]}).json["choices"][0]["finish_reason"] == "stop"
    given = _whole(served, {"index": 0, "token_ids": [1], "finish_reason": None}).json
    assert given["choices"][0]["finish_reason"] is None
    assert _chunk(served, {"token_ids": [1]}).json["chunk"]["choices"][0]["finish_reason"] is None


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "generate_response"),
        ({"stream": True}, "generate_chunk"),
        ({"generate_response": {"choices": [{"index": 0, "token_ids": [-1]}]}}, "token_ids.0"),
        ({"generate_response": {"choices": [{"index": 0, "token_ids": "x"}]}}, "valid list"),
        ({"generate_response": {"choices": [{"token_ids": [1]}]}}, "choices.0.index"),
        ({"generate_response": {"output_mode": "text", "choices": []}}, "output_mode"),
        ({"generate_response": {"choices": [{"index": 0, "token_ids": [99999999999]}]}}, "99999999999 is out of vocab"),
        ({"generate_response": {"choices": [{"index": 0, "token_ids": [1] * 65}]}}, "exceeds max_model_len (64)"),
        ({"generate_response": {"choices": []}, "prompt_token_ids": [1] * 65}, "exceeds max_model_len (64)"),
        ({"generate_response": {"choices": [{"index": 0}]}}, "choice 0 has empty or null token_ids"),
        (
            {"stream": True, "generate_chunk": {"choices": [{"index": 0}, {"index": 1}]}},
            "at most one choice (got 2)",
        ),
        (
            {"stream": True, "generate_chunk": {"choices": []}, "stream_state": {"read_offset": 3}},
            "read_offset (3)",
        ),
        (
            {"stream": True, "generate_chunk": {"choices": []}, "stream_state": {"prev_tokens": ["a"] * 33}},
            "prev_tokens has 33 tokens, more than the 32",
        ),
        (
            {"stream": True, "generate_chunk": {"choices": []}, "stream_state": {"prev_tokens": ["a" * 5000]}},
            "a token of 5000 characters; the longest that there is has",
        ),
        (
            {"stream": True, "generate_chunk": {"choices": []}, "stream_state": {"output_token_ids": [1]}},
            "output_chunk_lens must sum",
        ),
    ],
)
def test_bad_chats(served: Client, body: dict[str, Any], says: str) -> None:
    answer = served.post(CHAT, body)
    assert answer.status == 400, answer.body
    assert says in answer.error["message"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "generate_responses"),
        ({"generate_responses": []}, "must not be empty"),
        ({"generate_responses": [], "prompt_tokens": 1}, "valid list"),
        ({"generate_responses": [{"choices": []}], "prompt_tokens": [1, 2]}, "prompt_tokens length (2) must equal"),
        ({"generate_responses": [{"choices": []}], "prompt_token_ids": [1]}, "prompt_token_ids.0"),
        ({"stream": True, "generate_chunk": {"choices": []}, "prompt_tokens": [1]}, "valid integer"),
        ({"stream": True, "generate_chunk": {"choices": []}, "prompt_token_ids": [[1]]}, "valid integer"),
        ({"generate_responses": [{"choices": []}], "completion_request": {"n": "x"}}, "body.completion_request.n"),
    ],
)
def test_bad_completions(served: Client, body: dict[str, Any], says: str) -> None:
    answer = served.post(COMPLETION, body)
    assert answer.status == 400, answer.body
    assert says in answer.error["message"]


def test_too_many_log_probabilities(served: Client) -> None:
    top = [{"token_id": n, "logprob": -1.0} for n in range(21)]
    logprobs = {"content": [{"token_id": 1, "logprob": -1.0, "top_logprobs": top}]}
    answer = _whole(served, {"index": 0, "token_ids": [1], "logprobs": logprobs})
    assert "top_logprobs count (21) in choice 0 exceeds max_logprobs (20)" in answer.error["message"]


def test_a_big_body_is_worked_on_in_a_thread(served: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def spied(*values: Any) -> Any:
        threads.append(threading.current_thread().name)
        return shown(*values)

    for module in (chat, chat_chunk, completions):
        monkeypatch.setattr(module, "shown", spied)
    top = [{"token_id": 2, "logprob": -1.0}] * 20
    entry = {"token_id": 1, "logprob": -1.0, "top_logprobs": top}
    for entries, where in ((1, "MainThread"), (60, "prompt")):
        choice = {"index": 0, "token_ids": [1] * entries, "logprobs": {"content": [entry] * entries}}
        assert _whole(served, choice).status == 200
        assert _chunk(served, choice).status == 200
        assert served.post(COMPLETION, {"generate_responses": [{"choices": [choice]}]}).status == 200
        assert len(threads) == 3
        assert all(name.startswith(where) for name in threads)
        threads.clear()


def test_a_long_chunk_is_worked_on_in_a_thread(qwen: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its ids costs more than one of a whole answer."""
    client = qwen(2048)
    threads: list[str] = []
    join = Tokenizer.join

    def spied(self: Tokenizer, tokens: list[str]) -> str:
        threads.append(threading.current_thread().name)
        return join(self, tokens)

    monkeypatch.setattr(Tokenizer, "join", spied)
    for count, where in ((128, "MainThread"), (129, "prompt")):
        assert _chunk(client, {"token_ids": [1] * count}).status == 200
        assert all(name.startswith(where) for name in threads)
        threads.clear()


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS}
#: What qwen3 may answer, reasoning first.
PARSED = (
    "<think>\nI ponder 🫠.\n</think>\n\nHello, 世界! <|im_end|>",
    '<think>\nx\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"a": "é 🫠", "b": [1]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>',
    "no reasoning, <tool_call> no call<|im_end|>",
)


@pytest.fixture(scope="module")
def parsing(qwen: Callable[..., Client]) -> Client:
    client = qwen(256, ("m",))
    client.state.settings = ApiConfig(tool_call_parser="hermes", reasoning_parser="qwen3")
    client.state.preparation = Preparation("hermes", "qwen3", client.pipeline.prompter.tokenizer.token_to_id)
    client.state.format = choose("hermes", "qwen3")
    return client


def _streamed(client: Client, chunks: list[list[int]], prompt: list[int], sent: dict[str, Any]) -> dict[str, Any]:
    """The choice that a client puts together from the chunks of its answer; the last says stop."""
    state, reason = None, None
    message: dict[str, Any] = {"content": "", "reasoning": "", "tool_calls": []}
    for at, chunk in enumerate(chunks):
        choice = {"token_ids": chunk, "finish_reason": "stop" if at == len(chunks) - 1 else None}
        answer = _chunk(client, choice, stream_state=state, chat_request=sent, prompt_token_ids=prompt).json
        state = answer["stream_state"]
        told = answer["chunk"]["choices"][0]
        for field in ("content", "reasoning"):
            message[field] += told["delta"][field] or ""
        for call in told["delta"].get("tool_calls", ()):
            if call["id"] is not None:
                assert call["index"] == len(message["tool_calls"])
                message["tool_calls"].append([call["function"]["name"], ""])
            message["tool_calls"][call["index"]][1] += call["function"]["arguments"] or ""
        assert (told["delta"]["role"] is None) == (at > 0)
        reason = told["finish_reason"]
    assert state is not None
    assert len(state["last_tool_call_ids"]) == len(message["tool_calls"])
    return {"message": message, "finish_reason": reason}


def test_any_cut_is_parsed_as_the_whole(parsing: Client) -> None:
    rng, tokenizer = random.Random(7), parsing.pipeline.prompter.tokenizer
    prompt = tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    for text in PARSED:
        ids = tokenizer.encode(text)
        whole = _whole(parsing, {"index": 0, "token_ids": ids}, chat_request=ASKED, prompt_token_ids=prompt)
        choice = whole.json["choices"][0]
        calls = [[c["function"]["name"], c["function"]["arguments"]] for c in choice["message"].get("tool_calls", ())]
        want = {field: choice["message"][field] or "" for field in ("content", "reasoning")}
        for _ in range(4):
            got = _streamed(parsing, [*_cut(rng, ids)], prompt, ASKED)
            assert got == {"message": {**want, "tool_calls": calls}, "finish_reason": choice["finish_reason"]}


def test_hidden_reasoning_is_not_told_by_ids(parsing: Client) -> None:
    ids = parsing.pipeline.prompter.tokenizer.encode(PARSED[0])
    hidden = {**ASKED, "include_reasoning": False, "return_token_ids": True}
    logprobs = {"content": [{"token_id": 1, "logprob": -1.0}]}
    choice = {"token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}
    told = _chunk(parsing, choice, chat_request=hidden, prompt_token_ids=[1]).json["chunk"]["choices"][0]
    assert (told["token_ids"], told["logprobs"], told["delta"]["reasoning"]) == (None, None, None)
    assert told["delta"]["content"] == "Hello, 世界! "
    whole = _whole(parsing, {"index": 0, "token_ids": ids}, chat_request=hidden, prompt_token_ids=[1]).json
    assert whole["choices"][0]["token_ids"] is None
    shown = {**hidden, "include_reasoning": True}
    told = _chunk(parsing, choice, chat_request=shown, prompt_token_ids=[1]).json["chunk"]["choices"][0]
    assert told["token_ids"] == ids
    assert told["logprobs"]["content"][0]["token"]


def test_bad_chunks_with_parsers(parsing: Client) -> None:
    choice = {"token_ids": [1]}
    for more, says in (
        ({}, "chat_request is required"),
        ({"chat_request": ASKED}, "prompt_token_ids is required"),
        ({"chat_request": ASKED, "prompt_token_ids": [1] * 257}, "exceeds max_model_len (256)"),
        ({"stream_state": {"output_token_ids": [10**9], "output_chunk_lens": [1]}}, "is out of vocabulary"),
        ({"stream_state": {"output_token_ids": [1] * 255, "output_chunk_lens": [255]}}, "(1) plus output_token_ids"),
    ):
        full = more if not more or "chat_request" in more else {"chat_request": ASKED, "prompt_token_ids": [1], **more}
        answer = _chunk(parsing, choice, **full)
        assert answer.status == 400, more
        assert says in answer.error["message"]


def test_an_answer_waits_for_the_vocabulary_alone(client: Client) -> None:
    """While the vocabulary is built the loop does other things."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        client.state.vocab_ready = loop.create_future()
        body = json.dumps({"generate_response": {"choices": [{"index": 0, "token_ids": [72]}]}}).encode()
        request = HttpRequest("POST", CHAT, "", {"content-type": "application/json"}, body, "")
        replies = [FakeReply(), FakeReply()]
        works = [reply.served(client.handlers["POST", CHAT](request, reply)) for reply in replies]
        left, waiting = map(asyncio.ensure_future, works)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not left.done()
        left.cancel()  # a client that leaves takes nothing from the others
        await asyncio.wait([left])
        client.state.vocab_ready.set_result(None)
        await waiting
        assert [reply.answer.status for reply in replies] == [0, 200]

    asyncio.run(serve())
