"""The records that pass from stage to stage. Stages share these and never import each other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from fastfront.fast import Outbox, Stretch

# --- http <-> api ----------------------------------------------------------------------------------------------------


class HttpRequest(msgspec.Struct):
    """One request as it came in. Header names are lower case; repeated headers are joined with ', '."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    client: str


class Reply(Protocol):
    """How a handler answers one request: `send` once, or `open_stream`, writes to its outbox, `close_stream`."""

    def send(
        self,
        status: int,
        body: bytes = b"",
        content_type: str | None = "application/json",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Sends a whole answer."""

    def open_stream(self, status: int, content_type: str, headers: Sequence[tuple[str, str]] = ()) -> Outbox:
        """Starts an answer of unknown length; what is appended to the outbox is its body."""

    def close_stream(self) -> None:
        """Ends the stream's body; the connection may serve the next request."""

    def end(self, error: Exception | None = None) -> None:
        """What a Running was about is over: it has answered, or `error` is the answer."""


class Running(Protocol):
    """What goes on serving a request without a task of its own. When it is over it calls `Reply.end`."""

    def cancel(self) -> None:
        """Nobody wants the answer any more."""


Work = Coroutine[Any, Any, Running | None]
#: Serves one request: at once, or by what it returns, which is cancelled when the client leaves or does not read.
Handler = Callable[[HttpRequest, Reply], Work | Running | None]

# --- prompt ----------------------------------------------------------------------------------------------------------


class Prompt(msgspec.Struct, frozen=True):
    """A prompt as token ids, and the text it was made from where there was one.

    The ids may be an `array("I")`, which equals no list.
    """

    token_ids: Sequence[int]
    text: str | None = None


class ChatInput(msgspec.Struct, frozen=True):
    """What of a chat request decides its prompt; messages and tools are plain JSON objects."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    #: Whether control tokens in the client's texts stay plain text; None: as --safe-user-text says.
    safe_user_text: bool | None = None
    #: JSON that holds all of the above, or more, which saves looking through them; empty where there is none.
    source: bytes = b""


# --- parse -----------------------------------------------------------------------------------------------------------


class Reasoning(msgspec.Struct, frozen=True):
    """A piece of the model's reasoning."""

    text: str


class Content(msgspec.Struct, frozen=True):
    """A piece of the answer."""

    text: str


class CallStart(msgspec.Struct, frozen=True):
    """A tool call begins; calls are numbered from 0 as they come."""

    index: int
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """A piece of a call's arguments; all pieces joined are the JSON text."""

    index: int
    text: str


class CallEnd(msgspec.Struct, frozen=True):
    """A call is complete. A call that was cut off has no end."""

    index: int


#: The events that are text.
TextEvent = Reasoning | Content | CallArguments
Event = TextEvent | CallStart | CallEnd


class Parser(Protocol):
    """Takes a text in pieces; how it is cut makes no difference to what the events say when joined."""

    def feed(self, text: str) -> list[Event]:
        """What is certain after this piece."""

    def finish(self) -> list[Event]:
        """The rest, at the end of the text."""


class StretchParser(Parser, Protocol):
    """A parser that need not see every piece: it leaves stretches of plain text to the stream."""

    def stretch(self) -> tuple[TextEvent, Stretch] | None:
        """The stretch of plain text that begins here, be it at the very beginning, and the event that all of it makes.

        The event has no text. None where each piece must be fed. What of the stretch's text does not go out is to be
        fed again.
        """


#: Makes the parser of one choice.
MakeParser = Callable[[], Parser]


class Counter(Protocol):
    """Counts the tokens of reasoning, of an answer's ids in pieces."""

    @property
    def count(self) -> int:
        """Those so far."""

    def feed(self, token_ids: Sequence[int]) -> None:
        """Takes the next ids."""


#: Makes the counter of one choice.
MakeCounter = Callable[[], Counter]

# --- engine ----------------------------------------------------------------------------------------------------------

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")  # by the wire's number (wire d.8)


class SamplingParams(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True, eq=False, weakref=True):
    """vLLM's SamplingParams as the wire wants them: a map with these names, engine defaults left out.

    Requests that are alike share one, and it never changes; it lacks what each has of its own: max_tokens and seed.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    watermarking: bool | None = None
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_token_ids: list[int] | None = None
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    output_kind: int = 0
    stream_interval: int | None = None
    skip_clone: bool = False
    eos_token_id: int | None = msgspec.field(default=None, name="_eos_token_id")
    all_stop_token_ids: list[int] = msgspec.field(default_factory=list, name="_all_stop_token_ids")
    structured_outputs: dict[str, Any] | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    bad_words_token_ids: list[list[int]] | None = msgspec.field(default=None, name="_bad_words_token_ids")
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: dict[str, Any] | None = None
    routed_experts_prompt_start: int = 0


class EngineRequest(msgspec.Struct, kw_only=True):
    """One request to one engine: what of EngineCoreRequest (wire d.1) the frontend fills."""

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling: SamplingParams
    max_tokens: int
    arrival_time: float
    seed: int | None = None
    external_req_id: str | None = None
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    trace_headers: dict[str, str] | None = None
    priority: int = 0
    session_id: str | None = None
    reasoning_ended: bool | None = None
    #: As JSON: it is the same for many requests.
    reasoning_parser_kwargs: bytes | None = None


class TextOptions(NamedTuple):
    """What the frontend itself does with the generated tokens."""

    skip_special_tokens: bool = True
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    return_token_ids: bool = False


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """All that one API request asks of the engine: `n` choices for each prompt, choice index = prompt * n + i.

    `seed` is the first choice's, the others of its prompt count on from it.
    """

    request_id: str
    prompts: list[Prompt]
    sampling: SamplingParams
    max_tokens: int
    seed: int | None = None
    text: TextOptions = TextOptions()
    n: int = 1
    priority: int = 0
    cache_salt: str | None = None
    session_id: str | None = None
    data_parallel_rank: int | None = None
    trace_headers: dict[str, str] | None = None
    stream_interval: int = 1
    #: The request's field that `sampling.structured_outputs` comes from.
    constrained_by: str = "structured_outputs"
    #: Reads the answers' text; None where text is all they are.
    parser: MakeParser | None = None
    #: Counts the tokens of an answer's reasoning; None where nobody can tell them.
    counter: MakeCounter | None = None
    reasoning_ended: bool | None = None
    #: As JSON.
    reasoning_parser_kwargs: bytes | None = None


class LogprobRows(NamedTuple):
    """An engine's log-probabilities: rows of `width` candidates one after the other, each row's first the token itself.

    `ranks` are those of the rows' first, from 1.
    """

    width: int
    ids: Sequence[int]
    logprobs: Sequence[float]
    ranks: Sequence[int]


class Token(NamedTuple):
    """A token as answers show it: its text, and its own bytes, which may be only a part of a character's."""

    text: str
    bytes: tuple[int, ...]


class Position(NamedTuple):
    """The log-probabilities at one token: the token itself, then its rivals, the best first; no id is there twice.

    `logprobs` and `ranks` are empty where the engine gave none, as at a prompt's first token.
    """

    ids: Sequence[int]
    tokens: Sequence[Token]
    logprobs: Sequence[float]
    ranks: Sequence[int]


class Delta(msgspec.Struct, frozen=True):
    """What an event adds to a choice where it is more than text; `completion_tokens` are those up to here."""

    index: int
    text: str
    prompt_tokens: int
    completion_tokens: int
    token_ids: list[int] | None = None
    logprobs: list[Position] | None = None
    #: Those of the whole prompt, with a choice's first event.
    prompt_logprobs: list[Position] | None = None
    #: Where a parser reads the text: what it made of it.
    events: list[Event] | None = None
    reasoning_tokens: int | None = None


class Choice(msgspec.Struct, frozen=True):
    """One finished choice. Text, ids and log-probabilities are all, or, of a stream, what its last event must carry."""

    index: int
    text: str
    finish_reason: str
    stop_reason: int | str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    token_ids: list[int] | None = None
    #: What the engine says for a prefill/decode or encoder-cache hand-over (wire d.8), for the client to pass on.
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    created_cache_tokens: int | None = None
    logprobs: list[Position] | None = None
    prompt_logprobs: list[Position] | None = None
    events: list[Event] | None = None
    #: Of the generated tokens, those of reasoning; None where nobody counts them.
    reasoning_tokens: int | None = None


class Waiting(Protocol):
    """Who waits for a generation; one of the two is called, once."""

    def finished(self, choices: list[Choice]) -> None:
        """All choices have ended. Those of a stream carry of their text what their last event did."""

    def failed(self, error: Exception) -> None:
        """An engine has failed, or must not get the rest of the request."""


class EventFormat(Protocol):
    """How an API writes a choice's stream, as bytes made once so that an event costs a copy.

    An event is `head + JSON-escaped text + tail`; with usage, `tail` is three pieces with the total and the completion
    token counts between them. Where events carry ids or log-probabilities, `delta` writes each. `last` is the whole
    event that carries the finish reason.
    """

    def opening(self, index: int) -> bytes:
        """What goes before the first event (a role), sent when the engine's first output is there."""

    def head(self, index: int) -> bytes:
        """Up to and including the quote that opens the text."""

    def tail(self, index: int, prompt_tokens: int) -> tuple[bytes, ...]:
        """From the quote that closes the text on: one piece, or three around the two counts."""

    def delta(self, delta: Delta) -> bytes:
        """A whole event before the last."""

    def last(self, choice: Choice) -> bytes:
        """The event that ends a choice."""


class StretchFormat(EventFormat, Protocol):
    """An EventFormat whose events of parsed text, too, are such a text between a head and a tail."""

    def frame(self, index: int, prompt_tokens: int, event: TextEvent) -> tuple[bytes, tuple[bytes, ...]] | None:
        """Head and tail for text that makes events like this one; None where such text is not shown."""


class ModelInfo(msgspec.Struct, kw_only=True):
    """The served model, as far as more than one stage must know it."""

    names: list[str]
    root: str
    max_model_len: int
    vocab_size: int
    eos_token_id: int | None = None
    #: Other end tokens of generation_config.json, without `eos_token_id`.
    extra_eos_token_ids: list[int] = []
    #: Sampling defaults of generation_config.json (temperature, top_p, top_k, min_p, repetition_penalty, max_tokens).
    sampling_defaults: dict[str, Any] = {}
    created: int = 0
    #: A mixture of experts: its data-parallel engines must step together.
    is_moe: bool = False
    #: config.json's model_type.
    model_type: str = ""
