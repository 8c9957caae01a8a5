"""The answers of a chat completion: whole, and as a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fastfront.api.openai.chat.parsed import CallRules, ToolCall, around, deltas, whole_message
from fastfront.api.openai.events import Stamp, Wishes, encode, prefix, usage_event
from fastfront.api.openai.logprobs import chat_logprobs, prompt_logprobs
from fastfront.api.openai.usage import Usage, details_json, usage
from fastfront.fast import escape, json_ids
from fastfront.flow import CallStart, Choice, Delta, Event, Prompt, TextEvent

_NO_DETAILS = (b"null", b"null")


class ChatMessage(msgspec.Struct):
    """The model's turn."""

    role: str
    content: str | None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET
    reasoning: str | None = None


class ChatChoice(msgspec.Struct):
    """One choice of a whole answer."""

    index: int
    message: ChatMessage
    logprobs: msgspec.Struct | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    routed_experts: str | None = None


class ChatResponse(msgspec.Struct, kw_only=True):
    """A whole answer, with every key that vLLM writes."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    service_tier: str | None = None
    system_fingerprint: str | None
    usage: Usage
    prompt_logprobs: Any = None
    prompt_token_ids: list[int] | None = None
    prompt_text: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    metrics: Any = None


class Turn(NamedTuple):
    """Who speaks, what of the last message is echoed, whether the prompt's text is wanted, and what is shown."""

    role: str = "assistant"
    echo: str = ""
    prompt_text: bool = False
    rules: CallRules = CallRules()

    def message(self, choice: Choice) -> ChatMessage:
        """A whole choice's message."""
        if choice.events is None:
            return ChatMessage(self.role, self.echo + choice.text)
        return parsed_message(self.role, self.echo, self.rules, choice.events)


def parsed_message(role: str, echo: str, rules: CallRules, events: Sequence[Event]) -> ChatMessage:
    """The message that a parser made of an answer, after `echo`."""
    parsed = whole_message(rules.keep(events))
    content = echo + parsed.content if echo and parsed.content else echo or parsed.content
    return ChatMessage(role, content, reasoning=parsed.reasoning, tool_calls=parsed.calls or msgspec.UNSET)


def begins_call(events: Sequence[Event] | None) -> bool:
    """Whether a tool call begins among them."""
    return CallStart in map(type, events or ())


def chat_body(stamp: Stamp, prompt: Prompt, turn: Turn, wishes: Wishes, choices: Sequence[Choice]) -> bytes:
    """A whole answer as JSON."""
    answer = ChatResponse(
        id=stamp.id,
        created=stamp.created,
        model=stamp.model,
        choices=[
            ChatChoice(
                index=choice.index,
                message=turn.message(choice),
                logprobs=chat_logprobs(choice.logprobs, wishes.logprobs),
                finish_reason=turn.rules.finish_reason(choice.finish_reason, begins_call(choice.events)),
                stop_reason=choice.stop_reason,
                token_ids=choice.token_ids if wishes.token_ids else None,
            )
            for choice in choices
        ],
        system_fingerprint=stamp.fingerprint,
        usage=usage((prompt,), choices, wishes.usage_details, created=True),
        prompt_logprobs=prompt_logprobs(choices[0].prompt_logprobs),
        prompt_token_ids=list(prompt.token_ids) if wishes.token_ids else None,
        prompt_text=prompt.text if turn.prompt_text else None,
        kv_transfer_params=choices[0].kv_transfer_params,
        ec_transfer_params=choices[0].ec_transfer_params,
    )
    return encode(answer)


class ChatEvents:
    """The bytes of a chat completion's stream; keys are those that vLLM's events have."""

    def __init__(self, stamp: Stamp, prompt: Prompt, turn: Turn, wishes: Wishes) -> None:
        self._stamp = stamp
        self._prompt = prompt
        self._turn = turn
        self._wishes = wishes
        self._prefix = prefix(stamp, "chat.completion.chunk")
        self._called: set[int] = set()  # the choices that have begun a call

    def opening(self, index: int) -> bytes:
        """The event with the role; then, for an echo, the text that the answer goes on from."""
        event = b'%b{"index":%d,"delta":{"role":%b,"content":""},"logprobs":null,"finish_reason":null}]%b%b}\n\n' % (
            self._prefix,
            index,
            encode(self._turn.role),
            self._counts(len(self._prompt.token_ids), 0),
            b',"prompt_token_ids":%b,"prompt_text":%b'
            % (
                json_ids(self._prompt.token_ids) if self._wishes.token_ids else b"null",
                encode(self._prompt.text) if self._turn.prompt_text else b"null",
            ),
        )
        if not self._turn.echo:
            return event
        echo = self.head(index) + escape(self._turn.echo) + b'"},"logprobs":null,"finish_reason":null}]'
        return event + echo + self._counts(len(self._prompt.token_ids), 0) + b"}\n\n"

    def head(self, index: int) -> bytes:
        """Up to the text."""
        return b'%b{"index":%d,"delta":{"content":"' % (self._prefix, index)

    def tail(self, index: int, prompt_tokens: int) -> tuple[bytes, ...]:
        """From the text on."""
        return self._tail(b'"', prompt_tokens)

    def frame(self, index: int, prompt_tokens: int, event: TextEvent) -> tuple[bytes, tuple[bytes, ...]] | None:
        """As `head` and `tail`, of events with what was parsed."""
        if not self._turn.rules.shows(event):
            return None
        before, after = around(event)
        return b'%b{"index":%d,"delta":{%b' % (self._prefix, index, before), self._tail(after, prompt_tokens)

    def _tail(self, end: bytes, prompt_tokens: int) -> tuple[bytes, ...]:
        rest = end + b'},"logprobs":null,"finish_reason":null,"token_ids":null}]'
        if not self._wishes.continuous_usage:
            return (rest + b"}\n\n",)
        counts = b',"usage":{"prompt_tokens":%d,"total_tokens":' % prompt_tokens
        return (rest + counts, b',"completion_tokens":', b',"completion_tokens_details":null}}\n\n')

    def delta(self, delta: Delta) -> bytes:
        """An event with ids or log-probabilities; or those of what was parsed, the first of them with the details."""
        if delta.events is not None:
            return self._parsed(delta, delta.events)
        return b"".join(
            (
                self.head(delta.index),
                escape(delta.text),
                b'"},"logprobs":%b,"finish_reason":null,"token_ids":%b}]' % self._details(delta),
                self._counts(delta.prompt_tokens, delta.completion_tokens, delta.reasoning_tokens),
                b"}\n\n",
            )
        )

    def last(self, choice: Choice) -> bytes:
        """The event with the finish reason; none for a choice that the engine failed."""
        if choice.finish_reason == "error":
            return b""
        if choice.events is not None:
            return self._parsed(choice, choice.events) + self._end(choice)
        logprobs, ids = self._details(choice)
        return b"".join(
            (
                self.head(choice.index),
                escape(choice.text),
                b'"},"logprobs":%b,"finish_reason":%b,"stop_reason":%b,"token_ids":%b}]'
                % (logprobs, encode(choice.finish_reason), encode(choice.stop_reason), ids),
                self._counts(choice.prompt_tokens, choice.completion_tokens, choice.reasoning_tokens),
                b"" if self._wishes.usage else self._stamp.told(),
                b"}\n\n",
            )
        )

    def _parsed(self, part: Delta | Choice, events: Sequence[Event]) -> bytes:
        """A chunk for each thing that was parsed; one without text where only ids or log-probabilities came."""
        if begins_call(events):
            self._called.add(part.index)
        details = self._details(part)
        pieces = list(deltas(self._turn.rules.keep(events)))
        if not pieces and details != _NO_DETAILS:
            pieces = [b'"content":""']
        counts = self._counts(part.prompt_tokens, part.completion_tokens, part.reasoning_tokens)
        chunks = []
        for piece in pieces:
            rest = b'},"logprobs":%b,"finish_reason":null,"token_ids":%b}]' % details
            chunks.append(b'%b{"index":%d,"delta":{%b%b%b}\n\n' % (self._prefix, part.index, piece, rest, counts))
            details = _NO_DETAILS
        return b"".join(chunks)

    def _end(self, choice: Choice) -> bytes:
        """The chunk after the last that was parsed."""
        reason = self._turn.rules.finish_reason(choice.finish_reason, choice.index in self._called)
        return b"".join(
            (
                b'%b{"index":%d,"delta":{},"logprobs":null,"finish_reason":%b,"stop_reason":%b,"token_ids":null}]'
                % (self._prefix, choice.index, encode(reason), encode(choice.stop_reason)),
                self._counts(choice.prompt_tokens, choice.completion_tokens, choice.reasoning_tokens),
                b"" if self._wishes.usage else self._stamp.told(),
                b"}\n\n",
            )
        )

    def _details(self, part: Delta | Choice) -> tuple[bytes, bytes]:
        """Log-probabilities and ids, each null if they are not wanted."""
        if self._wishes.logprobs is None and not self._wishes.token_ids:
            return _NO_DETAILS
        ids = part.token_ids if self._wishes.token_ids else None
        return encode(chat_logprobs(part.logprobs, self._wishes.logprobs)), encode(ids)

    def whole(self, choices: Sequence[Choice]) -> bytes:
        """Every event of a stream that is sent at once."""
        written = [self.opening(choice.index) + self.last(choice) for choice in choices]
        return b"".join(written) + self.usage_event(choices)

    def usage_event(self, choices: Sequence[Choice]) -> bytes:
        """The counts of the whole answer."""
        return usage_event(self._prefix, self._stamp, self._wishes, (self._prompt,), choices, created=True)

    def _counts(self, prompt_tokens: int, tokens: int, reasoning_tokens: int | None = None) -> bytes:
        if not self._wishes.continuous_usage:
            return b""
        counts = b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d' % (
            prompt_tokens,
            prompt_tokens + tokens,
            tokens,
        )
        return counts + b',"completion_tokens_details":' + details_json(reasoning_tokens) + b"}"
