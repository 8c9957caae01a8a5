"""Formats whose calls are tags with a name and parameters, whose values are raw text that is rewritten as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from fastfront.parse.actions import (
    attributes,
    bare,
    begin,
    close_call,
    end_value,
    end_value_and_call,
    end_wrapper,
    may_be_attributes,
    may_be_name,
    name_and_end,
    no_call,
    open_key,
    plain_key,
    take_name,
)
from fastfront.parse.edges import WHITE
from fastfront.parse.json_calls import JsonCalls
from fastfront.parse.machine import Machine
from fastfront.parse.peek import Peek
from fastfront.parse.tables import CONTENT, Action, Do, Field, State, Table, strays

ParseKey = Callable[[str], tuple[str, str | None]]


class Tags(NamedTuple):
    """The markers of such a format.

    `wrap` and `unwrap` are around calls, `call` and `end` around one call, its name between `call` and `named`.
    `key` and `keyed` are around a parameter's key, `value_end` after its value. `trim`: which white space around a
    value is markup, with `once` at most one character at each end. `alone`: a call may come without the wrapper.
    """

    wrap: tuple[str, ...]
    unwrap: tuple[str, ...]
    call: tuple[str, ...]
    named: tuple[str, ...]
    end: tuple[str, ...]
    key: tuple[str, ...]
    keyed: tuple[str, ...]
    value_end: tuple[str, ...]
    parse_key: ParseKey = plain_key
    take_name: Action = take_name
    may_be_name: Callable[[str], bool] = may_be_name
    trim: str = ""
    once: bool = False
    alone: bool = True
    absorbed: tuple[str, ...] = ()


def tagged(tags: Tags) -> Table:
    """`<wrap> <call NAME named> (<key K keyed> V <value_end>)* <end> ... <unwrap>`."""
    calls = {marker: Do("name", opens=True) for marker in tags.call}
    next_calls = {marker: Do("name", close_call, opens=True) for marker in tags.call}
    wraps = {marker: Do("wrapped", opens=True) for marker in tags.wrap}
    keys = {marker: Do("key") for marker in tags.key}
    silent = strays(tags.absorbed)
    open_value = open_key(tags.parse_key, tags.trim, tags.trim, tags.once)
    states = {
        CONTENT: State(Field.CONTENT, {**wraps, **(calls if tags.alone or not tags.wrap else {}), **silent}),
        # Behind the wrapper's tag; from here on a call that fails is text of the state before it.
        "wrapped": State(
            Field.MARKUP,
            {
                **{marker: Do("name") for marker in tags.call},
                **{marker: Do(CONTENT, no_call) for marker in tags.unwrap},
            },
        ),
        "name": State(
            Field.HELD,
            {
                **{marker: Do("inside", tags.take_name) for marker in tags.named},
                **{marker: Do("between", _name_and_close(tags.take_name)) for marker in tags.end},
            },
            valid=tags.may_be_name,
        ),
        "inside": State(
            Field.MARKUP,
            {
                **keys,
                **{marker: Do("between", close_call) for marker in tags.end},
                **{marker: Do(CONTENT, close_call) for marker in tags.unwrap},
                **next_calls,
            },
            done="between",
        ),
        "key": State(Field.HELD, {marker: Do("value", open_value) for marker in tags.keyed}, valid=may_be_attributes),
        "value": State(
            Field.VALUE,
            {
                **{marker: Do("inside", end_value) for marker in tags.value_end},
                **{marker: Do("key", end_value) for marker in tags.key},
                **{marker: Do("between", end_value_and_call) for marker in tags.end},
            },
        ),
        "between": State(
            Field.CONTENT,
            {**calls, **wraps, **silent, **{marker: Do(CONTENT, end_wrapper, closes=True) for marker in tags.unwrap}},
        ),
    }
    return Table(states)


def _name_and_close(take: Action) -> Action:
    def act(machine: Machine, held: str) -> str | None:
        to = take(machine, held)
        if to is None:
            machine.writer.close()
        return to

    return act


def qwen_xml(wrap: str = "tool_call", trim: str = "\n", call: str = "<function=", end: str = "</function>") -> Table:
    """Qwen3-Coder's and those of its kind: <function=NAME> <parameter=KEY> VALUE </parameter> </function>."""
    return tagged(
        Tags(
            (f"<{wrap}>",),
            (f"</{wrap}>",),
            (call,),
            (">",),
            (end,),
            ("<parameter=",),
            (">",),
            ("</parameter>",),
            trim=trim,
            once=True,
        )
    )


def _invoke_name(machine: Machine, held: str) -> str | None:
    """`"NAME"`, or attributes with a name among them."""
    return begin(machine, attributes(held).get("name") or bare(held))


def _invoke_key(held: str) -> tuple[str, str | None]:
    """As with names; DeepSeek says with string="true" or "false" whether a value is a string."""
    said = attributes(held)
    kind = {"true": "string", "false": "json"}.get(said["string"]) if "string" in said else None
    if "name" not in said:
        return bare(held), kind
    return said["name"], kind


def _dsml_key(held: str) -> tuple[str, str | None]:
    key, kind = _invoke_key(held)
    return key, kind or "json"


def dsml(wrap: Sequence[str], blank: str = "") -> Table:
    """DeepSeek's from V3.2 on; `wrap` are the names of the tag around calls, `blank` goes before each tag's name."""
    mark = f"｜DSML｜{blank}"
    return tagged(
        Tags(
            tuple(f"<{mark}{name}>" for name in wrap),
            tuple(f"</{mark}{name}>" for name in wrap),
            (f"<{mark}invoke",),
            (">",),
            (f"</{mark}invoke>",),
            (f"<{mark}parameter",),
            (">",),
            (f"</{mark}parameter>",),
            parse_key=_dsml_key,
            take_name=_invoke_name,
            may_be_name=may_be_attributes,
        )
    )


def invokes(
    wrap: Sequence[str], unwrap: Sequence[str], prefix: str = "", trim: str = "", absorbed: Sequence[str] = ()
) -> Table:
    """<invoke name="NAME"> <parameter name="KEY">VALUE</parameter> </invoke>, as MiniMax and others write them."""
    return tagged(_invoke_tags(wrap, unwrap, prefix, trim, absorbed))


def _invoke_tags(
    wrap: Sequence[str], unwrap: Sequence[str], prefix: str = "", trim: str = "", absorbed: Sequence[str] = ()
) -> Tags:
    return Tags(
        tuple(wrap),
        tuple(unwrap),
        (f"<{prefix}invoke",),
        (">",),
        (f"</{prefix}invoke>",),
        (f"<{prefix}parameter",),
        (">",),
        (f"</{prefix}parameter>",),
        parse_key=_invoke_key,
        take_name=_invoke_name,
        may_be_name=may_be_attributes,
        trim=trim,
        absorbed=tuple(absorbed),
    )


def invokes_or_json(wrap: str) -> Table:
    """As `invokes`, with trimmed values; the wrapper may also hold a JSON object."""
    table = invokes((f"<{wrap}>",), (f"</{wrap}>",), trim=WHITE)
    states = dict(table.states)
    states["wrapped"] = State(Field.HELD, reader=partial(Peek, choices={"{": "json", "[": "json", "": "tags"}))
    states["json"] = State(Field.HELD, reader=JsonCalls, done="between", failed="between")
    states["tags"] = table.states["wrapped"]
    return Table(states)


def mini_params() -> Table:
    """MiniCPM5's: <function name="NAME"><param name="KEY">VALUE</param></function>, values also in CDATA."""
    tags = Tags(
        (),
        (),
        ("<function name=", "<functionname="),
        (">",),
        ("</function>",),
        ("<param name=", "<paramname="),
        (">",),
        ("</param>",),
        trim=WHITE,
    )
    states = dict(tagged(tags).states)
    value = states["value"]
    states["value"] = value._replace(on={**value.on, "<![CDATA[": Do("cdata")})
    states["cdata"] = State(Field.VALUE, {"]]>": Do("value")})
    return Table(states)


def key_values(
    wrap: Sequence[tuple[str, str]] = (),
    call: tuple[str, str] = ("<tool_call>", "</tool_call>"),
    prefix: str = "",
    suffix: str = "",
    named: Sequence[str] = (),
    json: bool = False,
) -> Table:
    """GLM's and those of its kind: <tool_call>NAME <arg_key>K</arg_key> <arg_value>V</arg_value> </tool_call>.

    `prefix` and `suffix` go around the tags' names. `named` may follow the name. `json`: a call may be a JSON object.
    """
    key, key_end, value, value_end, kind, kind_end = (
        f"<{slash}{prefix}{name}{suffix}>" for name in ("arg_key", "arg_value", "arg_type") for slash in ("", "/")
    )
    opening, closing = call

    def parse_key(held: str) -> tuple[str, str | None]:
        """The key, and the type if one was written, as in `array[string]`."""
        name, _, said = held.partition(key_end)
        said = said.partition("[")[0].strip().lower()
        return bare(name), said if said not in ("", "any") else None

    calls = {opening: Do("name", opens=True)}
    wraps = {begin: Do("wrapped", opens=True) for begin, _ in wrap}
    unwraps = {end: end for _, end in wrap}
    states = {
        CONTENT: State(Field.CONTENT, {**wraps, **calls}),
        "wrapped": State(Field.MARKUP, {opening: Do("name"), **{marker: Do(CONTENT, no_call) for marker in unwraps}}),
        "name": State(
            Field.HELD,
            {
                key: Do("key", take_name),
                closing: Do("between", name_and_end),
                **{marker: Do("inside", take_name) for marker in named},
            },
            valid=may_be_name,
        ),
        "inside": State(
            Field.MARKUP,
            {
                key: Do("key"),
                closing: Do("between", close_call),
                **{marker: Do(CONTENT, close_call) for marker in unwraps},
                opening: Do("name", close_call, opens=True),
            },
            done="between",
        ),
        "key": State(Field.HELD, {key_end: Do("keyed", keep=True)}),
        "keyed": State(
            Field.MARKUP,
            {
                value: Do("value", open_key(parse_key)),
                kind: Do("kind"),
                closing: Do("between", close_call),
            },
        ),
        "kind": State(Field.HELD, {kind_end: Do("keyed")}),
        "value": State(
            Field.VALUE,
            {
                value_end: Do("inside", end_value),
                key: Do("key", end_value),
                closing: Do("between", end_value_and_call),
            },
        ),
        "between": State(
            Field.CONTENT, {**calls, **wraps, **{marker: Do(CONTENT, end_wrapper, closes=True) for marker in unwraps}}
        ),
    }
    if json:
        states["tag"] = states["name"]
        states["name"] = State(Field.HELD, reader=partial(Peek, choices={"{": "json", "": "tag"}))
        states["json"] = State(Field.HELD, reader=JsonCalls, done="json_end", failed="json_end")
        states["json_end"] = State(Field.CONTENT, {closing: Do("between", end_wrapper, closes=True)})
    return Table(states)
