"""Formats that write a call's name and then its arguments, as JSON, between markers of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from fastfront.parse.actions import (
    attributes,
    bare,
    begin,
    close_call,
    end_call,
    end_value,
    end_wrapper,
    may_be_attributes,
    may_be_name,
    no_call,
    open_key,
    take_name,
)
from fastfront.parse.braces import BracedArguments
from fastfront.parse.machine import Machine
from fastfront.parse.tables import CONTENT, Do, Field, State, Table, strays

_KIMI_HEADER = re.compile(r"\s*(?:functions\.)?([^\s:]+)(?::(\d+))?\s*")


def sections(
    wrap: str,
    unwrap: str,
    call: str,
    named: str,
    end: str,
    take: Callable[[Machine, str], str | None] = take_name,
    valid: Callable[[str], bool] = may_be_name,
    kind: str = "",
    trim: str = "",
) -> Table:
    """`<wrap> (<call> KIND <kind> NAME <named> ARGUMENTS <end>)* <unwrap>`; without `kind` there is no KIND."""
    first = "kind" if kind else "name"
    wraps = {wrap: Do("wrapped", opens=True)}
    calls = {call: Do(first, opens=True)}
    states = {
        CONTENT: State(Field.CONTENT, {**wraps, **calls}),
        "wrapped": State(Field.MARKUP, {call: Do(first), unwrap: Do(CONTENT, no_call)}),
        "name": State(Field.HELD, {named: Do("arguments", take), end: Do("between", _whole(take))}, valid=valid),
        "arguments": State(Field.ARGUMENTS, {end: Do("between", end_call), unwrap: Do(CONTENT, end_call)}, trim=trim),
        "between": State(Field.CONTENT, {**wraps, **calls, unwrap: Do(CONTENT, end_wrapper, closes=True)}),
    }
    if kind:
        states["kind"] = State(Field.HELD, {kind: Do("name", _forget)}, valid=may_be_name)
    return Table(states)


def _forget(machine: Machine, held: str) -> None:
    """The held text means nothing."""


def _whole(take: Callable[[Machine, str], str | None]) -> Callable[[Machine, str], str | None]:
    def act(machine: Machine, held: str) -> str | None:
        to = take(machine, held)
        if to is None:
            machine.end_call()
        return to

    return act


def deepseek_v3() -> Table:
    """V3 and R1: the JSON lies in a fence."""
    return sections(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "```json",
        "<｜tool▁call▁end｜>",
        kind="<｜tool▁sep｜>",
        trim="`",
    )


def deepseek_v31() -> Table:
    """V3.1: no fence."""
    return sections(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
    )


def kimi_k2() -> Table:
    """`functions.NAME:INDEX`, the call's id, stands before the arguments."""
    return sections(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        take=_kimi_name,
    )


def _kimi_name(machine: Machine, held: str) -> str | None:
    match = _KIMI_HEADER.fullmatch(held)
    if match is None:
        return begin(machine, bare(held))
    return begin(machine, match[1], held.strip() if match[2] is not None else None)


def plamo3() -> Table:
    """The name and the arguments each between tags."""
    tag = "<|plamo:{}:plamo|>".format
    silent = strays(("<|plamo:tag|>",))
    call, end = tag("begin_tool_request"), tag("end_tool_request")
    wraps = {tag("begin_tool_requests"): Do("wrapped", opens=True)}
    unwrap = tag("end_tool_requests")
    states = {
        CONTENT: State(Field.CONTENT, {**wraps, **silent}),
        "wrapped": State(Field.MARKUP, {call: Do("call"), unwrap: Do(CONTENT, no_call)}),
        "call": State(Field.MARKUP, {tag("begin_tool_name"): Do("name"), end: Do("between", no_call)}),
        "name": State(Field.HELD, {tag("end_tool_name"): Do("named", take_name)}, valid=may_be_name),
        "named": State(Field.DROPPED, {"<|plamo:msg|>": Do("arguments"), end: Do("between", end_call)}),
        "arguments": State(Field.ARGUMENTS, {tag("end_tool_arguments"): Do("told"), end: Do("between", end_call)}),
        "told": State(Field.MARKUP, {end: Do("between", end_call), unwrap: Do(CONTENT, end_call)}),
        "between": State(
            Field.CONTENT,
            {call: Do("call", opens=True), unwrap: Do(CONTENT, end_wrapper, closes=True), **wraps, **silent},
        ),
    }
    return Table(states)


def step3() -> Table:
    """A call's type, and then tags with its name and parameters."""
    wraps = {"<｜tool_calls_begin｜>": Do("wrapped", opens=True)}
    calls = {"<｜tool_call_begin｜>": Do("kind", opens=True)}
    end, unwrap = "<｜tool_call_end｜>", "<｜tool_calls_end｜>"
    key = "<steptml:parameter name="
    states = {
        CONTENT: State(Field.CONTENT, {**wraps, **calls}),
        "wrapped": State(Field.MARKUP, {"<｜tool_call_begin｜>": Do("kind"), unwrap: Do(CONTENT, no_call)}),
        "kind": State(Field.HELD, {"<｜tool_sep｜>": Do("call", _forget)}, valid=may_be_name),
        "call": State(Field.MARKUP, {"<steptml:invoke name=": Do("name"), end: Do("between", no_call)}),
        "name": State(Field.HELD, {">": Do("inside", take_name)}, valid=may_be_name),
        "inside": State(
            Field.MARKUP,
            {
                key: Do("key"),
                "</steptml:invoke>": Do("closed", close_call),
                end: Do("between", close_call),
                unwrap: Do(CONTENT, close_call),
            },
        ),
        "key": State(Field.HELD, {">": Do("value", open_key(lambda held: (bare(held), None), " \t\r\n", " \t\r\n"))}),
        "value": State(Field.VALUE, {"</steptml:parameter>": Do("inside", end_value), key: Do("key", end_value)}),
        "closed": State(Field.MARKUP, {end: Do("between"), unwrap: Do(CONTENT)}),
        "between": State(Field.CONTENT, {**wraps, **calls, unwrap: Do(CONTENT, end_wrapper, closes=True)}),
    }
    return Table(states)


def kimi_k3() -> Table:
    """Elements `<|open|>call tool="NAME" index="1"<|sep|> ... <|close|>call<|sep|>`, with one for each argument."""
    close = "<|close|>{}<|sep|>".format
    wraps = {"<|open|>tools<|sep|>": Do("wrapped", opens=True)}
    calls = {"<|open|>call ": Do("name", opens=True)}
    silent = strays(K3_CONTENT)
    key = "<|open|>argument "
    states = {
        CONTENT: State(Field.CONTENT, {**wraps, **silent}),
        "wrapped": State(Field.MARKUP, {"<|open|>call ": Do("name"), close("tools"): Do(CONTENT, no_call)}),
        "name": State(Field.HELD, {"<|sep|>": Do("inside", _k3_name)}, valid=may_be_attributes),
        "inside": State(
            Field.MARKUP,
            {
                key: Do("key"),
                close("call"): Do("between", close_call),
                close("tools"): Do(CONTENT, close_call),
            },
        ),
        "key": State(Field.HELD, {"<|sep|>": Do("value", open_key(_k3_key))}),
        "value": State(Field.VALUE, {close("argument"): Do("inside", end_value)}),
        "between": State(
            Field.CONTENT, {**calls, **wraps, **silent, close("tools"): Do(CONTENT, end_wrapper, closes=True)}
        ),
    }
    return Table(states)


#: Around an answer, without a meaning of their own.
K3_CONTENT = ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>")


def _k3_name(machine: Machine, held: str) -> str | None:
    return begin(machine, attributes(held).get("tool", ""))


def _k3_key(held: str) -> tuple[str, str | None]:
    said = attributes(held)
    kind = said.get("type", "string")
    return said.get("key", ""), "string" if kind == "string" else "json"


def braced(opening: str, closing: str, mark: str, guess: bool = False, absorbed: Sequence[str] = ()) -> Table:
    """Gemma's: `<opening>call:NAME{k:<mark>text<mark>,n:3}<closing>`."""
    opens = {opening: Do("name", opens=True)}
    silent = strays(absorbed)
    states = {
        CONTENT: State(Field.CONTENT, {**opens, **silent, closing: Do(CONTENT)}),
        "name": State(
            Field.HELD,
            {
                "{": Do("arguments", _gemma_name, again=True),
                "(": Do("arguments", _gemma_name, again=True),
                closing: Do(CONTENT, _whole(_gemma_name)),
            },
            valid=_may_be_gemma_name,
        ),
        "arguments": State(
            Field.HELD,
            {closing: Do(CONTENT, _end_braces)},
            reader=partial(BracedArguments, mark=mark, guess=guess),
            done="tail",
        ),
        "tail": State(Field.CONTENT, {**opens, **silent, closing: Do(CONTENT, end_wrapper, closes=True)}),
    }
    return Table(states)


def _may_be_gemma_name(text: str) -> bool:
    return may_be_name(text.strip().removeprefix("call").removeprefix(":"))


def _gemma_name(machine: Machine, held: str) -> str | None:
    return begin(machine, bare(held.strip().removeprefix("call").removeprefix(":")))


def _end_braces(machine: Machine, held: str) -> None:
    if isinstance(machine.reader, BracedArguments):
        machine.reader.end()
