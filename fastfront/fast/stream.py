"""From an engine's output message to text and events: the per-token path. Pure twin of `stream_native.pyx`.

A Stream is one choice: its decoder, its stop strings, and either the text it collects or the outbox that its events go
to. A Router knows every open stream by the request id that it gave out, walks a message and feeds the streams. Python
code runs only for a Step: an output that ends a stream or carries fields that are seldom there, and, of a stream that
was opened with `steps`, every output that brings tokens, but for stretches of text that its owner leaves to it.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from fastfront.errors import WireError
from fastfront.fast.detok import Decoder, Vocab
from fastfront.fast.msgpack import walk_outputs
from fastfront.fast.scan import Patterns, Scanner
from fastfront.fast.sse import Outbox, escape
from fastfront.fast.stretch import Held, Stretch

STOP = 0  # the wire's finish_reason for an end token or a stop token id


class Step(NamedTuple):
    """An output that Python must look at.

    `text` is, of a finished stream, what was not delivered yet. `finish_reason` is the wire's number or -1. With
    `engine_done` false a stop string ended the stream here and the engine must be told. `raw` is the output as msgpack
    where it has fields that are seldom there. Of a stream with `steps`, `text` is what became certain and was not
    delivered yet, `token_ids` are the ids since the last step where they are kept, without those behind a stop string,
    and an event is `due`, or else such fields are all that it is for.
    """

    stream: Stream
    text: str
    finish_reason: int
    stop_reason: int | str | None
    engine_done: bool
    raw: bytes | None
    token_ids: Sequence[int] = ()
    due: bool = False


class StepOwner(Protocol):
    """Who owns a stream."""

    def on_step(self, step: Step) -> None:
        """Takes one step; after one with a finish reason no other comes."""

    def on_error(self, error: Exception) -> None:
        """The stream's engine is gone; nothing else comes."""


class Parsed(NamedTuple):
    """What of a message is left for Python; the raw parts are msgpack, None where nil (wire d.7)."""

    engine_index: int
    steps: list[Step]
    stats: bytes | None
    utility: bytes | None
    finished_requests: bytes | None
    wave_complete: int | None
    start_wave: int | None
    error: WireError | None


class Stream:
    """One choice. Give it an outbox with `to_outbox`, or let it collect its text.

    `prompt` are the ids before the answer (the last few are enough). No stop string matches within the first
    `min_tokens` tokens. After the first, events wait until `interval` tokens are there. With `steps` the stream writes
    nothing but the opening and the events of stretches: instead it gives a Step where it would write an event, also for
    tokens without text, and for every `raw`. `given` is how many it gave. With `keep_ids` the ids are kept, for the
    steps or, without them, for `token_ids`.
    """

    def __init__(
        self,
        owner: StepOwner,
        vocab: Vocab,
        *,
        skip_special: bool = True,
        prompt: Sequence[int] = (),
        stop: Patterns | None = None,
        include_stop: bool = False,
        min_tokens: int = 0,
        keep_ids: bool = False,
        interval: int = 1,
        steps: bool = False,
    ) -> None:
        self.owner: StepOwner | None = owner
        self.request_id = ""
        self.tokens = 0
        self.first_at = 0.0
        self.last_at = 0.0
        self.given = 0
        self.token_ids: list[int] | None = [] if keep_ids else None
        self._decoder = Decoder(vocab, skip_special, prompt)
        self._scanner = Scanner(stop) if stop is not None else None
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._interval = interval
        self._steps = steps
        self._outbox: Outbox | None = None
        self._opening = b""
        self._head: bytes | None = b""
        self._tail: tuple[bytes, ...] = ()
        self._prompt_tokens = 0
        self._told = 0  # tokens at the last event, or at the last step that was due
        self._text: list[str] = []
        self._held: Held | None = None

    def to_outbox(self, outbox: Outbox, opening: bytes, head: bytes, tail: Sequence[bytes], prompt_tokens: int) -> None:
        """Writes events: `opening` before the first, then `head + escaped text + tail` for each engine step with text.

        A tail of three pieces gets the total and the completion token counts between them.
        """
        self._frame(head, tail)
        self._outbox = outbox
        self._opening = opening
        self._prompt_tokens = prompt_tokens

    def begin_stretch(self, stretch: Stretch, frame: tuple[bytes, Sequence[bytes]] | None) -> None:
        """Of a stream with `steps`: until the stretch ends, its text goes out as events and not as steps.

        `frame` is their head and tail, None where such text is not shown. The step that ends it has all that did not go
        out. To be called only when all that were `given` have been taken: a step's text goes before the stretch.
        """
        if self._held is not None:
            raise ValueError("the stretch before is not over")
        for edge in (stretch.trail, stretch.lead, stretch.blank):
            if not edge.isascii():
                raise ValueError(f"the edges of a stretch are ASCII characters, not {edge!r}")
        if frame is None:
            self._head = None
        else:
            self._frame(*frame)
        self._held = Held(stretch)
        self._held.feed(stretch.begin)

    def _frame(self, head: bytes, tail: Sequence[bytes]) -> None:
        if len(tail) not in (1, 3):
            raise ValueError(f"a tail has 1 or 3 pieces, not {len(tail)}")
        self._head = head
        self._tail = tuple(tail)

    def release(self) -> None:
        """Forgets the owner and the outbox: nothing more comes. (They know the stream, too: this ends the circle.)"""
        self.owner = None
        self._outbox = None

    def take(
        self, ids: Sequence[int], finish: int, stop_reason: int | str | None, raw: bytes | None, now: float
    ) -> Step | None:
        """Takes one engine step; a Step where Python must go on."""
        if not self.first_at:
            self.first_at = now
        self.last_at = now
        if self._opening and self._outbox is not None:
            self._outbox.append(self._opening)
            self._opening = b""
        matched = self._decode(ids, hide_last=finish == STOP and not self._include_stop)
        if matched is not None:
            return self._step(STOP, matched, finish >= 0, raw, True)
        if finish >= 0:
            self._end_text()
            return self._step(finish, stop_reason, True, raw, True)
        due = self._is_due()
        if self._held is not None and not self._held.feed(self._take_text()):
            self._end_stretch()
        if self._held is not None:
            if due and self._outbox is not None:
                self._write_event(self._outbox, self._held.take(), self._held.quoted)
            return self._bare_step(raw)
        if self._steps:
            if due:
                self._told = self.tokens
            elif raw is None:
                return None
            return self._step(-1, None, False, raw, due)
        if due and self._outbox is not None:
            self._write_event(self._outbox, self._take_text())
        return self._bare_step(raw)

    def _is_due(self) -> bool:
        return not self._told or self.tokens - self._told >= self._interval

    def _decode(self, ids: Sequence[int], hide_last: bool) -> str | None:
        """Adds the text of `ids`; the stop string that ended it, or None."""
        last = len(ids) - 1
        for at, token_id in enumerate(ids):
            self.tokens += 1
            if self.token_ids is not None:
                self.token_ids.append(token_id)
            if hide_last and at == last:
                break
            text = self._decoder.feed((token_id,))
            if self._scanner is not None and text:
                text, found, _ = self._scanner.feed(text, armed=self.tokens > self._min_tokens)
                if found >= 0:
                    stop = self._scanner.patterns.patterns[found]
                    self._add(text + stop if self._include_stop else text)
                    return stop
            self._add(text)
        return None

    def _end_text(self) -> None:
        if self._scanner is not None:
            self._add(self._scanner.finish())
        self._add(self._decoder.finish())

    def _add(self, text: str) -> None:
        if text:
            self._text.append(text)

    def _step(
        self, finish: int, stop_reason: int | str | None, engine_done: bool, raw: bytes | None, due: bool
    ) -> Step:
        if self._held is not None:
            self._end_stretch()
        self.given += 1
        ids: Sequence[int] = ()
        if self._steps and self.token_ids is not None:
            ids, self.token_ids = self.token_ids, []
        return Step(self, self._take_text(), finish, stop_reason, engine_done, raw, ids, due)

    def _bare_step(self, raw: bytes | None) -> Step | None:
        """For fields that are seldom there, of an output whose text has its own way."""
        if raw is None:
            return None
        self.given += 1
        return Step(self, "", -1, None, False, raw)

    def _take_text(self) -> str:
        text = "".join(self._text)
        self._text.clear()
        return text

    def _end_stretch(self) -> None:
        if self._held is not None:
            self._text.insert(0, self._held.end())
            self._held = None

    def _write_event(self, outbox: Outbox, text: str, quoted: bool = False) -> None:
        if not text:
            return
        self._told = self.tokens
        if self._head is None:
            return
        escaped = escape(text)
        event = self._head + (escape(escaped.decode()) if quoted else escaped) + self._tail[0]
        if len(self._tail) == 3:
            event += b"%d%b%d%b" % (self._prompt_tokens + self.tokens, self._tail[1], self.tokens, self._tail[2])
        outbox.append(event)


class Router:
    """Every open stream, by request id."""

    def __init__(self) -> None:
        self.dropped = 0  # outputs of requests that are not open (late ones of aborted requests)
        self.tokens = 0  # tokens fed to streams
        self._streams: dict[str, Stream] = {}
        self._numbers = itertools.count(secrets.randbits(24))

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, stream: Stream, public_id: str) -> str:
        """Adds a stream; the request id that the engine is to use, `public_id` and 12 hex digits."""
        request_id = f"{public_id}-{next(self._numbers) & 0xFFFFFFFFFFFF:012x}"
        stream.request_id = request_id
        self._streams[request_id] = stream
        return request_id

    def close(self, request_id: str) -> None:
        """Forgets a stream; no error if it is not there."""
        self._streams.pop(request_id, None)

    def streams(self) -> list[Stream]:
        """All that are open."""
        return list(self._streams.values())

    def feed(self, message: bytes, now: float) -> Parsed:
        """Feeds one output message's tokens to their streams. `now` is a monotonic time in seconds."""
        walked = walk_outputs(message)
        steps: list[Step] = []
        for output in walked.outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                self.dropped += 1
                continue
            before = stream.tokens
            step = stream.take(output.token_ids, output.finish_reason, output.stop_reason, output.raw, now)
            self.tokens += stream.tokens - before
            if step is not None:
                if step.finish_reason >= 0:
                    self.close(output.request_id)
                steps.append(step)
        rest: Any = walked[2:]
        return Parsed(walked.engine_index, steps, *rest)

    def feed_read(self, data: bytes, at: int, now: float) -> tuple[int, Parsed | None]:
        """Feeds output messages, a ZMTP frame each, that stand side by side in `data`, up to one that leaves something.

        Where it stopped, and what is left. None: what stands there now is the codec's affair, if anything does.
        """
        while (frame := _frame(data, at)) is not None:
            start, at = frame
            parsed = self.feed(data[start:at], now)
            if parsed.steps or any(part is not None for part in parsed[2:]):
                return at, parsed
        return at, None


def _frame(data: bytes, at: int) -> tuple[int, int] | None:
    """Where a frame begins and ends that is there whole, is a message of its own, and begins like msgpack's arrays."""
    flags, size = data[at : at + 1], data[at + 1 : at + 2]
    start = at + 2
    if flags == b"\x02":
        start, size = at + 9, data[at + 1 : at + 9]
    elif flags != b"\x00" or not size:
        return None
    end = start + int.from_bytes(size, "big")
    first = data[start] if start < end <= len(data) else 0
    return (start, end) if first & 0xF0 == 0x90 or first in (0xDC, 0xDD) else None
