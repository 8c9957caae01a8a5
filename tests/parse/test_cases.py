"""The answers of the reference cases, and where both of vLLM's frontends agree, theirs."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from fastfront.parse import registry
from fastfront.parse.machine import Machine
from fastfront.parse.reasoning import reasoning_state
from tests.parse.runs import Joined, run

NAMES = ("tool.", "chat.reasoning", "chat.include_reasoning")
END = "<|im_end|>"


def _answers(summary: dict[str, Any]) -> tuple[str | None, str | None, list[tuple[str, str]]]:
    choice = summary["choices"][0]
    calls = [(call["name"], call["arguments"]) for call in choice["tool_calls"]]
    return choice["reasoning"] or None, choice["text"] or None, calls


def _answer(found: Joined, request: dict[str, Any]) -> tuple[str | None, str | None, list[tuple[str, str]]]:
    reasoning = found.reasoning if request.get("include_reasoning", True) else ""
    return reasoning or None, found.content or None, [(name, arguments) for name, arguments, _ in found.calls]


@pytest.fixture(scope="module")
def http_cases(shared: Path) -> dict[str, Any]:
    folder = shared / "cases" / "http"
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in ("requests", "scripts", "expected")}


@pytest.mark.parametrize("step", [0, 1, 2, 3, 5, "character", "script"])
def test_http_cases(http_cases: dict[str, Any], peers: Path, step: int | str) -> None:
    tokenizer = Tokenizer.from_file(str(peers / "models" / "qwen3" / "tokenizer.json"))
    chosen = registry.choose("hermes", "qwen3")
    seen = 0
    for name, case in http_cases["requests"].items():
        request = case["body"]
        expected = http_cases["expected"][name]
        wants = expected.get("any", [expected])
        if not name.startswith(NAMES) or not wants[0].get("choices"):
            continue
        script = http_cases["scripts"][str(request["seed"])]
        steps = script["steps"]
        ids = [token for ids in steps for token in ids][: request["max_tokens"]]
        text = tokenizer.decode(ids, skip_special_tokens=False).removesuffix(END)
        if step == "character":
            pieces = list(text)
        elif step == 0:
            pieces = [text]
        else:
            ends = range(step, len(ids) + step, step) if isinstance(step, int) else _ends(steps, len(ids))
            whole = [tokenizer.decode(ids[:end], skip_special_tokens=False).removesuffix(END) for end in ends]
            whole = [part.rstrip("\ufffd") for part in whole[:-1]] + whole[-1:]
            pieces = [now[len(before) :] for before, now in zip(["", *whole], whole, strict=False)]
        thinking = request.get("chat_template_kwargs", {}).get("enable_thinking")
        prompt = "<|im_start|>assistant\n" + ("<think>\n\n</think>\n\n" if thinking is False else "")
        state = chosen.reasoning_state(prompt, thinking)
        found = run(chosen.parser(request.get("tools") or (), state, calls=bool(request.get("tools"))), pieces)
        assert _answer(found, request) in [_answers(want) for want in wants], name
        seen += 1
    assert seen > 40


def _ends(steps: list[list[int]], limit: int) -> Iterator[int]:
    end = 0
    for ids in steps:
        end += len(ids)
        yield min(end, limit)


#: Answers on which both frontends agree and that are not taken over: why.
NOT_TAKEN_OVER = {
    ("deepseek_v32", "post"): "text behind calls is kept",
    ("kimi_k2", "post"): "text behind calls is kept",
}


def _parsed(path: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """{(parser, case): the answers for the whole text and for a stream}."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    parser, case = "", ""
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            parser = line.split()[1]
        elif match := re.match(r"\[([^\]]*)\] NS (.*)|\s+ST (\{.*\})", line):
            case = match[1] if match[1] is not None else case
            answer, _ = json.JSONDecoder().raw_decode(match[2] or match[3])
            found.setdefault((parser, case), []).append(answer)
    return found


def _meaning(answer: Any) -> Any:
    """Content and calls, where arguments of the same value are the same."""
    if not isinstance(answer, dict):
        return None
    calls = []
    for name, arguments, *_ in answer["calls"]:
        try:
            calls.append((name, json.loads(arguments)))
        except ValueError:
            calls.append((name, arguments))
    return (answer["content"] or "").strip(), calls


def test_where_both_frontends_agree(shared: Path) -> None:
    cases = runpy.run_path(str(shared / "features" / "parser_cases.py"))
    python = _parsed(shared / "features" / "parse_py.txt")
    rust = _parsed(shared / "features" / "parse_rs.txt")
    stale, agreed = set(NOT_TAKEN_OVER), 0
    for (parser, case), answers in python.items():
        others = rust.get((parser, case), [])
        meanings = [_meaning(answer) for answer in [*answers, *others]]
        if not others or any(meaning != meanings[0] for meaning in meanings):
            continue
        text = cases["C"][parser][case]
        out = run(registry.choose(parser).parser(cases["TOOLS"]), [text])
        have = _meaning({"content": out.content, "calls": out.calls})
        agreed += 1
        if (parser, case) in NOT_TAKEN_OVER:
            assert have != meanings[0], f"{parser} {case}: no exception any more"
            stale.discard((parser, case))
        else:
            assert have == meanings[0], (parser, case)
    assert not stale
    assert agreed > 35


def test_arguments_of_one_frontend_are_taken_over_as_they_are(shared: Path) -> None:
    """Byte for byte as vLLM's Python frontend streams them, where the call is whole."""
    cases = runpy.run_path(str(shared / "features" / "parser_cases.py"))
    compared = 0
    for (parser, case), (_, streamed) in _parsed(shared / "features" / "parse_py.txt").items():
        text = cases["C"][parser][case]
        out = run(registry.choose(parser).parser(cases["TOOLS"]), [text])
        if case in ("string args", "args first") or not all(ended for *_, ended in out.calls):
            continue
        for have, want in zip(out.calls, streamed["calls"], strict=False):
            try:
                json.loads(want[1])
            except ValueError:
                continue
            if want[0] != "[":  # Python's answer to Mistral's old dialect
                assert have[:2] == want, (parser, case)
                compared += 1
    assert compared > 45


@pytest.mark.parametrize(
    ("prompt", "thinking", "state"),
    [
        ("<|im_start|>assistant\n", None, None),
        ("<|im_start|>assistant\n<think>\n", None, True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", None, False),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\nThe ans", None, False),
        ("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", None, None),
        ("<|im_start|>assistant\n<think>a</think>b<|im_end|>\n<|im_start|>assistant\n", None, None),
        ("<|im_start|>assistant\n", False, False),
        ("what does <think> do?", None, None),
        ("Question: x <think>\n", None, True),
        ("", None, None),
        ("<|im_start|>assistant\n<think>\n" + 300 * "x", None, True),
        ("<|im_start|>assistant\n<think>\n" + 250 * "x", None, True),
        ("<|im_start|>assistant\n<think>" + 300 * "x" + "</think>", None, False),
        ("<think>" + 300 * "x" + "<|im_start|>assistant\n", None, None),
        ("Question: <think>" + 300 * " ", None, True),
    ],
)
def test_where_an_answer_begins(prompt: str, thinking: bool | None, state: bool | None) -> None:
    think = registry.choose(None, "qwen3").think
    assert think is not None
    assert reasoning_state(prompt, think, thinking) is state


def test_thinking_on_request() -> None:
    chosen = registry.choose(None, "deepseek_v3")
    assert chosen.reasoning_state("x", None) is None
    assert chosen.reasoning_state("x", True) is True
    assert run(chosen.parser(), ["Hi"]).content == "Hi"
    assert run(chosen.parser(in_reasoning=True), ["a</think>b"]) == Joined("a", "b", [])


def test_a_call_that_may_be_none_is_text_of_where_it_began() -> None:
    table = registry.choose("hermes", "qwen3").with_calls
    text = "<think>I could write <tool_call> here</think>Hi"
    assert run(Machine(table), [text]) == Joined("I could write <tool_call> here", "Hi", [])
    text = 'a<think>b\n<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert run(Machine(table, (), False), [text]) == Joined("b", "a", [["now", "{}", True]])
