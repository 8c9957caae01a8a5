"""Grammars in EBNF: choices as one, telling it from Lark, and what is certainly wrong with one."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
MAX_DEPTH = 256
_COMMENT = re.compile(r"(#|//).*$", re.MULTILINE)
#: A string, a class of characters, a comment, a name with or without `::=` behind it, a repetition, a bracket.
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<class>\[(?:[^\]\\\n]|\\.)*\])|(?P<comment>\#[^\n]*)"""
    r"""|(?P<rule>[A-Za-z_][\w.-]*)(?=\s*::=)|(?P<name>[A-Za-z_][\w.-]*)|(?P<open>\()|(?P<close>\))|(?P<stray>["\[])"""
)


def choice_grammar(choice: Iterable[str]) -> str:
    """The grammar of exactly these texts."""
    return "root ::= " + " | ".join(f'"{"".join(map(_escaped, text))}"' for text in choice)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\u{ord(char):04x}" if ord(char) < 0x20 or ord(char) == 0x7F else char


def is_lark(grammar: str) -> bool:
    """Whether a grammar is Lark's, as vLLM tells: no line has `::=`."""
    return "::=" not in _COMMENT.sub("", grammar)


def problem(grammar: str) -> str | None:
    """Why this cannot be a grammar in EBNF; None if it may be one."""
    rules: set[str] = set()
    names: set[str] = set()
    depth = 0
    for token in _TOKEN.finditer(grammar):
        if token.lastgroup == "stray":
            return f"the {token[0]} at character {token.start() + 1} is not closed"
        if token.lastgroup in ("open", "close"):
            depth += 1 if token.lastgroup == "open" else -1
            if depth < 0:
                return f"unexpected ) at character {token.start() + 1}"
            if depth > MAX_DEPTH:
                return f"more than {MAX_DEPTH} brackets are open at character {token.start() + 1}"
        elif token.lastgroup in ("rule", "name"):
            (rules if token.lastgroup == "rule" else names).add(token[0])
    if depth:
        return "a ( is not closed"
    if "root" not in rules:
        return "the rule root is not defined"
    # Macros have names of their own, and names of rules in their arguments.
    missing = sorted(name for name in names - rules if name.islower())
    if missing and "TagDispatch" not in names and "TokenTagDispatch" not in names:
        return f"the rule {missing[0]} is not defined"
    return None
