"""The parts of a structural tag, spelled with every key, as vLLM sends them to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Format = dict[str, Any]
#: What of calls is wanted: some may come, some must, or one of one function must.
Choice = Literal["auto", "required", "forced"]


class Call(NamedTuple):
    """A function that may be called; `strict`: its arguments are held to `parameters`, None where it has none."""

    name: str
    parameters: dict[str, Any] | None
    strict: bool

    @property
    def schema(self) -> dict[str, Any] | bool:
        """What arguments are held to; True is any JSON."""
        return self.parameters if self.strict and self.parameters is not None else True


def const(value: str) -> Format:
    """This text."""
    return {"type": "const_string", "value": value}


def schema(json_schema: dict[str, Any] | bool, style: str = "json") -> Format:
    """A value of a JSON schema, written as JSON or in one of xgrammar's XML styles."""
    return {
        "type": "json_schema",
        "json_schema": json_schema,
        "style": style,
        "any_order": False,
        "max_whitespace_cnt": None,
        "excludes": [],
    }


def any_text(excludes: Sequence[str] = ()) -> Format:
    """Text without these strings."""
    return {"type": "any_text", "excludes": list(excludes), "max_tokens": None, "max_chars": None}


def regex(pattern: str) -> Format:
    """Text that matches."""
    return {"type": "regex", "pattern": pattern}


def sequence(*elements: Format) -> Format:
    """One after the other."""
    return {"type": "sequence", "elements": list(elements)}


def either(elements: Sequence[Format]) -> Format:
    """One of several; one alone is itself."""
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def optional(content: Format) -> Format:
    """Once or not at all."""
    return {"type": "optional", "content": content}


def star(content: Format) -> Format:
    """Any number of times."""
    return {"type": "star", "content": content}


def plus(content: Format) -> Format:
    """At least once."""
    return {"type": "plus", "content": content}


def tag(begin: str, content: Format, end: str | list[str]) -> Format:
    """Content between two strings; of several ends any will do."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def triggered(
    trigger: str, tags: list[Format], *, excludes: Sequence[str] = (), at_least_one: bool = False, single: bool = False
) -> Format:
    """Free text in which `trigger` begins one of the tags."""
    return {
        "type": "triggered_tags",
        "triggers": [trigger],
        "tags": tags,
        "at_least_one": at_least_one,
        "stop_after_first": single,
        "excludes": list(excludes),
    }


def separated(tags: list[Format], separator: str = "", *, single: bool = False) -> Format:
    """Tags, at least one, and nothing else."""
    return {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": single,
    }
