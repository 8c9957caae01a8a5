"""Runs parsers over texts cut in many ways."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fastfront.flow import CallArguments, CallEnd, CallStart, Content, Event, Parser, Reasoning


class Joined(NamedTuple):
    """What events say when joined; a call is [name, arguments, whether it has ended]."""

    reasoning: str
    content: str
    calls: list[list[Any]]


def joined(events: Iterable[Event]) -> Joined:
    """The events' meaning; checks that they come in order and that none is empty."""
    reasoning, content = "", ""
    calls: list[list[Any]] = []
    for event in events:
        if isinstance(event, Reasoning):
            assert event.text
            reasoning += event.text
        elif isinstance(event, Content):
            assert event.text
            content += event.text
        elif isinstance(event, CallStart):
            assert event.index == len(calls)
            assert event.name
            assert event.id
            calls.append([event.name, "", False])
        elif isinstance(event, CallArguments):
            assert event.index == len(calls) - 1
            assert event.text
            assert not calls[-1][2]
            calls[-1][1] += event.text
        elif isinstance(event, CallEnd):
            assert event.index == len(calls) - 1
            assert not calls[-1][2]
            calls[-1][2] = True
    return Joined(reasoning, content, calls)


def run(parser: Parser, pieces: Iterable[str]) -> Joined:
    """Feeds the pieces and finishes."""
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    return joined(events + parser.finish())


def cuts(text: str, seed: int = 0) -> Iterator[list[str]]:
    """Every cut in two, one a character, and some at random."""
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]
    yield list(text)
    yield ["", *text, ""]
    source = random.Random(seed)
    for _ in range(4):
        rest, pieces = text, []
        while rest:
            length = source.randint(1, 9)
            pieces.append(rest[:length])
            rest = rest[length:]
        yield pieces
