"""minijinja beside jinja2: it renders what it was shown to render alike, several times faster.

Three gates, so that its text is jinja2's. A template is considered only when it uses nothing but constructs on the
lists below (tests compare each over all characters and kinds of values). It must give the same text for probe
conversations: where plain ones differ jinja2 renders all; other kinds (tools, tool calls, ...) and each variable that a
request may give (chat_template_kwargs) count one by one. And a request is rendered so only when it is of proved kinds,
and holds no character that the two trim differently. Where minijinja raises, jinja2 renders, so errors are jinja2's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import minijinja
import msgspec
from jinja2 import nodes
from msgspec.structs import asdict

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt import probes
from fastfront.prompt.template import GLOBALS, ChatTemplate, new_environment, tojson

log = logging.getLogger(__name__)

FILTERS = frozenset(
    (
        "tojson", "trim", "length", "count", "string", "list", "first", "last", "default", "d", "join", "replace",
        "items", "map", "select", "reject", "selectattr", "rejectattr", "reverse", "safe",
    )
)  # fmt: skip
TESTS = frozenset(
    (
        "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float",
        "boolean", "true", "false", "eq", "equalto", "==", "ne", "!=", "in",
    )
)  # fmt: skip
METHODS = frozenset(
    (
        "strip", "lstrip", "rstrip", "split", "startswith", "endswith", "replace", "find", "items", "keys", "values",
        "get",
    )
)  # fmt: skip
#: Alike as long as all text is ASCII: the two know different versions of Unicode.
CASES = frozenset(("upper", "lower", "capitalize"))
FUNCTIONS = frozenset(("namespace", "range", *GLOBALS))
_REFUSED_NODES = (
    nodes.CallBlock, nodes.FilterBlock, nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block,
    nodes.EvalContextModifier, nodes.Div, nodes.FloorDiv, nodes.Pow,
)  # fmt: skip
#: White space for Python alone.
_SEPARATORS = re.compile("[\x1c-\x1f]")
#: The same in JSON, with their neighbours; `in` would take twice as long.
_CONTROL = re.compile(rb"\\u001").search
_ODD_ESCAPE = re.compile(r"\\(?:[^nrt'\"\\u]|u(?![0-9a-fA-F]{4}))")
#: Bytes of JSON that minijinja renders at most (some 5 ms), and what a message costs besides.
MOST, MESSAGE_WEIGHT = 1024 * 1024, 128
#: Variables that every rendering has.
_ALWAYS = ("messages", "tools", "documents", "add_generation_prompt")
_encode = msgspec.json.Encoder().encode


class FastTemplate:
    """minijinja's rendering of one template. Calling it gives None for what is not proved."""

    def __init__(self, template: ChatTemplate, special_tokens: Mapping[str, str]) -> None:
        self._environment = minijinja.Environment(
            # jinja2 reads each kind of line end as \n.
            templates={"chat": re.sub(r"\r\n?", "\n", template.source)},
            filters={"tojson": tojson},
            globals={**special_tokens, **GLOBALS},
            trim_blocks=True,
            lstrip_blocks=True,
            debug=False,
            auto_escape_callback=lambda name: False,
        )
        self._ascii_only = any(_called(node) in CASES for node in template.tree.find_all((nodes.Filter, nodes.Call)))
        self._words = frozenset(re.findall(r"[^\W\d]\w*", template.source)).difference(_ALWAYS)
        self._constants = dict(special_tokens)
        self.kinds: frozenset[str] = frozenset()
        self.given: frozenset[str] = frozenset()

    def __call__(self, variables: Mapping[str, Any]) -> str | None:
        """The text; None where jinja2 must render."""
        try:
            source = _encode(variables)
        except Exception:  # not plain JSON
            return None
        taken = self.take(variables)
        return None if taken is None else self.render(taken, variables["messages"], source)

    def take(self, variables: Mapping[str, Any]) -> dict[str, Any] | None:
        """Those that the template gets beside the messages; None where jinja2 must render whatever the messages are."""
        if not self._takes_kinds(_kinds_around(variables), (variables["tools"], variables["documents"])):
            return None
        taken = {name: variables[name] for name in _ALWAYS if name in variables and name != "messages"}
        for name, value in variables.items():
            if name in _ALWAYS or (name in self._constants and self._constants[name] is value):
                continue
            if name in self.given and self._knows(value):
                taken[name] = value
            elif name in self._words:
                return None
        return taken

    def render(self, taken: Mapping[str, Any], messages: list[Any], source: bytes) -> str | None:
        """The text of a conversation; None where jinja2 must render. `source` is JSON that holds the client's part."""
        # U+001C..1F are white space for Python only. JSON writes them, and their neighbours, so.
        if b"\\" in source and (_CONTROL(source) or (self._ascii_only and b"\\u" in source)):
            return None
        if self._ascii_only and not source.isascii():
            return None
        # It keeps all other threads waiting, jinja2 does not.
        if len(source) + MESSAGE_WEIGHT * len(messages) > MOST:
            return None
        if not self._takes_kinds(_kinds_among(messages), messages):
            return None
        try:
            return self._render({**taken, "messages": messages})
        except Exception:  # its own, or what a filter raised
            return None

    def _takes_kinds(self, kinds: set[str], values: Sequence[Any]) -> bool:
        return kinds <= self.kinds and ("floats" in self.kinds or not _has_float(values))

    def _knows(self, value: Any) -> bool:
        """Whether a variable's value is like those that were tried."""
        if isinstance(value, str):
            return not _SEPARATORS.search(value) and (value.isascii() or not self._ascii_only)
        return isinstance(value, int) and not _has_float(value)

    def _render(self, variables: Mapping[str, Any]) -> str:
        text: str = self._environment.render_template("chat", **variables)
        return text

    def prove(self, template: ChatTemplate, prepare: Callable[[ChatInput], Mapping[str, Any]]) -> str | None:
        """Fills `kinds` and `given` from probes; the reason why there is nothing to fill, where there is none."""
        refused: set[str] = set()
        seen: set[str] = set()
        rich: list[Mapping[str, Any]] = []
        for chat in sorted(probes.chats(), key=lambda chat: len(kinds_of(asdict(chat)))):
            try:
                variables = prepare(chat)
                kinds = kinds_of(variables)
                if kinds & refused:
                    continue
                why = self._difference(template, variables)
            except RequestError:
                continue
            if why is None:
                seen |= kinds
                rich.append(variables)
            elif not kinds:
                return why
            else:
                # Fewer kinds come first, so what was seen is not to blame; floats are where the two differ most.
                refused |= {"floats"} if "floats" in kinds else (kinds - seen or kinds)
        if not rich:
            return "it refuses all probes"
        self.kinds = frozenset(seen - refused)
        rich = [variables for variables in rich if self.kinds.issuperset(kinds_of(variables))][:: len(rich) // 12 or 1]
        self.given = frozenset(
            name
            for name in template.variables & self._words - GLOBALS.keys() - self._constants.keys()
            if all(self._takes(template, {**v, name: value}) for v in rich for value in probes.GIVEN)
        )
        return None

    def _takes(self, template: ChatTemplate, variables: Mapping[str, Any]) -> bool:
        try:
            return self._difference(template, variables) is None
        except RequestError:
            return True

    def _difference(self, template: ChatTemplate, variables: Mapping[str, Any]) -> str | None:
        """How minijinja's rendering differs, None if it does not. Raises jinja2's RequestError where both refuse."""
        variables = {"strftime_now": _fixed_time, **variables}
        want: str | None = None
        refusal: RequestError | None = None
        try:
            want = template.render_exactly(variables)
        except RequestError as error:
            refusal = error
        try:
            text = self._render({n: v for n, v in variables.items() if n not in self._constants})
        except Exception as error:
            if refusal is not None:
                raise refusal from error
            return f"minijinja: {error}"
        return None if text == want else "minijinja writes other text"


def _fixed_time(format: str) -> str:
    return f"[{format}]"


def kinds_of(variables: Mapping[str, Any]) -> set[str]:
    """What a conversation has beside system, user and assistant messages with content."""
    kinds = _kinds_around(variables) | _kinds_among(variables["messages"])
    if _has_float((variables["tools"], variables["documents"], variables["messages"])):
        kinds.add("floats")
    return kinds


def _kinds_around(variables: Mapping[str, Any]) -> set[str]:
    return {name for name in ("tools", "documents") if variables[name] is not None}


def _kinds_among(messages: Sequence[Any]) -> set[str]:
    kinds = set()
    for message in messages:
        role = message["role"]
        if role != "user" and role != "assistant" and role != "system":
            kinds.add("tool calls" if role == "tool" else "other roles")
        if len(message) > 2:
            kinds.update(_KEYS.get(key, "") for key in message)
    if kinds:
        kinds.discard("")
    return kinds


def _has_float(value: Any) -> bool:
    """Whether a float is inside, or an integer that minijinja makes one of."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return isinstance(value, float) or (isinstance(value, int) and not -(2**63) <= value < 2**63)
    return any(_has_float(item) for item in value)


_KEYS = {
    "tool_calls": "tool calls", "tool_call_id": "tool calls",
    "reasoning": "reasoning", "reasoning_content": "reasoning",
    "name": "names", "task": "names", "tools": "other roles",
}  # fmt: skip


def unproved(template: ChatTemplate) -> str | None:
    """The first construct of a template that is not known to be alike in both, None when all are."""
    for line, kind, token in new_environment().lex(template.source):
        if kind == "string" and _ODD_ESCAPE.search(token):
            return f"an escape in {token[:40]} (line {line})"
    macros = {macro.name for macro in template.tree.find_all(nodes.Macro)}
    called = set()
    for node in template.tree.find_all(nodes.Node):
        name = _called(node)
        known = True
        if isinstance(node, nodes.Filter):
            known = name in FILTERS or name in CASES
        elif isinstance(node, nodes.Test):
            known = name in TESTS
        elif isinstance(node, nodes.Call):
            called.add(id(node.node))
            if isinstance(node.node, nodes.Getattr):
                loop = isinstance(node.node.node, nodes.Name) and node.node.node.name == "loop"
                known = name in METHODS or name in CASES or loop
            else:
                known = name in FUNCTIONS or name in macros
        elif isinstance(node, _REFUSED_NODES) or (isinstance(node, nodes.Const) and isinstance(node.value, float)):
            return f"{type(node).__name__} (line {node.lineno})"
        elif isinstance(node, nodes.Output):
            known = not any(isinstance(part, nodes.List | nodes.Dict | nodes.Tuple) for part in node.nodes)
            name = "a printed literal"
        if not known:
            return f"{name or type(node).__name__} (line {node.lineno})"
    for node in template.tree.find_all(nodes.Getattr):
        if id(node) not in called and (node.attr.startswith("_") or hasattr(dict, node.attr)):
            return f".{node.attr} (line {node.lineno})"
    return None


def _called(node: nodes.Node) -> str | None:
    """The name of the filter, test, method or function that a node applies."""
    if isinstance(node, nodes.Filter | nodes.Test):
        return node.name
    if isinstance(node, nodes.Call):
        if isinstance(node.node, nodes.Getattr):
            return node.node.attr
        if isinstance(node.node, nodes.Name):
            return node.node.name
    return None


def speed_up(
    template: ChatTemplate,
    name: str,
    special_tokens: Mapping[str, str],
    prepare: Callable[[ChatInput], Mapping[str, Any]],
) -> None:
    """Gives a template its second renderer if there is a proof for one, and logs what renders what."""
    why = unproved(template)
    if why is not None:
        why = f"uses {why}"
    else:
        fast = FastTemplate(template, special_tokens)
        why = fast.prove(template, prepare)
    if why is not None:
        log.info("chat template %r: jinja2 renders (%s)", name, why)
        return
    template.fast = fast
    rest = ", ".join(sorted(probes.KINDS - fast.kinds))
    log.info("chat template %r: minijinja renders%s", name, f", jinja2 where there are {rest}" if rest else "")
