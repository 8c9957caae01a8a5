"""How each tool call parser's calls are held, by the parser's name.

Those that are in none of the tables here read their calls from plain JSON when calls must come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastfront.parse.grammar import envelopes
from fastfront.parse.grammar.formats import Call, Choice, Format
from fastfront.parse.grammar.harmony import harmony
from fastfront.parse.grammar.keyed import glm, hy_v4, kimi_k3

#: None: calls of this choice are not held.
Build = Callable[[Sequence[Call], Choice, bool], Format | None]

_HERMES = envelopes.hermes("tool_call")
_QWEN = envelopes.qwen()
_LLAMA = envelopes.llama()

BUILDERS: dict[str, Build] = {
    "cohere_command3": envelopes.cohere,
    "cohere_command4": envelopes.cohere,
    "deepseek_v3": envelopes.deepseek(
        "\n", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"
    ),
    "deepseek_v31": envelopes.deepseek("", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    "deepseek_v32": envelopes.dsml("function_calls"),
    "deepseek_v4": envelopes.dsml("tool_calls"),
    "deepseek_v41": envelopes.dsml("calls", " ", "deepseek_v4_1_xml"),
    "glm45": glm,
    "glm47": glm,
    "hermes": _HERMES,
    "kimi_k2": envelopes.kimi_k2(),
    "kimi_k3": kimi_k3,
    "ling3": glm,
    "llama3_json": _LLAMA,
    "llama4_json": _LLAMA,
    "longcat": envelopes.hermes("longcat_tool_call"),
    "mimo": envelopes.mimo(),
    "minimax_m2": envelopes.minimax(),
    "openai": harmony,
    "plamo3": envelopes.plamo3,
    "qwen3_coder": _QWEN,
    "qwen3_json": _HERMES,
    "qwen3_xml": _QWEN,
    "step3p5": _QWEN,
}
#: Parsers that read calls in their own format alone, and have no grammar for it.
FREE = frozenset(
    ("dots", "gemma4", "inkling", "k2_horizon", "minimax_m3", "muse_glimmer", "poolside_v1")
)  # fmt: skip
#: Calls are held even where nobody asks for it, because the models need it.
ALWAYS = frozenset(("glm45", "glm47"))
#: Nothing can be promised of its calls: the format is the model's own.
UNKNOWN = frozenset(("hf",))


def builder(parser: str, suffix: str = "") -> Build | None:
    """The grammar of a parser's own format, None if there is none; `suffix` as of Hunyuan's tokens."""
    return hy_v4(suffix) if parser == "hy_v4" else BUILDERS.get(parser)
