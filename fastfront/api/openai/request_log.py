"""What `--enable-log-requests` writes: a line when a request comes, one when it ends. Nothing is logged per token."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from fastfront.api.openai.events import StreamFormat
from fastfront.config import ApiConfig
from fastfront.flow import Choice, Delta, Generation, SamplingParams

logger = logging.getLogger("fastfront.requests")

_DEFAULTS = SamplingParams()


class RequestLog:
    """The log of one request, where the settings ask for one."""

    def __init__(self, settings: ApiConfig, generation: Generation) -> None:
        self._outputs = settings.log_outputs
        self._most = settings.max_log_len
        self._id = generation.request_id
        #: What a stream has said of each choice.
        self._said: dict[int, str] = {}
        self._received(generation)

    def overhear(self, generation: Generation, format: StreamFormat) -> tuple[Generation, StreamFormat]:
        """The generation and its format so that the texts of a stream are heard, where they are to be logged."""
        if not self._outputs:
            return generation, format
        # Where events may carry ids they are made here, one by one.
        text = generation.text._replace(return_token_ids=True)
        return replace(generation, text=text), _Overheard(format, self._hear)

    def finished(self, choices: Sequence[Choice], streamed: bool = False) -> None:
        """All choices have ended."""
        for choice in choices:
            text = self._said.get(choice.index, "") if streamed else choice.text
            logger.info(
                "finished %s: choice %d: %s, %d prompt tokens, %d tokens%s",
                self._id,
                choice.index,
                choice.finish_reason,
                choice.prompt_tokens,
                choice.completion_tokens,
                f", text {text[: self._most]!r}" if self._outputs else "",
            )

    def failed(self, error: BaseException) -> None:
        """It ended otherwise: with an error, or because the client left."""
        logger.info("ended %s: %s", self._id, str(error) or type(error).__name__)

    def _received(self, generation: Generation) -> None:
        prompts = generation.prompts
        logger.info(
            "received %s: %d prompts of %d tokens, n=%d%s, max_tokens=%d%s",
            self._id,
            len(prompts),
            sum(len(prompt.token_ids) for prompt in prompts),
            generation.n,
            _told(generation.sampling),
            generation.max_tokens,
            "" if generation.seed is None else f", seed={generation.seed}",
        )
        if logger.isEnabledFor(logging.DEBUG):
            for prompt in prompts:
                text = None if prompt.text is None else prompt.text[: self._most]
                logger.debug("request %s: prompt %r, ids %s", self._id, text, list(prompt.token_ids[: self._most]))

    def _hear(self, index: int, text: str) -> None:
        said = self._said.get(index, "")
        if self._most is None or len(said) < self._most:
            self._said[index] = said + text


class _Overheard:
    """A stream's format that tells what it writes."""

    def __init__(self, format: StreamFormat, hear: Callable[[int, str], None]) -> None:
        self._format = format
        self._hear = hear
        self.opening, self.head, self.tail = format.opening, format.head, format.tail
        self.usage_event = format.usage_event

    def delta(self, delta: Delta) -> bytes:
        self._hear(delta.index, delta.text)
        return self._format.delta(delta)

    def last(self, choice: Choice) -> bytes:
        self._hear(choice.index, choice.text)
        return self._format.last(choice)


def _told(sampling: SamplingParams) -> str:
    """Those parameters that are not the engine's defaults."""
    named = ((name, getattr(sampling, name)) for name in sampling.__struct_fields__)
    return "".join(f", {name}={value!r}" for name, value in named if value != getattr(_DEFAULTS, name))
