"""A machine that leaves plain text to its stream says the same as one that sees all of it, however the text comes."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fastfront import fast as in_use
from fastfront.flow import CallArguments, Content, Event, Reasoning
from fastfront.parse import registry
from fastfront.parse.machine import Machine
from fastfront.parse.reasoning import REASONING
from fastfront.parse.tables import Table
from tests.fast.test_sse import Owner as OutboxOwner
from tests.fast.test_stream import ABC, LENGTH, STOP, feed, output, written
from tests.parse.runs import Joined, joined
from tests.parse.texts import ONE_CALL, OTHERS, THINKING, TOOLS

FORMATS = sorted(set(registry.TOOLS) - {"hf"})
CASES = [(name, text) for name in FORMATS for text in [ONE_CALL[name], *OTHERS.get(name, [])]]
KINDS: dict[str, type[Reasoning | Content]] = {"Reasoning": Reasoning, "Content": Content}


@pytest.fixture(autouse=True)
def _twin(fast: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Scanner", "Patterns", "Nest"):
        monkeypatch.setattr(in_use, name, getattr(fast, name))


class Answer:
    """A stream and a machine, joined as the pipeline joins them; `alone`: how many events the stream wrote."""

    def __init__(self, fast: SimpleNamespace, machine: Machine, **options: Any) -> None:
        self.machine = machine
        self.events: list[Event] = []
        self.alone = 0
        self.read = 0
        self.router, self.flusher, self.owner = fast.Router(), fast.Flusher(), OutboxOwner()
        self.outbox = fast.Outbox(self.flusher, self.owner, -1, 1 << 20, False)
        self.stream = fast.Stream(self, fast.Vocab(ABC), steps=True, **options)
        self.stream.to_outbox(self.outbox, b"", b"", (b"",), 1)
        self.leave_text()

    def run(self, parts: Sequence[Sequence[int]], finish: int) -> Joined:
        """Plays the parts, each one output, and ends."""
        request_id = self.router.open(self.stream, "r")
        for at, ids in enumerate(parts):
            last = at == len(parts) - 1
            steps = feed(self.router, output(request_id, list(ids), finish if last else None)).steps
            self.take_written()
            for step in steps:
                self.on_step(step)
            if steps and steps[-1].finish_reason >= 0:
                break
        return joined(self.events)

    def on_step(self, step: Any) -> None:
        self.read += 1
        self.events += self.machine.feed(step.text)
        if step.finish_reason >= 0:
            self.events += self.machine.finish()
            return
        if self.read == self.stream.given:
            self.leave_text()

    def leave_text(self) -> None:
        begun = self.machine.stretch()
        if begun is not None:
            event, stretch = begun
            index = event.index if isinstance(event, CallArguments) else -1
            head = b'{"kind":"%b","index":%d,"text":"' % (type(event).__name__.encode(), index)
            self.stream.begin_stretch(stretch, (head, (b'"}\n',)))

    def take_written(self) -> None:
        for line in written(self.flusher, self.owner).splitlines():
            event = json.loads(line)
            assert event["text"]
            self.alone += 1
            kind, index = event["kind"], event["index"]
            text = event["text"]
            self.events.append(CallArguments(index, text) if kind == "CallArguments" else KINDS[kind](text))


def whole(machine: Machine, text: str) -> Joined:
    """What the machine says to all of the text at once."""
    return joined(machine.feed(text) + machine.finish())


def one_by_one(text: str) -> list[bytes]:
    """A part for each byte, and an empty one."""
    return [*(bytes([byte]) for byte in text.encode()), b""]


def splits(text: str, seed: str) -> Iterator[list[bytes]]:
    """Byte by byte, and at random; nothing more comes with the end, or the last bytes do."""
    data, rng = text.encode(), random.Random(seed)
    yield one_by_one(text)
    for most in (3, 9, 30):
        at, parts = 0, []
        while at < len(data):
            parts.append(data[at : (at := at + rng.randint(1, most))])
        yield parts


def check(fast: SimpleNamespace, table: Table, text: str, start: bool | None = None, **options: Any) -> int:
    """That every split says what the whole text does; how many events went out without the machine."""
    want = whole(Machine(table, TOOLS, start), text)
    alone = 0
    for parts in splits(text, text):
        answer = Answer(fast, Machine(table, TOOLS, start), **options)
        assert answer.run(parts, LENGTH) == want, parts
        alone += answer.alone
    return alone


@pytest.mark.parametrize(("name", "text"), CASES)
def test_every_format(fast: SimpleNamespace, name: str, text: str) -> None:
    table = registry.choose(name).with_calls
    check(fast, table, text)
    check(fast, table, text, interval=3)
    check(fast, table, text[: len(text) * 2 // 3])


@pytest.mark.parametrize("reasoning", sorted(REASONING))
def test_every_reasoning(fast: SimpleNamespace, reasoning: str) -> None:
    table = registry.choose("hermes", reasoning).with_calls
    for text in THINKING:
        if table.think is not None and table.think.start:
            text = text.replace("<think>", table.think.start[0]).replace("</think>", table.think.end[0])
        for start in (True, False, None):
            check(fast, table, text, start)


@pytest.mark.parametrize("reasoning", sorted(REASONING))
def test_white_space_around_reasoning(fast: SimpleNamespace, reasoning: str) -> None:
    table = registry.choose("hermes", reasoning).with_calls
    if table.think is None or not table.think.start:
        return
    start, end = table.think.start[0], table.think.end[0]
    for before, after in itertools.product(("", "\n", " ", "\n\n ", "a\n"), ("", "\n", " \n", "\n\n")):
        text = f"{before}{start}{after}r{before}{end}{after}b"
        for begins in (True, False, None):
            check(fast, table, text, begins)
            check(fast, table, f'<tool_call>{{"name": "now", "arguments": {{}}}}</tool_call>{text}', begins)


#: Of these parts each must go out without the machine but for a few tokens: reasoning, content, arguments.
NATIVE = {
    "hermes": ("qwen3", '<tool_call>{"name": "get_weather", "arguments": {"city": "%s"}}</tool_call>'),
    "llama3_json": (None, '<|python_tag|>{"name": "get_weather", "parameters": {"city": "%s"}}'),
    "mistral": ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "%s"}'),
    "deepseek_v3": (
        "deepseek_r1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        '```json\n{"city": "%s"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek_v31": (
        "deepseek_v3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "%s"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "qwen3_coder": (
        "qwen3",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n%s\n</parameter>\n</function>\n</tool_call>",
    ),
    "qwen3_xml": (
        "qwen3",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n%s\n</parameter>\n</function>\n</tool_call>",
    ),
    "glm45": (
        "glm45",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
    ),
    "kimi_k2": (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "%s"}<|tool_call_end|><|tool_calls_section_end|>',
    ),
}


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_common_formats_need_no_python_for_text(fast: SimpleNamespace, name: str) -> None:
    reasoning, call = NATIVE[name]
    table = registry.choose(name, reasoning).with_calls
    think = ("[THINK]", "[/THINK]") if name == "mistral" else ("<think>", "</think>")
    words = {"reasoning": "so many thoughts " * 9, "content": "and an answer " * 9, "city": "Zürich, then Paris " * 9}
    text = words["content"] + call % words["city"]
    if reasoning is not None:
        text = think[0] + words["reasoning"] + think[1] + text
    answer = Answer(fast, Machine(table, TOOLS, False))
    out = answer.run(one_by_one(text), LENGTH)
    assert out.content.strip() == words["content"].strip()
    assert [json.loads(made[1]) for made in out.calls] == [{"city": words["city"]}]
    plain = sum(len(part) for key, part in words.items() if key != "reasoning" or reasoning is not None)
    assert answer.alone > 0.85 * plain
    assert answer.read < 1.2 * (len(text.encode()) - plain)


@pytest.mark.parametrize(("start", "text"), [(True, "\n\nso many thoughts"), (False, "\n an answer"), (True, "\n")])
def test_the_beginning_needs_no_python(fast: SimpleNamespace, start: bool, text: str) -> None:
    answer = Answer(fast, Machine(registry.choose("hermes", "qwen3").with_calls, TOOLS, start))
    out = answer.run(one_by_one(text), LENGTH)
    assert (out.reasoning, out.content) == ((text.strip("\n"), "") if start else ("", text))
    assert answer.read == 1


def test_harmony_needs_no_python_for_text(fast: SimpleNamespace) -> None:
    table = registry.choose("openai", "openai_gptoss").with_calls
    parts = {"analysis": "thoughts " * 20, "final": "an answer " * 20}
    call = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "%s"}<|call|>'
    text = "<|start|>assistant".join(
        [*(f"<|channel|>{name}<|message|>{part}<|end|>" for name, part in parts.items()), call % ("x" * 200)]
    )
    answer = Answer(fast, Machine(table, TOOLS))
    out = answer.run(one_by_one(text), LENGTH)
    assert (out.reasoning, out.content) == (parts["analysis"], parts["final"])
    assert json.loads(out.calls[0][1]) == {"city": "x" * 200}
    assert answer.alone > 550


def _garbage(table: Table) -> list[str]:
    markers = [marker for state in table.states.values() for marker in state.on]
    others = ["name", '{"name": "now", "arguments": {"', "f(a=", "é", "🫠", "\\u12", "</", "plain text", "\n\n", "}}"]
    return [*markers, *others, "\u3000", "\x1c", *"{}[]\"':,\\<>\n x1"]


@pytest.mark.parametrize("name", FORMATS)
def test_garbage(fast: SimpleNamespace, name: str) -> None:
    table = registry.choose(name, None if name in registry.UNIFIED.values() else "qwen3").with_calls
    rng = random.Random(name)
    pieces = _garbage(table)
    for _ in range(12):
        made = [rng.choice(pieces)[: rng.choice((99, 99, 3))] for _ in range(rng.randint(1, 30))]
        check(fast, table, "".join(made), rng.choice((True, False)), interval=rng.choice((1, 1, 2)))


STOPS: Iterable[tuple[str, ...]] = (("Paris",), ("o c", "</to"), ("</think>",), ("\n",), ("{",), ("done", "d"))


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("include", [False, True])
def test_stop_strings_in_every_state(fast: SimpleNamespace, stop: tuple[str, ...], include: bool) -> None:
    table = registry.choose("hermes", "qwen3").with_calls
    text = f"<think>\nto call\n</think>\n\nHi {ONE_CALL['hermes']}"
    data = text.encode()
    for min_tokens in (0, 12, 60):
        ends = [(text.find(word, max(0, min_tokens + 1 - len(word))), word) for word in stop]
        at, word = min(((at, word) for at, word in ends if at >= 0), default=(len(text), ""))
        want = whole(Machine(table, TOOLS), text[: at + len(word)] if include else text[:at])
        for parts in (one_by_one(text), [data[n : n + 7] for n in range(0, len(data), 7)]):
            stream = Answer(
                fast,
                Machine(table, TOOLS),
                stop=fast.Patterns(stop),
                include_stop=include,
                min_tokens=min_tokens,
            )
            assert stream.run(parts, STOP if parts[-1] == b"" else LENGTH) == want
