"""Every tool and reasoning parser by the name that vLLM's Python frontend has for it, and their pairing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from fastfront.errors import ConfigError
from fastfront.flow import Parser
from fastfront.parse import plugin
from fastfront.parse.auto import detect
from fastfront.parse.chain import Chain
from fastfront.parse.machine import Machine
from fastfront.parse.reasoning import REASONING, reasoning_state
from fastfront.parse.tables import Table, Think, join
from fastfront.parse.tool.channels import harmony, inkling, muse_glimmer
from fastfront.parse.tool.elements import elements
from fastfront.parse.tool.envelope import enveloped, mistral
from fastfront.parse.tool.plain import plain_arguments, plain_list
from fastfront.parse.tool.python import pythonic
from fastfront.parse.tool.sections import braced, deepseek_v3, deepseek_v31, kimi_k2, kimi_k3, plamo3, step3
from fastfront.parse.tool.template import template_table, template_think
from fastfront.parse.tool.xml import dsml, invokes, invokes_or_json, key_values, mini_params, qwen_xml


class Model(NamedTuple):
    """What of a served model parsers depend on. `suffix` is what Hunyuan's tokens end with, `:6124c78e` or nothing."""

    suffix: str = ""
    response_template: Mapping[str, Any] | None = None


def token_suffix(vocabulary: Iterable[str]) -> str:
    """The suffix of Hunyuan's structural tokens."""
    for token in vocabulary:
        match = re.fullmatch(r"<(?:think|tool_calls|tool_call|arg_key|arg_value)(:[^\s>]+)>", token)
        if match is not None:
            return match[1]
    return ""


def _hermes(tag: str = "tool_call") -> Table:
    return enveloped((f"<{tag}>",), (f"</{tag}>",), lost=True)


def _hunyuan(model: Model, named: bool) -> Table:
    tags = [f"<{slash}{name}{model.suffix}>" for name in ("tool_calls", "tool_call") for slash in ("", "/")]
    return key_values(
        ((tags[0], tags[1]),),
        (tags[2], tags[3]),
        suffix=model.suffix,
        named=(f"<tool_sep{model.suffix}>",) if named else (),
    )


_ACTION = (("<|START_ACTION|>",), ("<|END_ACTION|>",))

TOOLS: dict[str, Callable[[Model], Table]] = {
    "apertus": lambda _: enveloped(("<|tools_prefix|>",), ("<|tools_suffix|>",), keyed=True),
    "cohere_command3": lambda _: enveloped(*_ACTION, absorbed=("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    "cohere_command4": lambda _: enveloped(
        *_ACTION, absorbed=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
    ),
    "deepseek_v3": lambda _: deepseek_v3(),
    "deepseek_v31": lambda _: deepseek_v31(),
    "deepseek_v32": lambda _: dsml(("function_calls",)),
    "deepseek_v4": lambda _: dsml(("tool_calls", "toolcalls", "tool")),
    "deepseek_v41": lambda _: dsml(("calls",), " "),
    "dots": lambda _: invokes_or_json("dots_function_call"),
    "ernie45": lambda _: enveloped(("<tool_call>",), ("</tool_call>",), absorbed=("<response>", "</response>")),
    "functiongemma": lambda _: braced("<start_function_call>", "<end_function_call>", "<escape>", guess=True),
    "gemma4": lambda _: braced("<|tool_call>", "<tool_call|>", '<|"|>'),
    "gigachat3": lambda _: enveloped(
        ("<|function_call|>", "function call<|role_sep|>\n"), ("</s>",), absorbed=("<|message_sep|>",)
    ),
    "glm45": lambda _: key_values(),
    "glm47": lambda _: key_values(),
    "granite": lambda _: enveloped(("<|tool_call|>", "<tool_call>")),
    "granite-20b-fc": lambda _: enveloped(("<function_call>",)),
    "granite4": lambda _: _hermes(),
    "hermes": lambda _: _hermes(),
    "hf": lambda model: template_table(model.response_template),
    "hunyuan_a13b": lambda _: enveloped(("<tool_calls>",), ("</tool_calls>",)),
    "hy_v3": lambda model: _hunyuan(model, named=True),
    "hy_v4": lambda model: _hunyuan(model, named=False),
    "inkling": lambda _: inkling(),
    "internlm": lambda _: enveloped(("<|action_start|><|plugin|>",), ("<|action_end|>",)),
    "jamba": lambda _: enveloped(("<tool_calls>",), ("</tool_calls>",)),
    "k2_horizon": lambda _: key_values(
        (("<ifm|tool_calls>", "</ifm|tool_calls>"),), ("<ifm|tool_call>", "</ifm|tool_call>"), "ifm|", json=True
    ),
    "kimi_k2": lambda _: kimi_k2(),
    "kimi_k3": lambda _: kimi_k3(),
    "lfm2": lambda _: pythonic(("<|tool_call_start|>",), ("<|tool_call_end|>",)),
    "ling3": lambda _: key_values(),
    "llama3_json": lambda _: enveloped(("<|python_tag|>",), at_start="{"),
    "llama4_json": lambda _: enveloped(("<|python_tag|>",), at_start="{"),
    "llama4_pythonic": lambda _: pythonic(("<|python_start|>",), ("<|python_end|>",), at_start=True),
    "longcat": lambda _: _hermes("longcat_tool_call"),
    "mimo": lambda _: qwen_xml(trim=""),
    "minicpm5": lambda _: mini_params(),
    "minimax_m2": lambda _: invokes(("<minimax:tool_call>",), ("</minimax:tool_call>",)),
    "minimax_m3": lambda _: elements(),
    "mistral": lambda _: mistral(),
    "muse_glimmer": lambda _: muse_glimmer(),
    "olmo3": lambda _: pythonic(("<function_calls>",), ("</function_calls>",), bracketed=False),
    "openai": lambda _: harmony(),
    "phi4_mini_json": lambda _: enveloped(("functools",)),
    "plamo3": lambda _: plamo3(),
    "poolside_v1": lambda _: key_values(),
    "pythonic": lambda _: pythonic(at_start=True),
    "qwen3_coder": lambda _: qwen_xml(),
    "qwen3_json": lambda _: _hermes(),
    "qwen3_xml": lambda _: qwen_xml(),
    "seed_oss": lambda _: qwen_xml("seed:tool_call"),
    "step3": lambda _: step3(),
    "step3p5": lambda _: qwen_xml(),
    "xlam": lambda _: enveloped(("<tool_call>", "[TOOL_CALLS]", "```json"), ("</tool_call>", "\n```"), at_start="["),
}

#: Reasoning parsers whose format handles calls as well: the name of the tool parser with their table.
UNIFIED = {"openai_gptoss": "openai", "inkling": "inkling", "muse_glimmer": "muse_glimmer"}
#: Those of which vLLM's engine learns no marks, as vLLM's own parsers of these names tell none.
_UNMARKED = frozenset(("granite", "hunyuan_a13b", "minimax_m2_append_think", "muse_glimmer", "openai_gptoss"))
NONE = "none"
AUTO = "auto"


def tool_names() -> list[str]:
    """Every name that --tool-call-parser takes, plug-ins' too."""
    return sorted({*TOOLS, *plugin.TOOL_PARSERS, AUTO, NONE})


def reasoning_names() -> list[str]:
    """Every name that --reasoning-parser takes, plug-ins' too."""
    return sorted({*REASONING, *UNIFIED, "hf", *plugin.REASONING_PARSERS, AUTO, NONE})


class Format:
    """The chosen pair of parsers; one per process, and a parser of its own for each answer."""

    def __init__(self, tool: str | None, reasoning: str | None, model: Model) -> None:
        self.tool = tool
        self.reasoning = reasoning
        self._model = model

    @property
    def suffix(self) -> str:
        """What Hunyuan's tokens end with."""
        return self._model.suffix

    @cached_property
    def think(self) -> Think | None:
        """How the model writes its reasoning; None without a parser, or where a table or plug-in alone knows."""
        if self.reasoning == "hf":
            return template_think(self._model.response_template)
        think = REASONING.get(self.reasoning or "")
        if think is None or not self._model.suffix or not (self.reasoning or "").startswith("hy_v"):
            return think
        return think._replace(
            start=tuple(marker[:-1] + self._model.suffix + ">" for marker in think.start),
            end=tuple(marker[:-1] + self._model.suffix + ">" for marker in think.end),
        )

    @cached_property
    def with_calls(self) -> Table:
        """For answers that may hold calls."""
        unified = UNIFIED.get(self.reasoning or "")
        name = self.tool if self.tool in TOOLS else unified
        return join(self.think, TOOLS[name](self._model) if name is not None else None)

    @cached_property
    def without_calls(self) -> Table:
        """For answers that may not: tags of calls are text."""
        unified = UNIFIED.get(self.reasoning or "")
        return join(self.think, TOOLS[unified](self._model) if unified is not None else None)

    def reasoning_state(self, prompt: str, thinking: bool | None = None) -> bool | None:
        """What `parser` wants as `in_reasoning`, from the rendered prompt's end and the request's thinking switch."""
        return reasoning_state(prompt, self.think, thinking) if self.think is not None else None

    def parser(
        self,
        tools: Sequence[Mapping[str, Any]] = (),
        in_reasoning: bool | None = None,
        calls: bool = True,
        plain: str | None = None,
    ) -> Parser:
        """A parser for one answer; `calls`: it may hold calls, of `tools` (as in the request, which others share).

        `plain`: calls come as plain JSON, "" an array of them, a name the arguments of that function alone.
        """
        make_reasoning = plugin.REASONING_PARSERS.get(self.reasoning or "")
        make_tool = plugin.TOOL_PARSERS.get(self.tool or "") if calls else None
        if plain is not None and make_reasoning is None:
            return Machine(self._with_plain_calls(plain), tools, in_reasoning)
        if make_reasoning is None and make_tool is None:
            return Machine(self.with_calls if calls else self.without_calls, tools, in_reasoning)
        first: Parser = Machine(self.without_calls, tools, in_reasoning)
        if make_reasoning is not None:
            first = make_reasoning(tools, in_reasoning)
        if make_tool is not None:
            return Chain(first, make_tool(tools, False))
        if plain is not None:
            table = plain_arguments(self._calls_alone, plain) if plain else plain_list(self._calls_alone)
            return Chain(first, Machine(table, tools))
        return Chain(first, Machine(self._calls_alone, tools)) if calls else first

    def _with_plain_calls(self, name: str) -> Table:
        if name:
            return join(self.think, plain_arguments(self._calls_alone, name))
        return self._with_call_list

    @cached_property
    def _with_call_list(self) -> Table:
        return join(self.think, plain_list(self._calls_alone))

    @cached_property
    def _calls_alone(self) -> Table:
        return TOOLS[self.tool](self._model) if self.tool in TOOLS else Table({})


def choose(
    tool: str | None = None,
    reasoning: str | None = None,
    model_name: str = "",
    model_type: str = "",
    vocabulary: Iterable[str] = (),
    response_template: Mapping[str, Any] | None = None,
) -> Format:
    """The parsers of these names (None and `none`: no parser; `auto`: by the model); ConfigError if there is none."""
    tool, reasoning = meant(tool, reasoning, model_name, model_type)
    check_names(tool, reasoning)
    if "hf" in (tool, reasoning) and {tool, reasoning} - {"hf", None}:
        raise ConfigError(f"the parser hf handles reasoning and calls: it cannot go with {tool!r} and {reasoning!r}")
    suffix = token_suffix(vocabulary) if "hy_v" in f"{tool} {reasoning}" else ""
    chosen = Format(tool, reasoning, Model(suffix, response_template))
    # A format that cannot be served is refused now and not with the first request.
    _ = chosen.with_calls, chosen.without_calls
    return chosen


def check_names(tool: str | None, reasoning: str | None) -> None:
    """ConfigError if one is the name of no parser; plug-ins must have been loaded."""
    if tool and tool not in tool_names():
        raise ConfigError(f"no tool call parser {tool!r}; there are: {', '.join(tool_names())}")
    if reasoning and reasoning not in reasoning_names():
        raise ConfigError(f"no reasoning parser {reasoning!r}; there are: {', '.join(reasoning_names())}")


def meant(tool: str | None, reasoning: str | None, model_name: str, model_type: str) -> tuple[str | None, str | None]:
    """The names of the parsers that two flags ask for, None for no parser."""
    found_tool, found_reasoning = detect(model_name, model_type)
    return _resolve(tool, found_tool), _resolve(reasoning, found_reasoning)


def known_to_vllm(reasoning: str | None) -> bool:
    """Whether it is the name of a parser that vLLM has too; plug-ins are not looked at."""
    return reasoning in REASONING or reasoning in UNIFIED or reasoning == "hf"


def has_marks(reasoning: str | None) -> bool:
    """Whether vLLM's engine, told of this parser, knows where reasoning begins and ends."""
    return known_to_vllm(reasoning) and reasoning not in _UNMARKED


def _resolve(name: str | None, found: str | None) -> str | None:
    if not name or name == NONE:
        return None
    return found if name == AUTO else name
