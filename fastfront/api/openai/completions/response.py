"""The answers of a completion: whole, and as a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fastfront.api.openai.events import Stamp, Wishes, encode, prefix, usage_event
from fastfront.api.openai.logprobs import completion_logprobs, prompt_logprobs
from fastfront.api.openai.usage import Usage, usage
from fastfront.fast import escape, json_ids
from fastfront.flow import Choice, Delta, Position, Prompt


class CompletionChoice(msgspec.Struct):
    """One choice of a whole answer."""

    index: int
    text: str
    logprobs: msgspec.Struct | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: Any = None
    prompt_token_ids: list[int] | None = None
    routed_experts: str | None = None


class CompletionResponse(msgspec.Struct, kw_only=True):
    """A whole answer, with every key that vLLM writes."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    service_tier: str | None = None
    system_fingerprint: str | None
    usage: Usage
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    metrics: Any = None


class Echo(msgspec.Struct):
    """How prompts come back: their texts, one per prompt, and whether nothing else does (max_tokens 0)."""

    texts: list[str]
    alone: bool = False


def completion_body(
    stamp: Stamp, prompts: Sequence[Prompt], n: int, wishes: Wishes, echo: Echo | None, choices: Sequence[Choice]
) -> bytes:
    """A whole answer as JSON."""
    answer = CompletionResponse(
        id=stamp.id,
        created=stamp.created,
        model=stamp.model,
        choices=[
            CompletionChoice(
                index=choice.index,
                text=_text(choice, n, echo),
                logprobs=completion_logprobs(_positions(choice, echo), wishes.logprobs),
                finish_reason=choice.finish_reason,
                stop_reason=choice.stop_reason,
                token_ids=choice.token_ids if wishes.token_ids else None,
                prompt_logprobs=prompt_logprobs(choice.prompt_logprobs),
                prompt_token_ids=list(prompts[choice.index // n].token_ids) if wishes.token_ids else None,
            )
            for choice in choices
        ],
        system_fingerprint=stamp.fingerprint,
        usage=usage(prompts, choices, wishes.usage_details),
        kv_transfer_params=choices[0].kv_transfer_params,
        ec_transfer_params=choices[0].ec_transfer_params,
    )
    return encode(answer)


def _text(choice: Choice, n: int, echo: Echo | None) -> str:
    if echo is None:
        return choice.text
    text = echo.texts[choice.index // n]
    return text if echo.alone else text + choice.text


def _positions(choice: Choice, echo: Echo | None) -> list[Position] | None:
    """The log-probabilities of all the text that is shown."""
    if echo is None or choice.logprobs is None:
        return choice.logprobs
    prompt = choice.prompt_logprobs or []
    return prompt if echo.alone else prompt + choice.logprobs


class CompletionEvents:
    """The bytes of a completion's stream. Every event has the same keys, as vLLM's have."""

    def __init__(self, stamp: Stamp, prompts: Sequence[Prompt], n: int, wishes: Wishes, echo: Echo | None) -> None:
        self._stamp = stamp
        self._prompts = prompts
        self._n = n
        self._wishes = wishes
        self._echo = echo
        self._prefix = prefix(stamp, "text_completion")
        self._offsets: dict[int, int] = {}  # by choice, where its next token begins

    def opening(self, index: int) -> bytes:
        """The echoed prompt, and the prompt's ids where they are wanted; not what has to wait for log-probabilities."""
        if self._echo is not None and self._wishes.logprobs is not None:
            return b""
        return self._opening(index)

    def _opening(self, index: int, positions: Sequence[Position] | None = None) -> bytes:
        text = self._echo.texts[index // self._n] if self._echo is not None else ""
        if not text and not self._wishes.token_ids and positions is None:
            return b""
        prompt = self._prompts[index // self._n].token_ids
        ids = json_ids(prompt) if self._wishes.token_ids else b"null"
        rest = b'","logprobs":%b,"finish_reason":null,"stop_reason":null,"prompt_token_ids":%b,"token_ids":null}]'
        rest %= (self._logprobs(index, positions), ids)
        return self.head(index) + escape(text) + rest + self._counts(len(prompt), 0) + b"}\n\n"

    def _late_opening(self, part: Delta | Choice) -> bytes:
        """The opening that waited, with a choice's first event."""
        if self._echo is None or self._wishes.logprobs is None or part.prompt_logprobs is None:
            return b""
        return self._opening(part.index, part.prompt_logprobs)

    def head(self, index: int) -> bytes:
        """Up to the text."""
        return b'%b{"index":%d,"text":"' % (self._prefix, index)

    def tail(self, index: int, prompt_tokens: int) -> tuple[bytes, ...]:
        """From the text on."""
        rest = b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]'
        if not self._wishes.continuous_usage:
            return (rest + b"}\n\n",)
        counts = b',"usage":{"prompt_tokens":%d,"total_tokens":' % prompt_tokens
        return (rest + counts, b',"completion_tokens":', b"}}\n\n")

    def delta(self, delta: Delta) -> bytes:
        """An event with ids or log-probabilities."""
        ids = encode(delta.token_ids) if self._wishes.token_ids else b"null"
        rest = b'","logprobs":%b,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":%b}]'
        return b"".join(
            (
                self._late_opening(delta),
                self.head(delta.index),
                escape(delta.text),
                rest % (self._logprobs(delta.index, delta.logprobs), ids),
                self._counts(delta.prompt_tokens, delta.completion_tokens),
                b"}\n\n",
            )
        )

    def last(self, choice: Choice) -> bytes:
        """The event with the finish reason; none for a choice that the engine failed."""
        if choice.finish_reason == "error":
            return b""
        ids = encode(choice.token_ids) if self._wishes.token_ids else b"null"
        rest = b'","logprobs":%b,"finish_reason":%b,"stop_reason":%b,"prompt_token_ids":null,"token_ids":%b}]'
        opening = self._late_opening(choice)
        logprobs = self._logprobs(choice.index, choice.logprobs)
        return b"".join(
            (
                opening,
                self.head(choice.index),
                escape(choice.text),
                rest % (logprobs, encode(choice.finish_reason), encode(choice.stop_reason), ids),
                self._counts(choice.prompt_tokens, choice.completion_tokens),
                b"" if self._wishes.usage else self._stamp.told(),
                b"}\n\n",
            )
        )

    def usage_event(self, choices: Sequence[Choice]) -> bytes:
        """The counts of the whole answer."""
        return usage_event(self._prefix, self._stamp, self._wishes, self._prompts, choices)

    def _logprobs(self, index: int, positions: Sequence[Position] | None) -> bytes:
        made = completion_logprobs(positions, self._wishes.logprobs, self._offsets.get(index, 0))
        if made is not None and made.tokens:
            self._offsets[index] = made.end
        return encode(made)

    def _counts(self, prompt_tokens: int, tokens: int) -> bytes:
        if not self._wishes.continuous_usage:
            return b""
        counts = b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}'
        return counts % (prompt_tokens, prompt_tokens + tokens, tokens)


def echo_events(events: CompletionEvents, choices: Sequence[Choice]) -> bytes:
    """The whole stream of a request that wants its prompts back and nothing else."""
    written = (
        events.opening(choice.index) + events.last(msgspec.structs.replace(choice, text="", logprobs=None))
        for choice in choices
    )
    return b"".join(written) + events.usage_event(choices)
