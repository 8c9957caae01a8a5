"""Formats that handle reasoning, content and calls together: messages with a header, and typed blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fastfront.flow import Content, Reasoning
from fastfront.parse.actions import end_call, end_wrapper
from fastfront.parse.json_calls import JsonCalls
from fastfront.parse.machine import Machine
from fastfront.parse.tables import CONTENT, REASONING, Action, Do, Field, State, Table, strays
from fastfront.parse.tool.xml import invokes

_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_HEADER_START = re.compile(r"\s*(a(s(s(i(s(t(a(n(t)?)?)?)?)?)?)?)?)?\s*(t(o(=[^\s<]{0,256})?)?)?\s*")


#: Recipients that are no functions of the request: built-in tools, whose messages nobody sees, and people.
_NOT_FUNCTIONS = ("browser", "python", "container", "assistant", "user", "all")


def may_start_header(text: str) -> bool:
    """Whether a text may be the beginning of a message's header."""
    return _HEADER_START.fullmatch(text) is not None


def _may_be_header(text: str) -> bool:
    return len(text) < 512 and "\n\n" not in text


def _messages(ends: Sequence[str], parts: Sequence[str], route: Action) -> dict[str, State]:
    """Messages `<|start|>HEADER<|message|>TEXT<end>`; `parts` are markers within a header."""
    ending = {marker: Do(CONTENT) for marker in ends}
    headers = {"<|start|>": Do("header", opens=True), **{part: Do("header", opens=True, keep=True) for part in parts}}
    direct = {"<|message|>": Do(CONTENT, opens=True, act=route)}
    header = {
        **{part: Do("header", keep=True) for part in parts},
        "<|start|>": Do("header", _forget),
        "<|message|>": Do(CONTENT, route),
        **{marker: Do(CONTENT, _no_message) for marker in ends},
    }
    return {
        CONTENT: State(Field.CONTENT, {**ending, **headers, **direct}),
        REASONING: State(Field.REASONING, {**ending, **headers, **direct}),
        # An answer begins behind the role's name, in the middle of a header, unless the model forgets about headers.
        "start": State(Field.HELD, header, valid=may_start_header, opens=True),
        "header": State(Field.HELD, header, valid=_may_be_header, silent=True),
        "arguments": State(
            Field.ARGUMENTS,
            {
                **{marker: Do(CONTENT, end_call) for marker in ends},
                "<|start|>": Do("header", end_call, opens=True),
                **{part: Do("header", end_call, opens=True, keep=True) for part in parts},
            },
        ),
        "other": State(Field.DROPPED, {**ending, "<|start|>": Do("header", opens=True)}),
    }


def harmony() -> Table:
    """gpt-oss: channels analysis, commentary and final; a message to functions.NAME is a call."""
    states = _messages(("<|end|>", "<|call|>", "<|return|>"), ("<|channel|>", "<|constrain|>"), _harmony_route)
    return Table(states, entry="start", unified=True)


def _harmony_route(machine: Machine, held: str) -> str:
    channel = _CHANNEL.search(held)
    recipient = _RECIPIENT.search(held)
    machine.confirm()
    function = recipient[1].removeprefix("functions.") if recipient is not None else ""
    if function and recipient is not None and recipient[1].partition(".")[0] not in _NOT_FUNCTIONS:
        machine.start_call(function)
        return "arguments"
    if channel is not None and channel[1] == "analysis":
        return _to(machine, Reasoning)
    if not function or function in ("user", "all"):
        return _to(machine, Content)
    return "other"


def _to(machine: Machine, kind: type[Content | Reasoning]) -> str:
    """A message of this kind begins; two of them are kept apart by a line end."""
    if kind in machine.before:
        machine.before[kind] = "\n"
    return REASONING if kind is Reasoning else CONTENT


def _forget(machine: Machine, held: str) -> None:
    """What was held is markup."""


def _no_message(machine: Machine, held: str) -> None:
    machine.confirm()


def muse_glimmer() -> Table:
    """Messages to=self are reasoning, to=user content; those to others hold calls, written as tags."""
    ends = ("<|eom|>", "<|eot|>")
    states = _messages(ends, (), _muse_route)
    ending = {marker: Do(CONTENT) for marker in ends}
    calls = invokes(("<atem:function_calls>",), ("</atem:function_calls>",), "atem:").states
    renamed = {CONTENT: "tools"}
    for name, state in calls.items():
        on = {marker: do._replace(to=renamed.get(do.to, do.to)) for marker, do in state.on.items()}
        if name in (CONTENT, "between"):
            on.update(ending)
        elif name == "inside":
            on.update({marker: Do(CONTENT, _close) for marker in ends})
        states[renamed.get(name, name)] = state._replace(on=on, done="tools", failed="tools")
    return Table(states, entry="start", unified=True)


def _close(machine: Machine, held: str) -> None:
    machine.writer.close()


def _muse_route(machine: Machine, held: str) -> str:
    recipient = _RECIPIENT.search(held)
    machine.confirm()
    if recipient is None or recipient[1] == "user":
        return _to(machine, Content)
    return _to(machine, Reasoning) if recipient[1] == "self" else "tools"


def inkling() -> Table:
    """Blocks of a kind, `<|message_model|>NAME<|content_KIND|>TEXT<|end_message|>`."""
    ends = ("<|end_message|>", "<|content_model_end_sampling|>")
    texts = ("<|content_text|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>")
    kinds = {
        "<|message_model|>": Do("header", opens=True),
        **{marker: Do(CONTENT) for marker in texts},
        "<|content_thinking|>": Do(REASONING),
    }
    call = {"<|content_invoke_tool_json|>": Do("json", opens=True)}
    ending = strays(ends)
    header: dict[str, Do] = {
        "<|message_model|>": Do("header", _forget),
        **{marker: Do(CONTENT, _no_message) for marker in texts},
        "<|content_thinking|>": Do(REASONING, _no_message),
        "<|content_invoke_tool_json|>": Do("json", _no_message_but_call),
        **{marker: Do(CONTENT, _header_text) for marker in ends},
    }
    states = {
        CONTENT: State(Field.CONTENT, {**kinds, **call, **ending}),
        REASONING: State(Field.REASONING, {**kinds, **call, **ending}),
        "start": State(Field.HELD, header, valid=_may_be_inkling_name, opens=True),
        "header": State(Field.HELD, header, valid=_may_be_inkling_name, silent=True),
        "json": State(Field.HELD, reader=JsonCalls, done="tail", failed="tail"),
        "tail": State(
            Field.CONTENT,
            {**kinds, **call, **{marker: Do(CONTENT, end_wrapper, closes=True) for marker in ends}},
        ),
    }
    return Table(states, entry="start", unified=True)


def _may_be_inkling_name(text: str) -> bool:
    return len(text) < 128 and not any(char.isspace() for char in text.strip())


def _no_message_but_call(machine: Machine, held: str) -> None:
    """A name in front of a call is metadata; the call may still fail."""


def _header_text(machine: Machine, held: str) -> None:
    machine.confirm()
    machine.text(held)
