"""Two parsers one after the other: what the first takes for content goes to the second."""

from __future__ import annotations

from fastfront.flow import Content, Event, Parser


class Chain:
    """A reasoning parser, and a tool call parser behind it."""

    def __init__(self, first: Parser, second: Parser) -> None:
        self._first = first
        self._second = second

    def feed(self, text: str) -> list[Event]:
        """What is certain after this piece."""
        return self._pass(self._first.feed(text))

    def finish(self) -> list[Event]:
        """The rest, at the end of the text."""
        return self._pass(self._first.finish()) + self._second.finish()

    def _pass(self, events: list[Event]) -> list[Event]:
        passed: list[Event] = []
        for event in events:
            if isinstance(event, Content):
                passed += self._second.feed(event.text)
            else:
                passed.append(event)
        return passed
