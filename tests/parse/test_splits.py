"""However a text is cut, it says the same; and nothing of it is lost."""

from __future__ import annotations

import json
import random
import re
from types import SimpleNamespace

import pytest

from fastfront import fast as in_use
from fastfront.parse import registry
from fastfront.parse.machine import Machine
from fastfront.parse.reasoning import REASONING
from fastfront.parse.tables import Table
from tests.parse.runs import cuts, run
from tests.parse.texts import ONE_CALL, OTHERS, THINKING, TOOLS

FORMATS = sorted(set(registry.TOOLS) - {"hf"})
CASES = [(name, text) for name in FORMATS for text in [ONE_CALL[name], *OTHERS.get(name, [])]]


@pytest.fixture(autouse=True)
def _twin(fast: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine runs on each twin's scanner."""
    monkeypatch.setattr(in_use, "Scanner", fast.Scanner)
    monkeypatch.setattr(in_use, "Patterns", fast.Patterns)


def table(tool: str | None, reasoning: str | None = None) -> Table:
    """A fresh table: its patterns are of the twin under test."""
    return registry.choose(tool, reasoning).with_calls


@pytest.mark.parametrize("name", FORMATS)
def test_one_call(name: str) -> None:
    whole = run(Machine(table(name), TOOLS), [ONE_CALL[name]])
    assert [call[0] for call in whole.calls] == ["get_weather"]
    assert json.loads(whole.calls[0][1]) == {"city": "Paris", "days": 3}
    assert whole.calls[0][2]
    assert whole.reasoning == ""
    assert whole.content.replace("Hi ", "", 1).replace("\n", "") == " done"


@pytest.mark.parametrize(("name", "text"), CASES)
def test_every_split_equals_the_whole(name: str, text: str) -> None:
    format_table = table(name)
    whole = run(Machine(format_table, TOOLS), [text])
    for pieces in cuts(text):
        assert run(Machine(format_table, TOOLS), pieces) == whole, pieces


@pytest.mark.parametrize("name", FORMATS)
def test_every_beginning_is_split_invariant(name: str) -> None:
    text = ONE_CALL[name]
    format_table = table(name)
    for end in range(0, len(text), 3):
        cut = text[:end]
        assert run(Machine(format_table, TOOLS), [cut]) == run(Machine(format_table, TOOLS), list(cut)), cut


@pytest.mark.parametrize("reasoning", sorted(REASONING))
@pytest.mark.parametrize("start", [True, False, None])
def test_reasoning_splits(reasoning: str, start: bool | None) -> None:
    format_table = table("hermes", reasoning)
    think = format_table.think
    for text in THINKING:
        if think is not None and think.start:
            text = text.replace("<think>", think.start[0]).replace("</think>", think.end[0])
        whole = run(Machine(format_table, TOOLS, start), [text])
        for pieces in cuts(text):
            assert run(Machine(format_table, TOOLS, start), pieces) == whole, pieces


def _pieces(format_table: Table) -> list[str]:
    """Markers and other text that garbage is made of."""
    markers = [marker for state in format_table.states.values() for marker in state.on]
    others = ["name", '{"name": "f", "arguments": {', "f(a=", "é", "🫠", "\\u12", "</"]
    return [*markers, *others, *"{}[]\"':,\\<>\n x1"]


@pytest.mark.parametrize("name", FORMATS)
def test_garbage_neither_raises_nor_depends_on_the_split(name: str) -> None:
    format_table = table(name, "qwen3")
    source = random.Random(name)
    pieces = _pieces(format_table)
    for _ in range(60):
        made = [source.choice(pieces)[: source.choice((99, 99, 3))] for _ in range(source.randint(1, 12))]
        text = "".join(made)
        whole = run(Machine(format_table, TOOLS, False), [text])
        assert run(Machine(format_table, TOOLS, False), made) == whole, made
        assert run(Machine(format_table, TOOLS, False), list(text)) == whole, made


@pytest.mark.parametrize(("name", "text"), CASES)
def test_no_word_is_lost(name: str, text: str) -> None:
    """Words that are no markup come out, wherever that is."""
    if "browser.search" in text or "anal" in text[-4:]:
        pytest.skip("what nobody is to see")
    format_table = table(name)
    out = run(Machine(format_table, TOOLS), [text])
    told = " ".join([out.reasoning, out.content, *(f"{call[0]} {call[1]}" for call in out.calls)])
    for word in ("Hi", "done", "Paris", "Zürich", "get_weather", "hello", "quoted", "oops", "more", "end", "Plain"):
        assert len(re.findall(word, told)) >= len(re.findall(rf"(?<![_|▁:])\b{word}\b(?![_|▁:(<])", text)), word
