"""What the configured parsers change about a request before the engine gets it.

The parsers must see special tokens in the answer; an engine that constrains the answer must know whether the prompt
left the reasoning open; and calls that must be made, or whose tools are strict, are held to a grammar (a structural
tag).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fastfront.errors import UnsupportedError

Choice = Literal["auto", "required", "forced"]


class ReasoningMarks(NamedTuple):
    """The tokens around reasoning, and those before which a search for them ends."""

    start: str
    end: str
    boundaries: tuple[str, ...] = ()


class CallMarks(NamedTuple):
    """The marks around one call that is written as JSON with its name and arguments."""

    start: str
    end: str


_CHATML = ("<|im_start|>", "<|im_end|>")
#: By reasoning parser. With others nobody here can tell whether a prompt left reasoning open: the engine looks itself.
REASONING = {
    "qwen3": ReasoningMarks("<think>", "</think>", _CHATML),
    "deepseek_r1": ReasoningMarks("<think>", "</think>"),
}
#: By tool call parser.
CALLS = {
    "hermes": CallMarks("<tool_call>", "</tool_call>"),
    "longcat": CallMarks("<longcat_tool_call>", "</longcat_tool_call>"),
}


class Preparation:
    """One per process. `token_id` gives the id of a token's text."""

    def __init__(
        self, tool_parser: str | None, reasoning_parser: str | None, token_id: Callable[[str], int | None]
    ) -> None:
        self._tool_parser = tool_parser
        self._reasoning_parser = reasoning_parser
        marks = REASONING.get(reasoning_parser or "")
        self._start = None if marks is None else token_id(marks.start)
        self._end = None if marks is None else token_id(marks.end)
        self._boundaries = frozenset(token_id(text) for text in (marks.boundaries if marks is not None else ()))

    def keeps_special_tokens(self, calls_tools: bool) -> bool:
        """Whether the parsers must see special tokens in the answer's text."""
        return self._reasoning_parser is not None or (calls_tools and self._tool_parser is not None)

    def reasoning_ended(self, prompt: list[int], thinking: bool) -> bool | None:
        """Whether the prompt left no reasoning open; None where nobody here can tell."""
        if self._end is None:
            return None
        for token in reversed(prompt):
            if token == self._end:
                return True
            if token == self._start:
                return not thinking
            if token in self._boundaries:
                break
        return bool(self._boundaries) and not thinking

    def call_grammar(self, tools: list[dict[str, Any]], choice: str, single: bool) -> str | None:
        """The structural tag that holds the answer to calls of `tools` (choice auto, required or forced), if any.

        A tool that is not `strict` may be called with anything; with `auto` and no strict tool nothing is held, unless
        there may be a `single` call at most.
        """
        functions = [tool["function"] for tool in tools]
        strict = [function.get("strict") is True for function in functions]
        if self._tool_parser is None or (choice == "auto" and not single and not any(strict)):
            return None
        marks = CALLS.get(self._tool_parser)
        if marks is None:
            raise UnsupportedError(
                f"Tool calls in the format {self._tool_parser!r} cannot be constrained by fastfront yet; use "
                'tool_choice "auto" with tools that are not strict and with parallel calls allowed.',
                param="tool_choice",
            )
        pairs = zip(functions, strict, strict=True)
        tags = [tag for function, held in pairs for tag in _call_tags(marks, function, held)]
        return json.dumps({"type": "structural_tag", "format": _calls(marks, tags, choice, single)})


def _call_tags(marks: CallMarks, function: dict[str, Any], strict: bool) -> list[dict[str, Any]]:
    """A call as it may be written: with line ends around the JSON, and without."""
    parameters = function.get("parameters") if strict else None
    content: dict[str, object] = {
        "type": "json_schema",
        "json_schema": True if parameters is None else parameters,
        "style": "json",
        "any_order": False,
        "max_whitespace_cnt": None,
        "excludes": [],
    }
    return [
        {
            "type": "tag",
            "begin": f'{marks.start}{line_end}{{"name": "{function["name"]}", "arguments": ',
            "content": content,
            "end": f"}}{line_end}{marks.end}",
        }
        for line_end in ("\n", "")
    ]


def _calls(marks: CallMarks, tags: list[dict[str, Any]], choice: str, single: bool) -> dict[str, Any]:
    if choice == "auto":
        return {
            "type": "triggered_tags",
            "triggers": [marks.start],
            "tags": tags,
            "at_least_one": False,
            "stop_after_first": single,
            "excludes": [],
        }
    return {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": "",
        "at_least_one": True,
        "stop_after_first": single or choice == "forced",
    }
