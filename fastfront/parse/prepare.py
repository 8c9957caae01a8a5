"""What the configured parsers change about a request before the engine gets it.

The parsers must see special tokens in the answer; an engine that constrains the answer must know whether the prompt
left the reasoning open; and calls that must be made, that are one at most, or whose tools are strict are held to a
grammar: of the parser's own format, or, where there is none, of plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from fastfront.errors import RequestError
from fastfront.parse.grammar import json_list
from fastfront.parse.grammar.answers import as_format
from fastfront.parse.grammar.formats import Call, Choice
from fastfront.parse.grammar.harmony import final_answer
from fastfront.parse.grammar.registry import ALWAYS, FREE, UNKNOWN, builder
from fastfront.parse.registry import TOOLS

#: How much of every call is held, whatever the request says: what was asked for, the envelope, its arguments too.
Level = Literal["auto", "function", "parameter"]


class ReasoningMarks(NamedTuple):
    """The tokens around reasoning, and those before which a search for them ends."""

    start: str
    end: str
    boundaries: tuple[str, ...] = ()


_CHATML = ("<|im_start|>", "<|im_end|>")
#: By reasoning parser. With others nobody here can tell whether a prompt left reasoning open: the engine looks itself.
REASONING = {
    "qwen3": ReasoningMarks("<think>", "</think>", _CHATML),
    "deepseek_r1": ReasoningMarks("<think>", "</think>"),
}


class Preparation:
    """One per process. `token_id` gives the id of a token's text; `suffix` is that of Hunyuan's tokens."""

    def __init__(
        self,
        tool_parser: str | None,
        reasoning_parser: str | None,
        token_id: Callable[[str], int | None],
        level: Level = "auto",
        suffix: str = "",
    ) -> None:
        self._tool_parser = tool_parser
        self._reasoning_parser = reasoning_parser
        self._build = builder(tool_parser or "", suffix)
        self._level: Level = "function" if level == "auto" and tool_parser in ALWAYS else level
        #: Whether calls that must come are plain JSON, for want of a grammar of the parser's own format.
        self._reads_json = tool_parser in TOOLS and tool_parser not in FREE | UNKNOWN and self._build is None
        self._writes_messages = tool_parser == "openai" or reasoning_parser == "openai_gptoss"
        marks = REASONING.get(reasoning_parser or "")
        self._start = None if marks is None else token_id(marks.start)
        self._end = None if marks is None else token_id(marks.end)
        self._boundaries = frozenset(token_id(text) for text in (marks.boundaries if marks is not None else ()))

    def keeps_special_tokens(self, calls_tools: bool) -> bool:
        """Whether the parsers must see special tokens in the answer's text."""
        return self._reasoning_parser is not None or (calls_tools and self._tool_parser is not None)

    def reasoning_ended(self, prompt: Sequence[int], thinking: bool) -> bool | None:
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

    def plain_calls(self, choice: str, name: str) -> str | None:
        """How plain JSON says the calls of `choice`: "" as an array, a name as that function's arguments; None: not."""
        if choice == "auto" or not self._reads_json:
            return None
        return name if choice == "forced" and self._tool_parser != "mistral" else ""

    def held_answer(self, constraint: Mapping[str, Any]) -> dict[str, Any] | None:
        """A constraint on an answer without calls as the format needs it, None where it is right as it is."""
        return _as_tag(final_answer(as_format(constraint))) if self._writes_messages else None

    def held_calls(
        self, tools: Sequence[Mapping[str, Any]], choice: str, single: bool, answer: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """The constraint that holds an answer to calls of `tools` (choice auto, required or forced), None for none.

        `answer` is the request's own constraint on text: with auto it may stand beside the calls, else calls replace
        it. `single`: one call at most. RequestError for what cannot be held.
        """
        if self._tool_parser in UNKNOWN:
            self._refuse_promises(tools, choice, single)
        level = self._level
        if single and level == "auto" and not (choice == "auto" and answer is not None):
            level = "function"
        if choice == "auto" and level == "auto" and not any(tool["function"].get("strict") is True for tool in tools):
            return None
        calls = [_call(tool["function"], level) for tool in tools]
        if self._build is None:
            return self._plain(calls, choice, single) if choice != "auto" and self._reads_json else None
        beside = as_format(answer) if answer is not None and choice == "auto" else None
        made = self._build(calls, cast("Choice", "required" if beside is not None else choice), single)
        if made is None:
            return None
        return _as_tag(made if beside is None else {"type": "or", "elements": [made, beside]})

    def _plain(self, calls: Sequence[Call], choice: str, single: bool) -> dict[str, Any]:
        forced = choice == "forced"
        if self._tool_parser == "mistral":
            return {"json": json_list.mistral(calls, forced)}
        return {"json": json_list.arguments(calls[0]) if forced else json_list.call_list(calls, single)}

    def _refuse_promises(self, tools: Sequence[Mapping[str, Any]], choice: str, single: bool) -> None:
        wish, param = "", "tool_choice"
        if any(tool["function"].get("strict") is True for tool in tools):
            wish, param = "strict tools", "tools"
        elif choice != "auto":
            wish = "required tool choice" if choice == "required" else "named tool choice"
        elif single:
            wish, param = "parallel_tool_calls=False", "parallel_tool_calls"
        if wish:
            raise RequestError(
                f"response_template parsing cannot guarantee {wish} without a format-compatible structural grammar",
                param=param,
            )


def _call(function: Mapping[str, Any], level: Level) -> Call:
    strict = level == "parameter" or function.get("strict") is True
    return Call(function["name"], function.get("parameters"), strict)


def _as_tag(format: dict[str, Any]) -> dict[str, Any]:
    return {"structural_tag": json.dumps({"type": "structural_tag", "format": format})}
