"""What the handlers need of the rest of the process, as the API sees it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from fastfront import env
from fastfront.config import ApiConfig
from fastfront.errors import EngineDeadError
from fastfront.fast import Outbox, Vocab
from fastfront.flow import (
    ChatInput,
    Choice,
    EventFormat,
    Generation,
    MakeCounter,
    ModelInfo,
    Parser,
    Prompt,
    Running,
    Waiting,
)

_T = TypeVar("_T")


class Tokenizer(Protocol):
    """The served model's tokenizer."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Text to ids."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of ids; unknown ids give nothing."""

    def tokens(self, ids: list[int]) -> list[str]:
        """The vocabulary's own spelling of each id, "" where there is none."""

    def join(self, tokens: list[str]) -> str:
        """The text of spellings, as the tokenizer's decoder joins them."""

    def offsets(self, text: str, add_special_tokens: bool = True) -> list[tuple[int, int]]:
        """Of each id that `encode` gives, where its characters begin and end in the text."""

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of special tokens."""

    @property
    def max_chars_per_token(self) -> int:
        """The length of the longest spelling."""

    @property
    def spaces_special_tokens(self) -> bool:
        """Whether `join` puts anything between two special tokens."""

    @property
    def config(self) -> dict[str, Any]:
        """What tokenizer_config.json says."""


class Chats(Protocol):
    """Builds the prompts of conversations that share all but their messages; `source` is a request's JSON."""

    def now(self, messages: list[dict[str, Any]], source: bytes) -> Prompt | None:
        """The prompt, or None where making it would hold the event loop; RequestError."""

    async def made(self, messages: list[dict[str, Any]], source: bytes) -> Prompt:
        """The prompt; RequestError."""

    def ids(self, token_ids: list[int]) -> Prompt:
        """A prompt that comes as ids; RequestError if one is outside the vocabulary."""


class Prompter(Protocol):
    """Builds prompts; a long one in a worker thread. Limits are its own affair: the API only passes them on."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that it uses."""

    def limits(
        self,
        *,
        max_tokens: int | None = None,
        max_tokens_param: str = "max_tokens",
        truncate_prompt_tokens: int | None = None,
        truncation_side: str | None = None,
    ) -> Any:
        """The limits of one request's prompts; RequestError if no prompt can meet them."""

    async def chat(self, chat: ChatInput, limits: Any = None) -> Prompt:
        """Renders the chat template and tokenizes."""

    async def text(self, text: str, add_special_tokens: bool = True, limits: Any = None) -> Prompt:
        """Tokenizes."""

    def ids(self, token_ids: list[int], limits: Any = None) -> Prompt:
        """Takes ids as they are; RequestError if one is outside the vocabulary."""

    def chats(self, chat: ChatInput, limits: Any = None) -> Chats:
        """What makes the prompts of conversations that share all of `chat` but its messages."""

    def text_now(self, text: str, add_special_tokens: bool = True, limits: Any = None) -> Prompt | None:
        """As `text`, without a task; None for what would hold the event loop."""

    @property
    def max_token_id(self) -> int:
        """The largest id that there is."""

    async def tokenize(self, text: str, add_special_tokens: bool = True) -> Sequence[int]:
        """Ids of a text of any length."""

    async def tokenize_chat(self, chat: ChatInput) -> Sequence[int]:
        """Ids of a conversation of any length."""

    async def detokenize(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        """The text of ids, special tokens kept or not, unknown ids left out."""

    async def aside(self, work: Callable[..., _T], *args: Any, ids: int = 0, size: int = 0) -> _T:
        """`work(*args)`: in a worker thread where it is about many ids, or about JSON or a text of many bytes."""


class Frontend(Protocol):
    """The request side: what there is without an engine."""

    @property
    def info(self) -> ModelInfo:
        """The served model."""

    @property
    def prompter(self) -> Prompter:
        """Where prompts come from."""

    @property
    def vocab(self) -> Vocab:
        """What every id stands for."""


class Pipeline(Frontend, Protocol):
    """Runs generations."""

    async def checked(self, g: Generation) -> Generation:
        """The generation with the backend of its constraint; RequestError if no backend takes that."""

    def start(
        self,
        g: Generation,
        waiting: Waiting,
        open: Callable[[], Outbox] | None = None,
        format: EventFormat | None = None,
    ) -> Running:
        """Runs a checked generation for `waiting`; with a format, its events go to the outbox that `open` gives."""

    async def collect(self, g: Generation) -> list[Choice]:
        """All choices, whole."""


class Limits(NamedTuple):
    """Limits that vLLM takes from the environment."""

    stop_strings: int = 4
    sequences: int = 16384
    prompts: int = 1024
    bad_words: int = 128
    any_model_name: bool = False

    @classmethod
    def from_env(cls) -> Limits:
        """vLLM's variables."""
        return cls(
            env.max_stop_strings(),
            env.max_n_sequences(),
            env.max_completion_prompts(),
            env.max_num_bad_words(),
            env.skip_model_name_validation(),
        )


class Preparation(Protocol):
    """What the configured parsers change about a chat request before the engine gets it."""

    def keeps_special_tokens(self, calls_tools: bool) -> bool:
        """Whether the parsers must see special tokens in the answer's text."""

    def reasoning_ended(self, prompt: Sequence[int], thinking: bool) -> bool | None:
        """Whether the prompt left no reasoning open; None where nobody here can tell."""

    def plain_calls(self, choice: str, name: str) -> str | None:
        """How plain JSON says the calls of `choice`: "" as an array, a name as that function's arguments; None: not."""

    def held_answer(self, constraint: Mapping[str, Any]) -> dict[str, Any] | None:
        """A constraint on an answer without calls as the format needs it, None where it is right as it is."""

    def held_calls(
        self, tools: Sequence[Mapping[str, Any]], choice: str, single: bool, answer: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """The constraint that holds an answer to calls of `tools` (choice auto, required or forced), None for none."""


class Format(Protocol):
    """The parsers that read answers."""

    @property
    def tool(self) -> str | None:
        """The tool call parser's name."""

    @property
    def reasoning(self) -> str | None:
        """The reasoning parser's name."""

    def reasoning_state(self, prompt: str, thinking: bool | None = None) -> bool | None:
        """Whether the prompt, by its end, left reasoning open; None where neither it nor the request says."""

    def parser(
        self,
        tools: Sequence[Mapping[str, Any]] = (),
        in_reasoning: bool | None = None,
        calls: bool = True,
        plain: str | None = None,
    ) -> Parser:
        """The parser of one answer; `plain` as Preparation.plain_calls says."""


class Counting(Protocol):
    """Tells the tokens of reasoning from others."""

    def counter(self, in_reasoning: bool | None) -> MakeCounter:
        """What makes the counter of an answer; `in_reasoning` as Format.reasoning_state says."""


class Metrics(Protocol):
    """What is counted."""

    def snapshot(self) -> bytes:
        """All of it, for another process to add."""

    def render(self, accept: str, others: Iterable[bytes] = ()) -> tuple[str, bytes]:
        """Content type, for an Accept header, and exposition of the sum with others' snapshots."""


def _lives() -> None:
    return None


async def _nobody() -> list[bytes]:
    return []


@dataclass(slots=True)
class RenderState:
    """What the request side's handlers need. `engine_version` is vLLM's, as engines reported it; `version` is ours."""

    pipeline: Frontend
    engine_version: str
    version: str
    native: bool
    dead: Callable[[], EngineDeadError | None] = _lives
    settings: ApiConfig = field(default_factory=ApiConfig)
    limits: Limits = field(default_factory=Limits.from_env)
    #: None: no /metrics.
    metrics: Metrics | None = None
    #: What the other processes that serve this port have counted (api.ops.snapshot).
    others: Callable[[], Awaitable[list[bytes]]] = _nobody
    #: A cap on max_tokens that no request lifts: max_new_tokens of an overriding generation config.
    max_new_tokens: int | None = None
    in_flight: int = 0
    #: `system_fingerprint` of answers.
    fingerprint: str | None = field(init=False)
    #: What api.openai.recipe has made of requests so far.
    recipes: dict[Any, Any] = field(default_factory=dict)
    #: What api.openai.chat.prepare tells reasoning parsers of requests that say nothing of it.
    parser_kwargs: dict[tuple[bool, bool], tuple[bytes, bool]] = field(default_factory=dict)
    #: Done once `pipeline.vocab` is there; None where it has been from the start.
    vocab_ready: asyncio.Future[Any] | None = None
    #: None without parsers.
    preparation: Preparation | None = None
    #: None without parsers.
    format: Format | None = None
    #: None without a reasoning parser.
    counting: Counting | None = None
    #: Whether the engine knows what reasoning looks like, and so can keep to a budget of it.
    thinking_budgets: bool = True
    #: The template that the server was given, or that the model has.
    chat_template: str | None = None
    #: The server's own template variables.
    template_kwargs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> str | None:
        match self.settings.fingerprint_mode:
            case "none":
                return None
            case "custom":
                return self.settings.fingerprint_value
        info = self.pipeline.info
        model: tuple[Any, ...] = (info.root, info.max_model_len, info.vocab_size, self.engine_version)
        digest = hashlib.sha256(repr(model).encode()).hexdigest()
        return f"vllm-{self.engine_version}-{digest[:8]}"


@dataclass(slots=True)
class ApiState(RenderState):
    """What all handlers need; one per process."""

    pipeline: Pipeline
