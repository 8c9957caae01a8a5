"""Stretches of text that a stream with steps writes by itself until a marker comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.fast.test_sse import Owner as OutboxOwner
from tests.fast.test_stream import ABC, LENGTH, STOP, Owner, feed, output, written

FRAME = (b"(", (b")",))


class Run:
    """One stream with steps, in a stretch from its first step on."""

    def __init__(self, fast: SimpleNamespace, stretch: Any, frame: Any = FRAME, **options: Any) -> None:
        self.flusher, self.owner, self.router = fast.Flusher(), OutboxOwner(), fast.Router()
        self.stream = fast.Stream(Owner(), fast.Vocab(ABC, special=[0]), steps=True, keep_ids=True, **options)
        outbox = fast.Outbox(self.flusher, self.owner, -1, 1 << 20, False)
        self.stream.to_outbox(outbox, b"<open>", b"", [b""], 10)
        self.id = self.router.open(self.stream, "r")
        self.stream.begin_stretch(stretch, frame)
        self.since: list[int] = []

    def __call__(self, text: str | bytes, finish: int | None = None, rare: bool = False) -> tuple[bytes, list[Any]]:
        """What is written and the steps' (text, finish reason) after one more output with an id for each byte."""
        ids = list(text.encode() if isinstance(text, str) else text)
        self.since += ids
        row = output(self.id, ids, finish)
        if rare:
            row += [None] * 4 + [{"num_cached_tokens": 1}]
        steps = feed(self.router, row).steps
        for step in steps:
            if step.raw is None:
                assert list(step.token_ids) == self.since
                self.since = []
        data = written(self.flusher, self.owner).removeprefix(b"<open>")
        return data, [(step.text, step.finish_reason) for step in steps]


def test_text_goes_out_until_a_marker_comes(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(markers=fast.Patterns(["</t>", "[["])))
    assert run('a"') == (b'(a\\")', [])
    assert run("b</") == (b"(b)", [])
    assert run("c[") == (b"(</c)", [])
    assert run(b"\xc3") == (b"", [])
    assert run(b"\xa9<") == ("([é)".encode(), [])
    assert run("/t>d") == (b"", [("</t>d", -1)])
    assert run("e") == (b"", [("e", -1)])
    assert run.stream.given == 2
    assert run.stream.tokens == 15


def test_text_before_a_marker_is_handed_back_with_it(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(markers=fast.Patterns(["<t>"]), trail="\n"))
    assert run("a\n\n") == (b"(a)", [])
    assert run("b\n<t") == (b"(\\n\\nb)", [])
    assert run(">c") == (b"", [("\n<t>c", -1)])


def test_it_begins_with_what_the_parser_held(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch("\n<", fast.Patterns(["<t>"]), "\n"))
    assert run("x") == (b"(\\n<x)", [])
    run = Run(fast, fast.Stretch("\n<", fast.Patterns(["<t>"]), "\n"))
    assert run("t>") == (b"", [("\n<t>", -1)])


@pytest.mark.parametrize(("once", "written", "rest"), [(False, b"(a)", "\n\n"), (True, b"(a\\n)", "\n")])
def test_a_trail_is_held_back(fast: SimpleNamespace, once: bool, written: bytes, rest: str) -> None:
    run = Run(fast, fast.Stretch(trail="\n ", once=once))
    assert run("a\n\n") == (written, [])
    assert run("", LENGTH) == (b"", [(rest, LENGTH)])


def test_a_lead_is_dropped_and_a_blank_beginning_held_back(fast: SimpleNamespace) -> None:
    began: list[bytes] = []
    stretch = fast.Stretch(markers=fast.Patterns(["<t>"]), lead="\n", blank="\n ", began=lambda: began.append(b""))
    run = Run(fast, stretch)
    assert [run(text) for text in ("\n", "\n \n", "<")] == [(b"", [])] * 3
    assert not began
    assert run("\na\n") == (b"( \\n<\\na\\n)", [])
    assert len(began) == 1
    assert run("\n ") == (b"(\\n )", [])  # only the beginning is held back
    assert run("<t>") == (b"", [("<t>", -1)])
    assert len(began) == 1


@pytest.mark.parametrize("end", ["<t>", ""])
def test_a_beginning_that_stays_blank_is_handed_back(fast: SimpleNamespace, end: str) -> None:
    def began() -> None:
        raise AssertionError("nothing has gone out")

    run = Run(fast, fast.Stretch("\n", fast.Patterns(["<t>"]), lead="\n", blank="\n ", began=began))
    assert [run(text) for text in ("\n", "  ", "\n")] == [(b"", [])] * 3
    assert run(end, None if end else LENGTH) == (b"", [("  \n" + end, -1 if end else LENGTH)])


@pytest.mark.parametrize("rest", ["\xa0a", "é<", "éb"])
def test_what_may_be_white_space_ends_a_blank_beginning(fast: SimpleNamespace, rest: str) -> None:
    run = Run(fast, fast.Stretch(markers=fast.Patterns(["<t>", "éa"]), lead="\n", blank="\n "))
    assert run("\n ") == (b"", [])
    assert run(rest) == (b"", [(" " + rest, -1)])


def test_the_end_hands_back_what_is_held(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(markers=fast.Patterns(["<t>"])))
    assert run("a<") == (b"(a)", [])
    assert run("tb", LENGTH) == (b"", [("<tb", LENGTH)])
    run = Run(fast, fast.Stretch())
    assert run("ab", STOP) == (b"", [("a", STOP)])  # the stop token's own text is hidden


def test_stop_strings_in_a_stretch(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(markers=fast.Patterns(["<t>"])), stop=fast.Patterns(["<stop", "xy"]))
    assert run("a<st") == (b"(a)", [])
    assert run("x") == (b"(<st)", [])
    assert run("<") == (b"(x)", [])
    assert run("t") == (b"", [])  # no stop string any more, but perhaps a marker
    assert run("<") == (b"", [])
    assert run("stop") == (b"", [("<t", STOP)])


def test_no_stop_string_matches_before_min_tokens(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(), stop=fast.Patterns(["B"]), min_tokens=2)
    assert run("AB") == (b"(AB)", [])
    assert run("CB") == (b"", [("C", STOP)])


def test_a_nest_ends_it_and_is_set_back(fast: SimpleNamespace) -> None:
    nest = fast.Nest("{")
    nest.take('{"a', 0)
    run = Run(fast, fast.Stretch(nest=nest))
    assert run('}": {') == (b'(}\\": {)', [])
    assert run('"}') == (b'(\\"})', [])
    assert run('"}}x') == (b"", [('"}}x', -1)])
    assert not nest.done
    assert nest.take('"}}x', 0) == 3


def test_quoted_text_is_escaped_twice(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(quoted=True))
    assert run('"\n\x01é\\') == ('(\\\\\\"\\\\n\\\\u0001é\\\\\\\\)'.encode(), [])


def test_text_that_is_not_shown(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(markers=fast.Patterns(["<t>"])), None)
    assert run("ab") == (b"", [])
    assert run("c<t>") == (b"", [("c<t>", -1)])
    run.stream.begin_stretch(fast.Stretch(), FRAME)
    assert run("d") == (b"(d)", [])


def test_usage_in_every_event(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(), (b"(", (b"|", b",", b")")))
    assert run("ab") == (b"(ab|12,2)", [])
    assert run("c") == (b"(c|13,3)", [])


def test_the_interval_holds_in_a_stretch_and_at_its_end(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch(markers=fast.Patterns(["<"])), interval=3)
    assert [run(c) for c in "abc"] == [(b"(a)", []), (b"", []), (b"", [])]
    assert run("d") == (b"(bcd)", [])
    assert [run(c) for c in "e<"] == [(b"", [])] * 2
    assert run("f") == (b"", [("e<f", -1)])


def test_rare_fields_do_not_end_a_stretch(fast: SimpleNamespace) -> None:
    run = Run(fast, fast.Stretch())
    assert run("a", rare=True) == (b"(a)", [("", -1)])
    assert run("b") == (b"(b)", [])
    assert run.stream.given == 1


def test_what_a_stretch_must_be(fast: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="not over"):
        Run(fast, fast.Stretch()).stream.begin_stretch(fast.Stretch(), FRAME)
    for edge in ("trail", "lead", "blank"):
        with pytest.raises(ValueError, match="ASCII"):
            Run(fast, fast.Stretch(**{edge: "é"}))
    with pytest.raises(ValueError, match="1 or 3"):
        Run(fast, fast.Stretch(), (b"", (b"", b"")))
