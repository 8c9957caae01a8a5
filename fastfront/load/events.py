"""Reads a stream of server-sent events into a Record: when tokens came, how many there were, what went wrong.

The usual event of a stream holds one choice and nothing that a benchmark must know but the time it came, so it is only
counted: in JSON, the bytes `"choices":[{` cannot be part of a text, where the quotes would be escaped. Every other
event is decoded.
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from fastfront.load.record import Record

_CHOICE = b'"choices":[{'
#: Most bytes of one event.
MAX_EVENT = 16 << 20

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Events:
    """The events of one answer. Line ends are LF or CRLF."""

    __slots__ = ("_last", "_record", "_rest")

    def __init__(self, record: Record) -> None:
        self._record = record
        self._rest = b""
        self._last = b""

    def feed(self, data: bytes, now: float) -> None:
        """Bytes of the body that came at `now` (time.perf_counter)."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        if b"\r" in data:
            data = self._without_returns(data)
        if not data.endswith(b"\n\n"):
            cut = data.rfind(b"\n\n") + 2
            data, self._rest = (data[:cut], data[cut:] + self._rest) if cut > 1 else (b"", data + self._rest)
            if len(self._rest) > MAX_EVENT:
                self._fail(f"an event of more than {MAX_EVENT} bytes")
                self._rest = b""
            if not data:
                return
        if self._record.pieces is None:
            data = self._counted(data, now)
        for event in data.split(b"\n\n"):
            if event:
                self._event(event, now)

    def _counted(self, data: bytes, now: float) -> bytes:
        """Counts whole events up to the last with a choice, where all of those have one; what is to be read of them."""
        count = data.count(_CHOICE)
        if not count:
            return data
        rest = b""
        if count != data.count(b"\n\n"):
            cut = data.find(b"\n\n", data.rfind(_CHOICE)) + 2
            if count != data.count(b"\n\n", 0, cut):
                return data
            data, rest = data[:cut], data[cut:]
        self._last = data
        if count == 1:
            self._record.times.append(now)
        else:
            self._record.times.extend(array("d", (now,)) * count)
        return rest

    def finish(self) -> None:
        """The body is complete: an event without its empty line counts too, as does usage that came with a choice."""
        record = self._record
        if self._rest:
            self._event(self._rest.rstrip(), record.times[-1] if record.times else record.start)
        if not record.output_tokens and self._last:
            for event in self._last.split(b"\n\n"):
                self._usage(_payload(event))
        if not record.times and not record.error:
            record.error = "the answer had no event with a choice"
        # A server that tells no usage sends a token an event, as far as anybody can know.
        record.output_tokens = record.output_tokens or len(record.times)

    def _without_returns(self, data: bytes) -> bytes:
        if data.endswith(b"\r"):
            self._rest, data = b"\r", data[:-1]
        return data.replace(b"\r\n", b"\n")

    def _event(self, event: bytes, now: float) -> None:
        payload = _payload(event)
        if not payload or payload == b"[DONE]":
            return
        try:
            message = _decode(payload)
        except msgspec.DecodeError:
            self._fail(f"an event that is no JSON object: {payload[:200].decode('utf-8', 'replace')}")
            return
        choices = message.get("choices")
        if isinstance(choices, list) and choices:
            self._record.times.append(now)
            self._last = event
            if self._record.pieces is not None:
                self._record.pieces.append(_text(choices[0]))
        elif message.get("error") is not None:
            self._fail(_said(message["error"]))
        else:
            self._usage(payload)

    def _usage(self, payload: bytes) -> None:
        """Takes the token counts that an event tells; continuous counts end with the right ones."""
        try:
            usage = _decode(payload).get("usage") if payload else None
        except msgspec.DecodeError:
            return
        if isinstance(usage, dict):
            record = self._record
            record.output_tokens = _count(usage.get("completion_tokens")) or record.output_tokens
            record.prompt_tokens = _count(usage.get("prompt_tokens")) or record.prompt_tokens

    def _fail(self, why: str) -> None:
        self._record.error = self._record.error or why


def _payload(event: bytes) -> bytes:
    """The data of an event; b"" for comments and the like."""
    lines = [line[5:] for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines).strip()


def _text(choice: Any) -> str:
    """What a choice of either API adds."""
    if not isinstance(choice, dict):
        return ""
    text = choice.get("text")
    if text is None:
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
    return str(text)


def _count(value: Any) -> int:
    return value if type(value) is int else 0


def _said(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)
