"""Finding the first of several strings in a text that comes in pieces."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest


def run(fast: SimpleNamespace, patterns: list[str], pieces: list[str]) -> tuple[str, int]:
    """(text before the match or all of it, matched pattern)."""
    scanner = fast.Scanner(fast.Patterns(patterns))
    text = ""
    for piece in pieces:
        certain, found, _ = scanner.feed(piece)
        text += certain
        if found >= 0:
            return text, found
    return text + scanner.finish(), -1


@pytest.mark.parametrize(
    ("patterns", "pieces", "text", "found"),
    [
        (["DEFGHIJ"], [" ABC", "DE", "FG", "HI", "JK", "L"], " ABC", 0),
        (["FGH"], [" ABC", "DE", "FG", "HI", "JK", "L"], " ABCDE", 0),
        (["\n", "Alice:"], [" Alice", "!"], " Alice!", -1),
        (["D", "STOP"], [" A", " B", " C", " STOP", " D"], " A B C ", 1),
        (["ZZZ"], ["用中", "文写🫠", " end"], "用中文写🫠 end", -1),
        (["写🫠"], ["用中文写🫠 end"], "用中文", 0),
        (["abac"], ["ab", "ab", "ac"], "ab", 0),
        (["aab"], ["aaab"], "a", 0),
        (["bc", "abcd"], ["abcd"], "", 1),  # starts first, within one piece
        (["bc", "abcd"], ["abc", "d"], "a", 0),  # the pieces decide
        (["ab", "abc"], ["abc"], "", 0),  # ends first
        (["x"], [""], "", -1),
        ([], ["abc"], "abc", -1),
    ],
)
def test_first_match(
    fast: SimpleNamespace, patterns: list[str], pieces: list[str], text: str, found: int
) -> None:
    assert run(fast, patterns, pieces) == (text, found)


def test_holds_back_only_what_may_still_match(fast: SimpleNamespace) -> None:
    scanner = fast.Scanner(fast.Patterns(["</think>"]))
    assert scanner.feed("a < b </th") == ("a < b ", -1, "")
    assert scanner.feed("i") == ("", -1, "")
    assert scanner.feed("x<") == ("</thix", -1, "")
    assert scanner.finish() == "<"
    assert scanner.feed("</think>rest") == ("", 0, "rest")


def test_an_unarmed_scanner_passes_matches_by(fast: SimpleNamespace) -> None:
    scanner = fast.Scanner(fast.Patterns(["ab"]))
    assert scanner.feed("ab", armed=False) == ("ab", -1, "")
    assert scanner.feed("a", armed=False) == ("", -1, "")
    assert scanner.feed("b") == ("", 0, "")


def test_an_empty_pattern_is_refused(fast: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="empty"):
        fast.Patterns(["a", ""])


def test_one_pattern_is_found_at_the_same_place_for_every_split(fast: SimpleNamespace) -> None:
    rng = random.Random(3)
    for _ in range(500):
        pattern = "".join(rng.choice("ab") for _ in range(rng.randrange(1, 5)))
        text = "".join(rng.choice("abc") for _ in range(rng.randrange(14)))
        at = text.find(pattern)
        want = (text, -1) if at < 0 else (text[:at], 0)
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(3))
        pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert run(fast, [pattern], pieces) == want, (pattern, pieces)


def test_native_and_pure_agree() -> None:
    from fastfront.fast import load

    try:
        pure, native = (SimpleNamespace(**load(native)) for native in (False, True))
    except ImportError:
        pytest.skip("the compiled modules are not built")
    rng = random.Random(9)
    for _ in range(2000):
        patterns = ["".join(rng.choice("abé") for _ in range(rng.randrange(1, 5))) for _ in range(rng.randrange(1, 4))]
        scanners = [twin.Scanner(twin.Patterns(patterns)) for twin in (pure, native)]
        for _ in range(6):
            piece = "".join(rng.choice("abéc") for _ in range(rng.randrange(6)))
            armed = rng.random() < 0.8
            left, right = (scanner.feed(piece, armed) for scanner in scanners)
            assert left == right, (patterns, piece)
        assert scanners[0].finish() == scanners[1].finish()
