"""Call formats whose arguments are one JSON value, or written by xgrammar in one of its XML styles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastfront.parse.grammar.formats import (
    Call,
    Choice,
    Format,
    const,
    regex,
    schema,
    separated,
    sequence,
    tag,
    triggered,
)

MakeTag = Callable[[Call], Format]
Make = Callable[[Sequence[Call], Choice, bool], Format]
THINK = ("<think>", "</think>")


def hermes(name: str) -> Make:
    """JSON objects between tags: with line ends around them, or without."""

    def build(calls: Sequence[Call], choice: Choice, single: bool) -> Format:
        start, end = f"<{name}>", f"</{name}>"
        tags = [
            tag(f'{start}{line_end}{{"name": "{call.name}", "arguments": ', schema(call.schema), f"}}{line_end}{end}")
            for call in calls
            for line_end in ("\n", "")
        ]
        if choice == "auto":
            return triggered(start, tags, single=single)
        return separated(tags, single=single or choice == "forced")

    return build


class Free(NamedTuple):
    """Calls without anything around all of them; `trigger` begins one, `excludes` must not be in the text between."""

    trigger: str
    call: MakeTag
    excludes: tuple[str, ...] = THINK

    def build(self, calls: Sequence[Call], choice: Choice, single: bool) -> Format:
        """The format."""
        if choice == "forced":
            return self.call(calls[0])
        tags = [self.call(call) for call in calls]
        must = choice == "required"
        return triggered(self.trigger, tags, excludes=self.excludes, at_least_one=must, single=single)


class Section(NamedTuple):
    """Calls in a section of their own, from `start` to `end`; `lead` is what must go before it where calls must come.

    Where one must come, its tag stands alone in the section (`lone`), or it is the first and last of a list.
    """

    start: str
    end: str
    call: MakeTag
    trigger: str
    lead: str = ""
    excludes: tuple[str, ...] = THINK
    lone: bool = True

    def build(self, calls: Sequence[Call], choice: Choice, single: bool) -> Format:
        """The format."""
        tags = [self.call(call) for call in calls]
        if choice == "auto":
            section = tag(self.start, separated(tags, single=single), self.end)
            return triggered(self.trigger, [section], excludes=self.excludes, single=single)
        inner = tags[0] if choice == "forced" and self.lone else separated(tags, single=single or choice == "forced")
        return sequence(const(self.lead + self.start), inner, const(self.end))


def deepseek(separator: str, before: str, after: str, end: str) -> Make:
    """DeepSeek's sections of V3 and V3.1; `before` and `after` go around a name, `end` behind its arguments."""
    section_start, section_end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"

    def build(calls: Sequence[Call], choice: Choice, single: bool) -> Format:
        if choice == "forced":
            begin = section_start + before + calls[0].name + after
            return tag(begin, schema(calls[0].schema), end + section_end)
        tags = [tag(before + call.name + after, schema(call.schema), end) for call in calls]
        section = tag(section_start, separated(tags, separator, single=single), section_end)
        return triggered(section_start, [section], excludes=THINK, single=single) if choice == "auto" else section

    return build


def dsml(section: str, space: str = "", style: str = "deepseek_xml") -> Make:
    """DeepSeek's XML from V3.2 on."""
    mark = f"｜DSML｜{space}"

    def call(call: Call) -> Format:
        return tag(f'<{mark}invoke name="{call.name}">\n', schema(call.schema, style), f"</{mark}invoke>\n")

    trigger = f"<{mark}{section}>"
    return Section(f"{trigger}\n", f"</{mark}{section}>", call, trigger, lead="\n\n").build


def kimi_k2() -> Make:
    """Numbered calls in a section."""
    start, begin = "<|tool_calls_section_begin|>", "<|tool_call_begin|>"

    def call(call: Call) -> Format:
        content = sequence(regex(r"\d+"), const("<|tool_call_argument_begin|>"), schema(call.schema))
        return tag(f"{begin}functions.{call.name}:", content, "<|tool_call_end|>")

    return Section(start, "<|tool_calls_section_end|>", call, start, excludes=(*THINK, begin)).build


def minimax() -> Make:
    """MiniMax's XML."""
    trigger = "<minimax:tool_call>"

    def call(call: Call) -> Format:
        return tag(f'<invoke name="{call.name}">\n', schema(call.schema, "minimax_xml"), "</invoke>\n")

    return Section(f"{trigger}\n", "</minimax:tool_call>", call, trigger, lead="\n", lone=False).build


def llama() -> Make:
    """A JSON object."""
    return Free(
        '{"name": ', lambda call: tag(f'{{"name": "{call.name}", "parameters": ', schema(call.schema), "}")
    ).build


def qwen() -> Make:
    """Qwen's XML, on lines of its own."""
    end = "\n</function>\n</tool_call>"
    return Free(
        "<tool_call>\n<function=",
        lambda call: tag(f"<tool_call>\n<function={call.name}>\n", schema(call.schema, "qwen_xml"), end),
    ).build


def mimo() -> Make:
    """Qwen's XML without line ends."""
    end = "</function></tool_call>"
    return Free(
        "<tool_call>",
        lambda call: tag(f"<tool_call><function={call.name}>", schema(call.schema, "qwen_xml"), end),
        (*THINK, "</tool_call>", "<function="),
    ).build


def plamo3(calls: Sequence[Call], choice: Choice, single: bool) -> Format:
    """PLaMo's requests, all in one."""

    def mark(word: str) -> str:
        return f"<|plamo:{word}:plamo|>"

    head = mark("begin_tool_request") + mark("begin_tool_name")
    middle = mark("end_tool_name") + mark("begin_tool_arguments") + "<|plamo:constrain|>json<|plamo:msg|>"
    end = mark("end_tool_arguments") + mark("end_tool_request")
    tags = [tag(head + call.name + middle, schema(call.schema), end) for call in calls]
    start, stop = mark("begin_tool_requests"), mark("end_tool_requests")
    section = tag(start, separated(tags, single=single or choice == "forced"), [stop, f"{stop}<|plamo:tag|>"])
    return triggered(start, [section], single=single) if choice == "auto" else section


def cohere(calls: Sequence[Call], choice: Choice, single: bool) -> Format:
    """An array of numbered objects between Cohere's marks."""
    start, end = "<|START_ACTION|>", "<|END_ACTION|>"
    kinds = []
    shared: dict[str, object] = {}
    for call in calls:
        parameters = dict(call.parameters or {}) if call.strict else {"type": "object"}
        shared |= {key: parameters.pop(key) for key in ("$defs", "definitions") if key in parameters}
        properties = {
            "tool_call_id": {"type": "string", "pattern": "^[0-9]+$"},
            "tool_name": {"type": "string", "const": call.name},
            "parameters": parameters,
        }
        kinds.append({"type": "object", "properties": properties, "required": list(properties)})
    most = {"maxItems": 1} if single or choice == "forced" else {}
    section = tag(start, schema({"type": "array", "minItems": 1, "items": {"anyOf": kinds}, **most, **shared}), end)
    return triggered(start, [section], single=single) if choice == "auto" else section
