"""A pipeline without an engine, and a reply without a connection, for the handlers of api/."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import CoroutineType
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from fastfront.api.errors import render_error
from fastfront.api.routes import routes
from fastfront.api.state import ApiState, Limits, Metrics
from fastfront.config import ApiConfig
from fastfront.errors import EngineDeadError, RequestError
from fastfront.fast import Flusher, Outbox, Vocab, escape
from fastfront.flow import (
    ChatInput,
    Choice,
    Delta,
    EventFormat,
    Generation,
    Handler,
    HttpRequest,
    ModelInfo,
    Position,
    Prompt,
    Running,
    Token,
    Waiting,
    Work,
)
from fastfront.process import vocabulary

QWEN = ModelInfo(
    names=["m", "alias"],
    root="models/qwen3",
    max_model_len=2048,
    vocab_size=151936,
    eos_token_id=151645,
    extra_eos_token_ids=[151643],
    created=1796024516,
)


CHARS = Vocab([chr(code).encode() for code in range(0xD800)])


class CharTokenizer:
    """One id per character: its code point."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) for character in text]

    special_ids: frozenset[int] = frozenset()
    max_chars_per_token: int = 1
    spaces_special_tokens: bool = False
    config: ClassVar[dict[str, Any]] = {"tokenizer_class": "Chars", "eos_token": {"content": "<eos>", "special": True}}

    def tokens(self, ids: list[int]) -> list[str]:
        return [chr(token_id) for token_id in ids]

    def join(self, tokens: list[str]) -> str:
        return "".join(tokens)

    def offsets(self, text: str, add_special_tokens: bool = True) -> list[tuple[int, int]]:
        return [(at, at + 1) for at in range(len(text))]


@dataclass
class CharChats:
    """Prompts of conversations that share all else."""

    prompter: CharPrompter
    chat: ChatInput

    def now(self, messages: list[dict[str, Any]], source: bytes) -> Prompt | None:
        """None for a chat of many messages."""
        return None if len(messages) > 8 else self.prompter._made(self._whole(messages, source))

    async def made(self, messages: list[dict[str, Any]], source: bytes) -> Prompt:
        return self.prompter._made(self._whole(messages, source))

    def ids(self, token_ids: list[int]) -> Prompt:
        return self.prompter.ids(token_ids)

    def _whole(self, messages: list[dict[str, Any]], source: bytes) -> ChatInput:
        return replace(self.chat, messages=messages, source=source)


class CharPrompter:
    """Prompts of CharTokenizer, with the limits that the handlers count on."""

    def __init__(self, info: ModelInfo) -> None:
        self.info = info
        self.tokenizer = CharTokenizer()
        self.asked: list[ChatInput] = []
        self.limits_asked: list[dict[str, Any]] = []

    def limits(self, **asked: Any) -> Any:
        self.limits_asked.append(asked)
        wanted = asked.get("max_tokens")
        if wanted is not None and wanted > self.info.max_model_len:
            raise RequestError("too many tokens", param=asked.get("max_tokens_param", "max_tokens"), value=wanted)
        return asked

    async def chat(self, chat: ChatInput, limits: Any = None) -> Prompt:
        return self._made(chat)

    def _made(self, chat: ChatInput) -> Prompt:
        self.asked.append(chat)
        text = "".join(f"<{message['role']}>{message.get('content') or ''}" for message in chat.messages)
        return Prompt(array("I", self.tokenizer.encode(text)), text)

    async def text(self, text: str, add_special_tokens: bool = True, limits: Any = None) -> Prompt:
        return Prompt(array("I", self.tokenizer.encode(text)), text)

    def chats(self, chat: ChatInput, limits: Any = None) -> CharChats:
        return CharChats(self, chat)

    def text_now(self, text: str, add_special_tokens: bool = True, limits: Any = None) -> Prompt | None:
        """None for a long text."""
        return None if len(text) > 100 else Prompt(array("I", self.tokenizer.encode(text)), text)

    @property
    def max_token_id(self) -> int:
        return self.info.vocab_size - 1

    def ids(self, token_ids: list[int], limits: Any = None) -> Prompt:
        if max(token_ids) >= self.info.vocab_size:
            raise RequestError(f"Token id {max(token_ids)} is out of vocabulary", param="prompt")
        return Prompt(token_ids)

    async def tokenize(self, text: str, add_special_tokens: bool = True) -> Sequence[int]:
        return self.tokenizer.encode(text, add_special_tokens)

    async def tokenize_chat(self, chat: ChatInput) -> Sequence[int]:
        return (await self.chat(chat)).token_ids

    async def detokenize(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, token_ids))

    async def aside(self, work: Callable[..., Any], *args: Any, ids: int = 0, size: int = 0) -> Any:
        """As the real one."""
        if ids > 2048 or size > 16384:
            return await asyncio.to_thread(work, *args)
        return work(*args)


@dataclass
class Script:
    """What every choice answers: pieces of text, one engine step each, and how it ends."""

    pieces: Sequence[str] = ("Hello", " world")
    finish_reason: str = "stop"
    stop_reason: int | str | None = None
    cached_tokens: int | None = 0
    created_cache_tokens: int | None = None
    #: Beside each piece where log-probabilities are wanted: other tokens and theirs.
    rivals: dict[str, float] = field(default_factory=lambda: {"?": -1.5, "!": -2.5})
    #: Raised after this many events of a stream (of a whole answer: at once).
    error: Exception | None = None
    error_after: int = 1


class FakePipeline:
    """Answers every generation by the script and keeps what it was asked."""

    def __init__(self, info: ModelInfo, prompter: Any = None) -> None:
        self.info = info
        self.prompter: Any = prompter or CharPrompter(info)
        self.script = Script()
        self.asked: list[Generation] = []

    @cached_property
    def vocab(self) -> Vocab:
        """The tokenizer's."""
        return CHARS if isinstance(self.prompter, CharPrompter) else vocabulary(self.prompter.tokenizer)

    def _positions(self, g: Generation) -> list[Position] | None:
        """One for each piece: at -0.5, its rivals beside it."""
        if g.sampling.logprobs is None and g.sampling.logprob_token_ids is None:
            return None
        return [self._position(at, piece) for at, piece in enumerate(self.script.pieces)]

    def _position(self, token_id: int, text: str) -> Position:
        texts = [text, *self.script.rivals]
        ids = [token_id, *(1000 + at for at in range(len(self.script.rivals)))]
        tokens = [Token(text, tuple(text.encode())) for text in texts]
        return Position(ids, tokens, [-0.5, *self.script.rivals.values()], range(1, len(ids) + 1))

    def _prompt_positions(self, g: Generation, index: int) -> list[Position] | None:
        if g.sampling.prompt_logprobs is None:
            return None
        first, *others = g.prompts[index // g.n].token_ids
        bare = Position([first], [Token(chr(first), tuple(chr(first).encode()))], (), ())
        return [bare, *(self._position(token_id, chr(token_id)) for token_id in others)]

    def _choices(self, g: Generation) -> list[Choice]:
        script = self.script
        count = len(script.pieces)
        return [
            Choice(
                index,
                "".join(script.pieces),
                script.finish_reason,
                script.stop_reason,
                len(g.prompts[index // g.n].token_ids),
                count,
                script.cached_tokens,
                list(range(count)) if g.text.return_token_ids else None,
                created_cache_tokens=script.created_cache_tokens,
                logprobs=self._positions(g),
                prompt_logprobs=self._prompt_positions(g, index),
            )
            for index in range(len(g.prompts) * g.n)
        ]

    async def collect(self, g: Generation) -> list[Choice]:
        self.asked.append(g)
        if self.script.error is not None:
            raise self.script.error
        return self._choices(g)

    async def checked(self, g: Generation) -> Generation:
        return g

    def start(
        self,
        g: Generation,
        waiting: Waiting,
        open: Callable[[], Outbox] | None = None,
        format: EventFormat | None = None,
    ) -> Running:
        self.asked.append(g)
        if open is None or format is None:
            return FakeJob(self._whole(g, waiting))
        script = self.script
        if script.error is not None and script.error_after < 0:
            raise script.error
        return FakeJob(self._stream(g, waiting, open(), format))

    def _whole(self, g: Generation, waiting: Waiting) -> Iterator[None]:
        if self.script.error is not None:
            waiting.failed(self.script.error)
        else:
            waiting.finished(self._choices(g))
        yield

    def _stream(self, g: Generation, waiting: Waiting, outbox: Outbox, format: EventFormat) -> Iterator[None]:
        script, choices, events = self.script, self._choices(g), 0
        for choice in choices:
            outbox.append(format.opening(choice.index))
        for at, piece in enumerate(script.pieces):
            for choice in choices:
                if script.error is not None and events >= script.error_after:
                    waiting.failed(script.error)
                    return
                events += 1
                ids = None if choice.token_ids is None else [at]
                logprobs = None if choice.logprobs is None else choice.logprobs[at : at + 1]
                prompt = None if at else choice.prompt_logprobs
                if at + 1 == len(script.pieces):
                    part = {"text": piece, "token_ids": ids, "logprobs": logprobs, "prompt_logprobs": prompt}
                    outbox.append(format.last(msgspec.structs.replace(choice, **part)))
                elif ids is None and logprobs is None:
                    outbox.append(_event(format, choice, piece, at + 1))
                else:
                    delta = Delta(choice.index, piece, choice.prompt_tokens, at + 1, ids, logprobs, prompt)
                    outbox.append(format.delta(delta))
            yield
        waiting.finished(choices)


class FakeJob:
    """Moves one generation on, a step each turn of the loop."""

    def __init__(self, steps: Iterator[None]) -> None:
        self._steps = steps
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._step)

    def cancel(self) -> None:
        self._handle.cancel()

    def _step(self) -> None:
        for _ in self._steps:
            self._handle = self._loop.call_soon(self._step)
            return


def _event(format: EventFormat, choice: Choice, text: str, tokens: int) -> bytes:
    tail = format.tail(choice.index, choice.prompt_tokens)
    event = format.head(choice.index) + escape(text) + tail[0]
    if len(tail) == 3:
        event += b"%d%b%d%b" % (choice.prompt_tokens + tokens, tail[1], tokens, tail[2])
    return event


@dataclass
class Answer:
    """What a client would get."""

    status: int = 0
    body: bytes = b""
    content_type: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    closed: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """A stream's events; the last must be [DONE]."""
        blocks = self.body.decode().split("\n\n")
        assert blocks.pop() == ""
        assert all(block.startswith("data: ") for block in blocks)
        assert blocks.pop() == "data: [DONE]"
        assert self.closed
        return [json.loads(block[6:]) for block in blocks]


class FakeReply:
    """Collects an answer."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.outbox: Outbox | None = None
        self.flusher = Flusher()
        self.error: Exception | None = None
        self._ended = asyncio.Event()

    async def served(self, work: Work | Running | None) -> Answer:
        """The answer, once the work for it is done; raises what it ends with."""
        running = await work if isinstance(work, CoroutineType) else work
        if running is not None:
            await self._ended.wait()
        if self.error is not None:
            raise self.error
        return self.answer

    def send(
        self,
        status: int,
        body: bytes = b"",
        content_type: str | None = "application/json",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.answer = Answer(status, body, content_type, dict(headers), True)

    def open_stream(self, status: int, content_type: str, headers: Sequence[tuple[str, str]] = ()) -> Outbox:
        assert self.outbox is None
        self.answer = Answer(status, b"", content_type, dict(headers))
        self.outbox = Outbox(self.flusher, self, -1, 1 << 20, False)
        return self.outbox

    def close_stream(self) -> None:
        self.flusher.flush()
        self.answer.closed = True

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self._ended.set()

    def outbox_blocked(self, data: bytes) -> None:
        self.answer.body += data

    def outbox_overflow(self) -> None:
        raise AssertionError("a test's stream is never this long")

    def outbox_error(self, error: OSError) -> None:
        raise error


class Client:
    """Calls the handlers as the HTTP server does."""

    def __init__(
        self,
        info: ModelInfo = QWEN,
        prompter: Any = None,
        settings: ApiConfig | None = None,
        limits: Limits | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.pipeline = FakePipeline(info, prompter)
        self.dead: EngineDeadError | None = None
        self.state = ApiState(
            pipeline=self.pipeline,
            engine_version="0.32.0",
            version="0.1.0",
            native=False,
            dead=lambda: self.dead,
            settings=settings or ApiConfig(),
            limits=limits or Limits(),
            metrics=metrics,
        )
        self.handlers = {(method, path): handler for method, path, handler in routes(self.state)}

    @property
    def generation(self) -> Generation:
        """The last one that the pipeline was asked for."""
        return self.pipeline.asked[-1]

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        """Sends `body` as JSON, or as it is if it is bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, data, {"content-type": "application/json", **(headers or {})})

    def complete(self, **body: Any) -> Answer:
        """A completion with a prompt unless one is given."""
        return self.post("/v1/completions", {"prompt": "Hi", **body})

    def chat(self, **body: Any) -> Answer:
        """A chat completion with a message unless some are given."""
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], **body})

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        """Without a body."""
        return self.call("GET", path, b"", headers or {})

    def call(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        reply = FakeReply()
        request = HttpRequest(method, path, "", headers, body, "test")
        try:
            return asyncio.run(_answered(self.handlers[method, path], request, reply))
        except Exception as error:
            status, data, content_type, extra = render_error(error)
            return Answer(status, data, content_type, dict(extra), True)


async def _answered(handler: Handler, request: HttpRequest, reply: FakeReply) -> Answer:
    return await reply.served(handler(request, reply))
