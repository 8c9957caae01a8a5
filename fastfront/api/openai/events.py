"""What the streams of both endpoints have in common: the fixed bytes of a stream's events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from fastfront.api.openai.logprobs import LogprobWish
from fastfront.api.openai.usage import usage, usage_json
from fastfront.flow import Choice, EventFormat, Prompt

DONE = b"data: [DONE]\n\n"
EVENT_STREAM = "text/event-stream; charset=utf-8"
STREAM_HEADERS = (("cache-control", "no-cache"),)

encode = msgspec.json.Encoder().encode


class Stamp(NamedTuple):
    """What every object of one answer says of itself."""

    id: str
    created: int
    model: str
    fingerprint: str | None

    def told(self) -> bytes:
        """The fingerprint as the last event of a stream has it."""
        return b"" if self.fingerprint is None else b',"system_fingerprint":' + encode(self.fingerprint)


class Wishes(NamedTuple):
    """What a client wants of its stream beside the text."""

    usage: bool = False
    continuous_usage: bool = False
    usage_details: bool = False
    token_ids: bool = False
    #: None: no log-probabilities.
    logprobs: LogprobWish | None = None


class StreamFormat(EventFormat, Protocol):
    """An EventFormat that can also write the event after the last choice."""

    def usage_event(self, choices: Sequence[Choice]) -> bytes:
        """The event with the whole answer's counts; empty if the client does not want it."""


def prefix(stamp: Stamp, kind: str) -> bytes:
    """The head of every event of a stream, up to the list of choices."""
    return b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
        encode(stamp.id),
        kind.encode(),
        stamp.created,
        encode(stamp.model),
    )


def usage_event(
    before: bytes,
    stamp: Stamp,
    wishes: Wishes,
    prompts: Sequence[Prompt],
    choices: Sequence[Choice],
    created: bool = False,
) -> bytes:
    """The last event of a stream that was asked for usage; `created` as of `usage`."""
    if not wishes.usage:
        return b""
    counts = usage_json(usage(prompts, choices, wishes.usage_details, created))
    return before + b'],"usage":' + counts + stamp.told() + b"}\n\n"
