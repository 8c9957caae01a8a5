"""A child's standard error: all of it is passed on but the reason, however it is cut."""

from __future__ import annotations

import random

import pytest

from fastfront.engine.said import REASON, TAIL_LINE_BYTES, TAIL_LINES, Said

TEXT = b"first\nloading [#-] 40 %\rloading [##] 80 %\r\n\n" + REASON + b"no room \xc3\xbc\nfastfront engine: x\nend"


def feed(said: Said, pieces: list[bytes]) -> bytes:
    return b"".join([*map(said.feed, pieces), said.finish()])


@pytest.mark.parametrize("seed", range(20))
def test_the_reason_is_kept_back(seed: int) -> None:
    rng = random.Random(seed)
    cuts = sorted(rng.choices(range(len(TEXT)), k=seed))
    said = Said()
    out = feed(said, [TEXT[a:b] for a, b in zip([0, *cuts], [*cuts, len(TEXT)], strict=True)])
    assert out == TEXT.replace(REASON + b"no room \xc3\xbc\n", b"")
    assert said.reason == "no room ü"
    assert list(said.tail) == ["first", "fastfront engine: x", "end"]


def test_a_bar_is_passed_on_before_its_line_ends() -> None:
    said = Said()
    assert said.feed(b"load 1 %\r") == b"load 1 %\r"
    assert said.feed(b"fast") == b"fast"
    assert Said().feed(b"fastf") == b""


def test_a_reason_without_an_end_of_line() -> None:
    said = Said()
    assert feed(said, [REASON + b"x"]) == b""
    assert said.reason == "x"


def test_long_lines_and_many_are_bounded() -> None:
    said = Said()
    data = b"".join(b"%d\n" % n for n in range(5000)) + b"y" * 300_000
    assert feed(said, [data[n : n + 7000] for n in range(0, len(data), 7000)]) == data
    assert len(said.tail) == TAIL_LINES
    assert said.tail[-1] == "y" * TAIL_LINE_BYTES
