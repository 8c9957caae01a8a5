"""Constraints on calls: those that vLLM's Python frontend sends, and what they make the model write can be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.errors import RequestError, UnsupportedError
from fastfront.parse.grammar.registry import ALWAYS, BUILDERS, FREE, UNKNOWN
from fastfront.parse.prepare import Preparation
from fastfront.parse.registry import TOOLS, choose
from tests.parse.runs import cuts, run

#: Recorded from vLLM 0.32.0 (ToolParser and DelegatingParser.adjust_request): tools, then what each parser sends.
HEAD, *RECORDED = [
    json.loads(line) for line in gzip.decompress(Path(__file__).with_name("calls.jsonl.gz").read_bytes()).splitlines()
]
SCHEMA = HEAD["tools"]["one"][0]["function"]["parameters"]
LEGACY = {"structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}], "triggers": ["<a"]}
FREE_TEXT: dict[str, Any] = {"type": "any_text", "excludes": [], "max_tokens": None, "max_chars": None}
#: The request's own constraint in each recorded case, as the engine would get it.
ANSWERS: dict[str | None, dict[str, Any] | None] = {
    None: None,
    "schema": {"json": SCHEMA},
    "object": {"json_object": True},
    "regex": {"regex": "a+"},
    "choice": {"choice": ["x", "y"]},
    "ebnf": {"grammar": 'root ::= "a"'},
    "tag": {"structural_tag": json.dumps({"type": "structural_tag", "format": FREE_TEXT})},
    "legacy": {"structural_tag": json.dumps(LEGACY)},
}


def preparation(parser: str, level: Any = "auto") -> Preparation:
    return Preparation(parser, None, lambda text: None, level)


def held(parser: str, case: dict[str, Any]) -> dict[str, Any] | None:
    """What is sent in a recorded case, with the tag decoded."""
    tools = HEAD["tools"][case["tools"]]
    choice = case["choice"]
    if choice == "named":
        choice, tools = "forced", tools[:1]
    made = preparation(parser, case["level"]).held_calls(tools, choice, not case["parallel"], ANSWERS[case["with"]])
    if made is not None and "structural_tag" in made:
        return {"structural_tag": json.loads(made["structural_tag"])}
    return made


@pytest.mark.parametrize("parser", sorted({parser for group in RECORDED for parser in group["parsers"]}))
def test_as_recorded(parser: str) -> None:
    cases = next(group["cases"] for group in RECORDED if parser in group["parsers"])
    assert len(cases) > 10
    for case in cases:
        assert held(parser, case) == case["sent"], {key: case[key] for key in case if key != "sent"}


def test_every_parser_is_somewhere() -> None:
    recorded = {parser for group in RECORDED for parser in group["parsers"]}
    # They need a package, or a model's own template, that was not there.
    assert set(TOOLS) - recorded == {"cohere_command3", "cohere_command4", *UNKNOWN}
    assert FREE | ALWAYS | set(BUILDERS) <= set(TOOLS)


# --- what is held can be read -----------------------------------------------------------------------------------------


VALUES = {"city": "Paris", "days": 3}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
#: How each of xgrammar's styles writes an argument: a string, another value.
STYLES = {
    "qwen_xml": ("<parameter={}>{}</parameter>",) * 2,
    "minimax_xml": ('<parameter name="{}">{}</parameter>',) * 2,
    "deepseek_xml": (
        '<｜DSML｜parameter name="{}" string="true">{}</｜DSML｜parameter>',
        '<｜DSML｜parameter name="{}" string="false">{}</｜DSML｜parameter>',
    ),
    "deepseek_v4_1_xml": (
        '<｜DSML｜ parameter name="{}" string="true">{}</｜DSML｜ parameter>',
        '<｜DSML｜ parameter name="{}" string="false">{}</｜DSML｜ parameter>',
    ),
    "glm_xml": ("<arg_key>{}</arg_key><arg_value>{}</arg_value>",) * 2,
}


def value_of(schema: Any) -> Any:
    """A value of a schema."""
    if schema is True or schema == WEATHER["function"]["parameters"]:
        return VALUES
    if schema.get("type") == "array":
        return [value_of(schema["items"]["anyOf"][0])]
    if "const" in schema or "enum" in schema:
        return schema.get("const") or schema["enum"][0]
    if schema.get("pattern"):
        return "0"
    if schema.get("properties"):
        return {key: value_of(value) for key, value in schema["properties"].items()}
    return {"string": "Paris", "integer": 3}[schema["type"]]


def written(format: dict[str, Any]) -> str:
    """A text that a format allows; of several things the first, of anything that may be left out all of it."""
    match format["type"]:
        case "const_string":
            return str(format["value"])
        case "any_text":
            return ""
        case "regex":
            return "0"
        case "json_schema" if format["style"] == "json":
            return json.dumps(value_of(format["json_schema"]))
        case "json_schema":
            text, other = STYLES[format["style"]]
            return "".join((text if isinstance(v, str) else other).format(k, v) for k, v in VALUES.items())
        case "sequence":
            return "".join(map(written, format["elements"]))
        case "or":
            return written(format["elements"][0])
        case "optional" | "star" | "plus":
            return written(format["content"])
        case "tag":
            end = format["end"] if isinstance(format["end"], str) else format["end"][0]
            return str(format["begin"]) + written(format["content"]) + end
    return written(format["tags"][0])  # triggered, separated


def is_keyed(parser: str) -> bool:
    """Whether a tag names each argument, so that the text above has but the first of them."""
    return parser in ("kimi_k3", "hy_v4")


@pytest.mark.parametrize("parser", sorted({*BUILDERS, "hy_v4"}))
@pytest.mark.parametrize("choice", ["auto", "required", "forced"])
def test_what_is_held_is_read(parser: str, choice: str) -> None:
    made = preparation(parser).held_calls([WEATHER], choice, False, None)
    if made is None:
        assert (parser, choice) == ("hy_v4", "auto")
        return
    text = written(json.loads(made["structural_tag"])["format"])
    if parser == "openai":
        text = text.split("<|start|>assistant")[-1]
    format = choose(parser)
    for pieces in [[text], *cuts(text)]:
        calls = run(format.parser([WEATHER]), pieces).calls
        assert [call[0] for call in calls] == ["get_weather"], (text, pieces)
        if not is_keyed(parser):
            assert json.loads(calls[0][1]) == VALUES


PLAIN = sorted(set(TOOLS) - set(BUILDERS) - FREE - UNKNOWN - {"hy_v4"})


@pytest.mark.parametrize("parser", PLAIN)
@pytest.mark.parametrize("choice", ["required", "forced"])
def test_plain_json_is_read(parser: str, choice: str) -> None:
    ready, format = preparation(parser), choose(parser, "qwen3")
    made = ready.held_calls([WEATHER], choice, False, None)
    assert made is not None
    text = json.dumps(value_of(made["json"]))
    plain = ready.plain_calls(choice, "get_weather" if choice == "forced" else "")
    assert plain is not None
    for pieces in [[text], *cuts(text)]:
        thought = ["why", "</think>", "\n\n"]
        read = run(format.parser([WEATHER], True, True, plain), [*thought, *pieces])
        assert read.reasoning == "why"
        assert [(call[0], json.loads(call[1]), call[2]) for call in read.calls] == [("get_weather", VALUES, True)]
        assert read.content == ""


def test_an_array_of_several_calls() -> None:
    text = '[{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}]'
    read = run(choose("pythonic").parser([], plain=""), [text])
    assert read.calls == [["f", '{"a": 1}', True], ["g", "{}", True]]


@pytest.mark.parametrize("text", ["", "  ", "I cannot.", "[1, 2]"])
def test_an_answer_that_is_no_call_is_content(text: str) -> None:
    for plain in ("", "f"):
        read = run(choose("granite").parser([], plain=plain), [text])
        assert (read.content, read.calls) == (text, [])


def test_no_plain_json_where_the_format_is_held() -> None:
    assert preparation("hermes").plain_calls("required", "") is None
    assert preparation("jamba").plain_calls("auto", "") is None
    assert preparation("gemma4").plain_calls("forced", "f") is None
    # an array of one
    assert preparation("mistral").plain_calls("forced", "f") == ""


# --- refusals, harmony ------------------------------------------------------------------------------------------------


def test_definitions_that_differ() -> None:
    def tool(name: str, definitions: Any) -> dict[str, Any]:
        return {"function": {"name": name, "parameters": {"type": "object", "$defs": definitions}}}

    ready = preparation("jamba")
    with pytest.raises(RequestError, match="multiple schemas") as refused:
        ready.held_calls([tool("f", {"P": {}}), tool("g", {"P": {"type": "null"}})], "required", False, None)
    assert refused.value.param == "tools"
    with pytest.raises(RequestError, match="must be an object"):
        ready.held_calls([tool("f", [])], "required", False, None)
    tools = [tool("f", {"P": {}}), tool("g", {"P": {}, "Q": {}})]
    before = json.dumps(tools)
    made = ready.held_calls(tools, "required", False, None)
    assert made is not None
    assert made["json"]["$defs"] == {"P": {}, "Q": {}}
    assert json.dumps(tools) == before


@pytest.mark.parametrize(
    "strict, choice, single, param",
    [
        (True, "auto", False, "tools"),
        (False, "required", False, "tool_choice"),
        (False, "auto", True, "parallel_tool_calls"),
    ],
)
def test_a_format_of_the_models_own_promises_nothing(strict: bool, choice: str, single: bool, param: str) -> None:
    tool = {"function": {"name": "f", "strict": strict}}
    with pytest.raises(RequestError, match="cannot guarantee") as refused:
        preparation("hf").held_calls([tool], choice, single, None)
    assert refused.value.param == param


def test_lark_beside_calls_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="EBNF"):
        preparation("hermes").held_calls([WEATHER], "auto", False, {"grammar": 'start: "a"'})


def test_harmony_holds_the_final_message_alone() -> None:
    made = preparation("openai").held_answer({"json": SCHEMA})
    assert made is not None
    analysis, final = json.loads(made["structural_tag"])["format"]["elements"]
    assert analysis["content"]["elements"][0]["begin"] == "<|channel|>analysis<|message|>"
    assert [tag["begin"] for tag in final["elements"]] == [
        "<|channel|>final json<|message|>",
        "<|channel|>final <|constrain|>json<|message|>",
    ]
    assert preparation("hermes").held_answer({"json": SCHEMA}) is None
