"""Tells from a chat template's syntax tree whether it takes message content as a string or as a list of parts.

A template that loops over a message's content wants parts (`openai`); any other wants one string. Content is followed
through the ways templates reach it: `messages` renamed or sliced, loops over it, macros that are handed the content,
and a loop over a variable that is called `content`.
"""

from __future__ import annotations

from typing import Literal

from jinja2 import nodes

ContentFormat = Literal["string", "openai"]


def detect_content_format(tree: nodes.Template) -> ContentFormat:
    """The content format of a parsed template."""
    conversations = _aliases(tree, "messages")
    loops = [(loop, loop.target.name) for loop in tree.find_all(nodes.For) if isinstance(loop.target, nodes.Name)]
    messages = {name for loop, name in loops if any(_is(loop.iter, c) for c in conversations)}
    in_macros: set[int] = set()
    for macro in tree.find_all(nodes.Macro):
        handed = _content_parameters(tree, macro, messages)
        for loop in macro.find_all(nodes.For):
            in_macros.add(id(loop))
            if isinstance(loop.iter, nodes.Name) and loop.iter.name in handed:
                return "openai"
    for loop, _ in loops:
        if any(_is(loop.iter, message, "content") for message in messages):
            return "openai"
        if id(loop) not in in_macros and isinstance(loop.iter, nodes.Name) and loop.iter.name == "content":
            return "openai"
    return "string"


def _aliases(tree: nodes.Template, name: str) -> set[str]:
    """Names that hold `name` or a filtered or sliced form of it, over any number of assignments."""
    known, waiting = {name}, [name]
    while waiting:
        current = waiting.pop()
        for assign in tree.find_all(nodes.Assign):
            target = assign.target
            if isinstance(target, nodes.Name) and target.name not in known and _is(assign.node, current):
                known.add(target.name)
                waiting.append(target.name)
    return known


def _content_parameters(tree: nodes.Template, macro: nodes.Macro, messages: set[str]) -> set[str]:
    """The macro's parameters that are handed a message's content somewhere."""
    names = [argument.name for argument in macro.args]
    handed: set[str] = set()
    for call in tree.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        given = [*zip(names, call.args, strict=False), *((pair.key, pair.value) for pair in call.kwargs)]
        for name, value in given:
            if name in names and any(_is(value, message, "content") for message in messages):
                handed.add(name)
    return handed


def _is(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Whether `node` reads the variable `name`, or its item `key`, possibly filtered, tested or sliced."""
    while True:
        if not isinstance(node, nodes.Filter | nodes.Test | nodes.Getitem):
            break
        if isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Slice):
            break
        node = node.node
    if key is not None:
        if isinstance(node, nodes.Getitem):
            if not (isinstance(node.arg, nodes.Const) and node.arg.value == key):
                return False
        elif not (isinstance(node, nodes.Getattr) and node.attr == key):
            return False
        node = node.node
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
