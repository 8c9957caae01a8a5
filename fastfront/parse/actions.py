"""What markers stand for: actions that tables name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastfront.parse.edges import Edge

if TYPE_CHECKING:
    from fastfront.parse.machine import Machine
    from fastfront.parse.tables import Action

#: What may become a function's name: no white space or brackets within.
_NAME = re.compile(r"""\s*["']?[^\s<>{}()\[\]"',;|]{0,256}["']?\s*""")
_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_BARE = re.compile(r"""^\s*["']?([^"'>]*?)["']?\s*/?\s*$""")


def may_be_name(text: str) -> bool:
    """Whether held text is, or may still become, a function's name with white space or quotes around it."""
    return _NAME.fullmatch(text) is not None


def may_be_attributes(text: str) -> bool:
    """Whether held text may be a tag's attributes."""
    return len(text) < 1024 and "<" not in text


def bare(text: str) -> str:
    """A name with or without quotes."""
    match = _BARE.match(text)
    return match[1].strip() if match is not None else text.strip()


def attributes(text: str) -> dict[str, str]:
    """The attributes of a tag, with XML's entities for quotes and ampersands resolved."""
    found = {}
    for match in _ATTRIBUTE.finditer(text):
        value = match[2] if match[2] is not None else match[3] if match[3] is not None else match[4]
        found[match[1]] = value.replace("&quot;", '"').replace("&amp;", "&")
    return found


def take_name(machine: Machine, held: str) -> str | None:
    """The held text is the name of a call; without one there is no call."""
    return begin(machine, bare(held))


def begin(machine: Machine, name: str, call_id: str | None = None) -> str | None:
    """A call of `name` is about to begin."""
    if not name:
        return machine.give_back()
    machine.pend(name, call_id)
    machine.writer.begin(name)
    return None


def end_call(machine: Machine, held: str) -> None:
    """The call is whole."""
    machine.end_call()


def close_call(machine: Machine, held: str) -> None:
    """The call is whole, and so are the arguments that were written for it."""
    machine.writer.close()


def end_value(machine: Machine, held: str) -> None:
    """The value is whole."""
    machine.writer.end_value()


def end_value_and_call(machine: Machine, held: str) -> None:
    """The value is whole, and with it the call."""
    machine.writer.end_value()
    machine.writer.close()


def end_wrapper(machine: Machine, held: str) -> None:
    """The tag around calls ends: white space before it is markup."""
    machine.drop_blank()


def no_call(machine: Machine, held: str) -> str:
    """There was no call after all."""
    return machine.give_back()


def name_and_end(machine: Machine, held: str) -> str | None:
    """The held text is the name of a call without arguments."""
    to = take_name(machine, held)
    if to is None:
        machine.end_call()
    return to


def open_key(
    parse: Callable[[str], tuple[str, str | None]], lead: str = "", trail: str = "", once: bool = False
) -> Action:
    """The held text says the key of a value, and perhaps its type; `lead` and `trail` are markup around the value."""

    def act(machine: Machine, held: str) -> None:
        key, kind = parse(held)
        machine.writer.key(key, Edge(lead, trail, once), kind)

    return act


def plain_key(held: str) -> tuple[str, str | None]:
    """A key alone."""
    return bare(held), None
