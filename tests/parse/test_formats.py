"""What single formats do, beyond what the property tests and the reference cases say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront.flow import CallArguments, CallEnd, CallStart, Content
from fastfront.parse import registry
from tests.parse.runs import Joined, run
from tests.parse.texts import DEEPSEEK, M3, TOOLS


def parsed(tool: str, text: str, reasoning: str | None = None, start: bool | None = None) -> Joined:
    """The whole text's meaning."""
    return run(registry.choose(tool, reasoning).parser(TOOLS, start), [text])


@pytest.mark.parametrize(
    ("tool", "text", "content", "calls"),
    [
        ("hermes", "Use the <tool_call> tag", "Use the <tool_call> tag", []),
        ("hermes", "<tool_call></tool_call>", "<tool_call></tool_call>", []),
        ("hermes", '<tool_call>{"name": "f", "arguments": ', '{"name": "f", "arguments": ', []),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}\n</tool_', "", [["f", "{}", True]]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}}\n</tool_call>x', "}\nx", [["f", "{}", True]]),
        ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [["f", "{}", True]]),
        ("hermes", '<tool_call>{"name": "f", "arguments": "x y"}</tool_call>', "", [["f", '"x y"', True]]),
        (
            "hermes",
            '<tool_call>{"function": {"name": "f", "arguments": {"a": "}"}}}</tool_call>',
            "",
            [["f", '{"a": "}"}', True]],
        ),
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>',
            "",
            [["f", '{"a": "</tool_call>', False]],
        ),
        ("hermes", "\n\n", "\n\n", []),
        ("mistral", '[TOOL_CALLS]now{"a": "b"} bye', " bye", [["now", '{"a": "b"}', True]]),
        ("mistral", "[TOOL_CALLS]now", "[TOOL_CALLS]now", []),
        ("llama3_json", '  {"a": 1} x', '  {"a": 1} x', []),
        ("qwen3_coder", "<tool_call>\nnot a call\n</tool_call>", "<tool_call>\nnot a call\n</tool_call>", []),
        ("qwen3_coder", "<function=now>\n<par", "<function=now>\n<par", []),
        ("glm45", "<tool_call>not a call</tool_call>", "<tool_call>not a call</tool_call>", []),
        ("pythonic", "[see](http://x) for more", "[see](http://x) for more", []),
        ("pythonic", "[f(a='it\\'s \\x41\\u00e9', b=[1, (2,)], c=nul)]", "", None),
        ("minimax_m3", f'{M3}<invoke name="now">{M3}</invoke>', "", [["now", "{}", True]]),
        ("openai", "Plain text", "Plain text", []),
        ("openai", "<|channel|>commentary to=browser.search<|message|>{}<|call|>", "", []),
        ("openai", "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "a\nb", []),
        ("openai", " to=functions.now<|channel|>commentary<|message|>{}<|call|>", "", [["now", "{}", True]]),
        ("inkling", "No blocks here", "No blocks here", []),
    ],
)
def test_texts(tool: str, text: str, content: str, calls: list[Any] | None) -> None:
    found = parsed(tool, text)
    assert found.content == content
    if calls is not None:
        assert found.calls == calls


def test_python_literals() -> None:
    text = "[f(a='it\\'s \\x41\\u00e9\\n', b=[1, (2,), {'k': None}], c=nul, d=-1.5, e=\"x\" 'y', g=true)]"
    [[name, arguments, ended]] = parsed("pythonic", text).calls
    assert (name, ended) == ("f", True)
    assert json.loads(arguments) == {
        "a": "it's Aé\n",
        "b": [1, [2], {"k": None}],
        "c": "nul",
        "d": -1.5,
        "e": "xy",
        "g": True,
    }


def test_json_arguments_in_a_string_are_decoded() -> None:
    text = '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\\\u00e9\\ud83d\\ude00\\"}"}</tool_call>'
    for pieces in ([text], list(text)):
        [[_, arguments, _]] = run(registry.choose("hermes").parser(), pieces).calls
        assert json.loads(arguments) == {"a": "é😀"}


def test_arguments_flow_as_they_are_generated() -> None:
    for tool, text in (
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "'),
        ("qwen3_coder", "<function=f><parameter=a>"),
        ("kimi_k2", '<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{"a": "'),
        ("pythonic", '[f(a="x'),
        ("gemma4", '<|tool_call>call:f{a:<|"|>'),
    ):
        parser = registry.choose(tool).parser()
        started = parser.feed(text)
        assert isinstance(started[0], CallStart), tool
        assert [piece for word in ("some", "more") for piece in parser.feed(word)] == [
            CallArguments(0, "some"),
            CallArguments(0, "more"),
        ], tool


def test_ids() -> None:
    def first_id(tool: str, text: str) -> str:
        return next(e.id for e in registry.choose(tool).parser().feed(text) if isinstance(e, CallStart))

    assert first_id("hermes", '<tool_call>{"name": "f", "arguments": {').startswith("chatcmpl-tool-")
    assert len(first_id("mistral", "[TOOL_CALLS]f{")) == 9
    kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:7<|tool_call_argument_begin|>{"
    assert first_id("kimi_k2", kimi) == "functions.f:7"


def test_events_of_one_call() -> None:
    parser = registry.choose("hermes").parser()
    events = parser.feed('Hi <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>') + parser.finish()
    assert isinstance(events[1], CallStart)
    assert (events[1].index, events[1].name) == (0, "f")
    assert [events[0], *events[2:]] == [Content("Hi "), CallArguments(0, '{"a": 1}'), CallEnd(0)]


def test_types_come_from_the_schema() -> None:
    def arguments(**properties: Any) -> Any:
        tools = [
            {"function": {"name": "f", "parameters": {"properties": properties, "$defs": {"N": {"type": "integer"}}}}}
        ]
        values = {"a": "1", "b": "1.50", "c": "TRUE", "d": "null", "e": "[1, 2]", "g": "1e999", "h": "x"}
        text = "".join(f"<parameter={key}>\n{value}\n</parameter>" for key, value in values.items())
        [call] = run(registry.choose("qwen3_xml").parser(tools), [f"<function=f>{text}</function>"]).calls
        return json.loads(call[1])

    assert arguments() == {"a": "1", "b": "1.50", "c": "TRUE", "d": "null", "e": "[1, 2]", "g": "1e999", "h": "x"}
    assert arguments(
        a={"$ref": "#/$defs/N"},
        b={"type": "number"},
        c={"type": ["boolean", "null"]},
        d={"anyOf": [{"type": "string"}, {"type": "null"}]},
        e={"type": "array"},
        g={"type": "number"},
        h={"enum": [1, 2]},
    ) == {"a": 1, "b": 1.5, "c": True, "d": None, "e": [1, 2], "g": "1e999", "h": "x"}


def test_deepseek_code_fences_inside_arguments() -> None:
    text = DEEPSEEK.format('function<｜tool▁sep｜>f\n```json\n{"code": "```x```"}\n```')
    assert parsed("deepseek_v3", text).calls == [["f", '{"code": "```x```"}', True]]


def test_minimax_m3_nests() -> None:
    item = f"{M3}<item>{{}}{M3}</item>".format
    text = f'{M3}<tool_call>{M3}<invoke name="f">{M3}<o>{M3}<x>1{M3}</x>{M3}</o>{item(1)}{item(2)}{M3}</invoke>'
    [call] = parsed("minimax_m3", text).calls
    assert json.loads(call[1]) == {"o": {"x": "1"}, "item": ["1", "2"]}


def test_muse_glimmer_and_harmony_reasoning() -> None:
    text = " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Hi<|eot|>"
    assert parsed("muse_glimmer", text, "muse_glimmer") == Joined("hm", "Hi", [])
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>"
    assert parsed("openai", text, "openai_gptoss") == Joined("hm", "Hi", [])


@pytest.mark.parametrize(
    ("reasoning", "text", "found"),
    [
        ("qwen3", "<think>\nabc\n</think>\n\nHi", ("abc", "Hi")),
        ("deepseek_r1", "<think>\nabc\n</think>\n\nHi", ("\nabc\n", "\n\nHi")),
        ("glm45", "<think>\nabc\n</think>\n\nHi", ("\nabc", "\n\nHi")),
        ("glm45", "a</think>b<think>c</think>d", ("ac", "bd")),
        ("step3p5", "a\n</think>\nb", ("a", "\nb")),
        ("granite", "Here is my thought process: a Here is my response: b", (" a ", " b")),
        ("gemma4", "<|channel>thought\nabc<channel|>Hi", ("abc", "Hi")),
        ("hunyuan_a13b", "<think>\nabc\n</think>\n<answer>\nHi\n</answer>", ("abc", "Hi")),
        ("mistral", "[THINK]a[/THINK]b", ("a", "b")),
        ("minimax_m2_append_think", "a</think>b", ("", "<think>a</think>b")),
        ("cohere_command4", "<|START_THINKING|>a<|END_THINKING|><|START_TEXT|>b<|END_TEXT|>", ("a", "b")),
        ("kimi_k3", "a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|>", ("a", "b")),
        ("ernie45", "a\n</think>\n\n<response>\nb</response>", ("a\n", "b")),
        ("k2_horizon", "<ifm|think_fast>a</ifm|think_fast>b", ("a", "b")),
    ],
)
def test_reasoning(reasoning: str, text: str, found: tuple[str, str]) -> None:
    assert run(registry.choose(None, reasoning).parser(), [text])[:2] == found
