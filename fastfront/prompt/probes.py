"""Conversations that a chat template's two renderers are compared on, with what they may print differently inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

from fastfront.flow import ChatInput

#: What fast_template.kinds_of may find.
KINDS = frozenset(("tools", "documents", "tool calls", "reasoning", "names", "other roles", "floats"))
#: Values for each variable that a request may set.
GIVEN: tuple[bool | str | int, ...] = (True, False, "", "low", "é \n<x>", 0, 1, 7)

_TEXTS = (
    "Hi",
    "",
    " \n\t white space \u00a0\u2003\u3000\n\n",
    "Zürich 世界 🫠 e\u0301 \u00ad\u200b\ufeff\ue000\x7f\x01 ßǆİ",
    "<b>&amp;'\"\\ {{ x }} {% if %} {# #} \\n \r\n x\ry",
    "<think>\n\nwell </think>\n\nso </think> it is <|im_end|> <tool_response>x</tool_response>",
    "<tool_response>\nx\n</tool_response>",
)
_NASTY: dict[str, Any] = {
    "text": "é<&>'\"\n\\ \u2028",
    "empty": "",
    "none": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "minus": -7,
    "large": 2**53 + 1,
    "list": [1, "a", None, [], {}, [True, "ü'\""]],
    "items": {"keys": 1, "get": {"values": []}, "é": "x"},
    "nothing": {},
    "numbers": [1, 2, 3],
}
_FLOATS = {"two": 2.0, "half": 0.5, "huge": 1e22, "tiny": 1e-7, "list": [2.0], "long": 10**60}
_CALLS: list[dict[str, Any]] = [{}, {"city": "Zürich", "days": 3}, _NASTY, _FLOATS]

_WITH_FLOATS: dict[str, Any] = {
    "name": "floats",
    "parameters": {"properties": {"x": {"minimum": 0.5, "maximum": 2.0, "default": _FLOATS}}},
}
_FUNCTIONS: list[dict[str, Any]] = [
    {"name": "bare"},
    {"name": "f", "description": "It's <b>good</b> & é\n\n", "parameters": {"type": "object", "properties": {}}},
    {
        "name": "deep",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A town", "enum": ["Zürich", "<b>", None, 1, True]},
                "items": {"type": ["integer", "null"], "default": None, "minimum": 0, "title": "t"},
                "keys": {"type": "array", "items": {"type": "object", "properties": {"x": {"const": _NASTY}}}},
                "many": {"anyOf": [{"type": "number"}, {"$ref": "#/x"}], "examples": [_NASTY], "nullable": True},
                "plain": {},
            },
            "required": ["city", "items"],
            "additionalProperties": False,
            "$defs": {"x": {"type": "object"}},
        },
        "strict": True,
    },
    _WITH_FLOATS,
    {"name": "nulls", "description": None, "parameters": {"type": "object", "properties": None, "required": None}},
]
_TOOLS: list[dict[str, Any]] = [{"type": "function", "function": function} for function in _FUNCTIONS]
_DOCUMENTS: list[dict[str, Any]] = [{"title": "A\n", "text": "b <é>"}, {"doc_id": 1, "content": ["x", None, 2]}]

Message = dict[str, Any]


def chats() -> Iterator[ChatInput]:
    """All probes; those that a format refuses are left out by the caller."""
    histories = list(_histories())
    for messages in histories:
        for generate in (True, False):
            yield ChatInput(messages, add_generation_prompt=generate)
        if messages[-1]["role"] == "assistant":
            yield ChatInput(messages, add_generation_prompt=False, continue_final_message=True)
    # No tools at all, one, some with all that schemas have, and each of them alone.
    without_floats = [tool for tool in _TOOLS if tool["function"] is not _WITH_FLOATS]
    choices = [[], _TOOLS[1:3], without_floats, _TOOLS, *([tool] for tool in _TOOLS)]
    for messages, tools in product(histories[:: max(1, len(histories) // 24)], choices):
        yield ChatInput(messages, tools=tools)
    for messages in (*histories[:6], histories[-1]):
        yield ChatInput(messages, documents=_DOCUMENTS)
        yield ChatInput(messages, documents=[])
        yield ChatInput(messages, documents=[*_DOCUMENTS, {"text": "x", "score": 2.0, "small": 1e-7}])
        yield ChatInput(messages, documents=_DOCUMENTS, tools=without_floats)


def _histories() -> Iterator[list[Message]]:
    system: Message = {"role": "system", "content": "Be brief."}
    user: Message = {"role": "user", "content": "Hi"}
    for text in _TEXTS:
        yield [{"role": "user", "content": text}]
        yield [{"role": "system", "content": text}, user]
        yield [user, {"role": "assistant", "content": text}]
        yield [system, user, {"role": "assistant", "content": text}, {"role": "user", "content": text}]
    turns: list[Message] = []
    for i in range(4):
        answer = f"<think>{i}</think>\n\nA {i} "
        turns += [{"role": "user", "content": f"{i}"}, {"role": "assistant", "content": answer}]
    parts = [{"type": "text", "text": text} for text in (*_TEXTS[:3], "end")]
    yield from (turns, [system, *turns], [*turns, user], [system, *turns, user], [system], [system, system, user])
    yield from ([user, user], [user, system, user], [{"role": "assistant", "content": "x"}], [*turns, system])
    yield from ([{"role": "user", "content": parts}], [{"role": "system", "content": parts}, *turns, user])
    yield from ([{"role": "user", "content": []}], [system, {"role": "user", "content": None}])
    for text in _TEXTS:
        for reasoning in ("", "\nI think.\n", text):
            yield [user, {"role": "assistant", "content": text, "reasoning": reasoning}]
            yield [user, {"role": "assistant", "content": text, "reasoning": reasoning}, user, turns[1], user]
        calls = {"role": "assistant", "content": text, "tool_calls": [_call(0, _CALLS[1])]}
        yield from ([user, calls, _answer(0, text)], [system, user, calls, _answer(0, text), turns[1], user])
    for arguments in _CALLS:
        called = {"role": "assistant", "content": None, "tool_calls": [_call(0, arguments)]}
        both = {"role": "assistant", "tool_calls": [_call(0, arguments), _call(1, _CALLS[1])], "reasoning": "r\n"}
        yield from ([user, called], [user, called, _answer(0, "15")], [user, called, _answer(0, "15"), turns[1], user])
        yield [system, user, both, _answer(0, '{"a": 1.5}'), _answer(1, ""), turns[1], user, called, _answer(0, "x")]
        yield [user, both, _answer(0, "a"), _answer(1, "b")]
        yield [{**user, "name": "bob"}, both, {**_answer(0, "a"), "name": "f"}, user]
    odd = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "extra": 1}, "index": 0}]}
    yield from ([user, odd], [user, odd, {"role": "tool", "content": parts}], [{"role": "tool", "content": "x"}])
    yield from ([{**user, "name": "bob"}, {**turns[1], "name": "é"}], [{**user, "task": "t"}])
    yield [system, *turns, {**user, "name": ""}]
    developer: Message = {"role": "developer", "content": " dev\n", "tools": _TOOLS[:2]}
    yield from ([developer, user], [{"role": "developer", "content": "d"}, *turns], [system, user, developer, user])
    yield from ([user, {"role": "wizard", "content": "w"}], [{"role": "wizard", "content": ""}, *turns, user])


def _call(number: int, arguments: Any) -> Message:
    function = {"name": f"f_{number}", "arguments": json.dumps(arguments)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def _answer(number: int, text: str) -> Message:
    return {"role": "tool", "content": text, "tool_call_id": f"call_{number}"}
