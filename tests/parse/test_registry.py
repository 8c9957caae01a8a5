"""Names, pairs, automatic choice, templates and plug-ins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fastfront.errors import ConfigError
from fastfront.parse import plugin, registry
from fastfront.parse.auto import detect
from fastfront.parse.reasoning import REASONING
from fastfront.parse.tables import Do, Field, State, Table
from tests.parse.runs import Joined, run
from tests.parse.texts import ONE_CALL, TOOLS


def test_all_names_of_vllm_are_there() -> None:
    assert len(registry.TOOLS) == 54
    assert len({*REASONING, *registry.UNIFIED, "hf"}) == 38


def test_unknown_names_are_refused_with_the_list() -> None:
    with pytest.raises(ConfigError, match=r"'nope'.*apertus.*xlam"):
        registry.choose("nope")
    with pytest.raises(ConfigError, match=r"'nope'.*deepseek_r1"):
        registry.choose(None, "nope")


def test_none_parses_nothing() -> None:
    chosen = registry.choose("none", "none")
    text = ONE_CALL["hermes"]
    assert run(chosen.parser(TOOLS), [text]) == Joined("", text, [])


def test_every_pair_can_be_made() -> None:
    for reasoning in set(registry.reasoning_names()) - {"hf", "auto", "none"}:
        for tool in set(registry.TOOLS) - {"hf"}:
            registry.choose(tool, reasoning)


def test_without_tools_the_tags_are_text() -> None:
    chosen = registry.choose("hermes", "qwen3")
    found = run(chosen.parser(calls=False), ["a</think><tool_call>b"])
    assert found == Joined("a", "<tool_call>b", [])


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("Qwen/Qwen3-8B", "qwen3", ("hermes", "qwen3")),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_moe", ("qwen3_coder", None)),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2", ("hermes", None)),
        ("deepseek-ai/DeepSeek-R1", "deepseek_v3", ("deepseek_v3", "deepseek_r1")),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek_v3", ("deepseek_v31", "deepseek_v3")),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek_v32", ("deepseek_v32", "deepseek_v3")),
        ("openai/gpt-oss-20b", "gpt_oss", ("openai", "openai_gptoss")),
        ("zai-org/GLM-4.5-Air", "glm4_moe", ("glm45", "glm45")),
        ("zai-org/GLM-4.7", "glm4_moe", ("glm47", "glm47")),
        ("moonshotai/Kimi-K2-Instruct", "kimi_k2", ("kimi_k2", "kimi_k2")),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama", ("llama3_json", None)),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral", ("mistral", None)),
        ("/data/checkpoint", "seed_oss", ("seed_oss", "seed_oss")),
        ("/data/checkpoint", "llama", (None, None)),
    ],
)
def test_auto(name: str, kind: str, found: tuple[str | None, str | None]) -> None:
    assert detect(name, kind) == found
    chosen = registry.choose("auto", "auto", name, kind)
    assert (chosen.tool, chosen.reasoning) == found


def test_hunyuan_tokens_with_a_suffix() -> None:
    chosen = registry.choose("hy_v4", "hy_v4", vocabulary=["x", "<think:ab12>", "y"])
    text = ONE_CALL["hy_v4"]
    for tag in ("tool_calls", "tool_call", "arg_key", "arg_value"):
        text = text.replace(f"{tag}>", f"{tag}:ab12>")
    found = run(chosen.parser(TOOLS), [f"hm</think:ab12>{text}"])
    assert found == Joined("hm", "Hi  done", [["get_weather", '{"city": "Paris", "days": 3}', True]])


TEMPLATE: dict[str, Any] = {
    "version": 1,
    "start_anchor": "<|turn>model\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "content": {"close": "<turn|>"},
        "tool_calls": {
            "open_pattern": r"<\|call>call:(?P<name>\w+)",
            "close": "<call|>",
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
            "repeats": True,
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}


def test_response_template() -> None:
    chosen = registry.choose("hf", "hf", response_template=TEMPLATE)
    text = '<think> hm </think>\nHi <|call>call:get_weather{city:<|"|>a "b"<|"|>,days:"3"}<call|> done<turn|>'
    want = Joined("hm", "Hi  done", [["get_weather", '{"city": "a \\"b\\"", "days": 3}', True]])
    assert run(chosen.parser(TOOLS), [text]) == want
    assert run(chosen.parser(TOOLS), list(text)) == want
    assert run(chosen.parser(TOOLS), ["<|call>call:f{oops<call|>"]).content == "<|call>call:f{oops<call|>"


def test_templates_that_cannot_be_served_are_refused() -> None:
    with pytest.raises(ConfigError, match="response_template"):
        registry.choose("hf")
    with pytest.raises(ConfigError, match="citations"):
        registry.choose("hf", response_template={"fields": {"citations": {}}})
    pattern = {"fields": {"thinking": {"open_pattern": "<t.*>", "close": "</t>"}}}
    with pytest.raises(ConfigError, match="cannot be streamed"):
        registry.choose(None, "hf", response_template=pattern)
    with pytest.raises(ConfigError, match="hf"):
        registry.choose("hf", "qwen3", response_template=TEMPLATE)


def test_tables_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        Table({"content": State(Field.CONTENT, {"<a>": Do("nowhere")})})
    with pytest.raises(ValueError, match="lies inside"):
        Table({"content": State(Field.CONTENT, {"<a>": Do("content"), "x<a>y": Do("content")})})


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations of this test are forgotten after it."""
    monkeypatch.setattr(plugin, "TOOL_PARSERS", dict(plugin.TOOL_PARSERS))
    monkeypatch.setattr(plugin, "REASONING_PARSERS", dict(plugin.REASONING_PARSERS))


@pytest.mark.usefixtures("registered")
def test_the_plugin_of_the_documentation(root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "plugins.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 22
    path = tmp_path / "shout.py"
    path.write_text(code)
    plugin.load_plugin(str(path))
    chosen = registry.choose("at_sign", "qwen3")
    text = 'hm</think>Hi @now {"a": 1}\nbye'
    for pieces in ([text], list(text)):
        assert run(chosen.parser(TOOLS), pieces) == Joined("hm", "Hi bye", [["now", '{"a": 1}', True]])
    assert run(chosen.parser(TOOLS, calls=False), [text]).calls == []


@pytest.mark.usefixtures("registered")
def test_a_reasoning_plugin_goes_before_a_table(tmp_path: Path) -> None:
    path = tmp_path / "halves.py"
    path.write_text(
        "from fastfront.flow import Content, Reasoning\n"
        "from fastfront.parse.plugin import register_reasoning_parser\n"
        "@register_reasoning_parser('bar')\n"
        "class Bar:\n"
        "    def __init__(self, tools, in_reasoning):\n"
        "        self.text = ''\n"
        "    def feed(self, text):\n"
        "        self.text += text\n"
        "        return []\n"
        "    def finish(self):\n"
        "        before, _, after = self.text.partition('|')\n"
        "        return [Reasoning(before), Content(after)]\n"
    )
    plugin.load_plugin(str(path))
    found = run(registry.choose("hermes", "bar").parser(TOOLS), ["hm|", ONE_CALL["hermes"]])
    assert found.reasoning == "hm"
    assert found.calls[0][0] == "get_weather"


def test_plugins_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        plugin.load_plugin(str(tmp_path / "missing.py"))
    broken = tmp_path / "broken.py"
    broken.write_text("1/0")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        plugin.load_plugin(str(broken))
    with pytest.raises(ConfigError, match="no_such_module_here"):
        plugin.load_plugin("no_such_module_here")


@pytest.mark.usefixtures("registered")
def test_vllm_plugins_are_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for vllm that has what the adapters use of it."""
    for name, text in FAKE_VLLM.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "theirs.py"
    path.write_text(THEIR_PLUGIN)
    try:
        plugin.load_plugin(str(path), "some/model")
        found = run(registry.choose("theirs", "theirs").parser(TOOLS), ["r", "|", "Hi", "!now", "{}", "!"])
    finally:
        for module in [module for module in sys.modules if module.partition(".")[0] == "vllm"]:
            del sys.modules[module]
    assert found == Joined("r", "Hi", [["now", "{}", True]])


FAKE_VLLM = {
    "vllm/__init__.py": "",
    "vllm/tokenizers.py": (
        "class T:\n    def encode(self, text, add_special_tokens):\n        return [ord(c) for c in text]\n"
        "def get_tokenizer(model):\n    return T()\n"
    ),
    "vllm/tool_parsers/__init__.py": "",
    "vllm/tool_parsers/abstract_tool_parser.py": (
        "class ToolParserManager:\n    tool_parsers = {}\n    lazy_parsers = {'own': ('vllm.x', 'X')}\n"
        "    @classmethod\n    def get_tool_parser(cls, name):\n        return cls.tool_parsers[name]\n"
    ),
    "vllm/reasoning/__init__.py": "",
    "vllm/reasoning/abs_reasoning_parsers.py": (
        "class ReasoningParserManager:\n    reasoning_parsers = {}\n    lazy_parsers = {}\n"
        "    @classmethod\n    def get_reasoning_parser(cls, name):\n        return cls.reasoning_parsers[name]\n"
    ),
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/openai/__init__.py": "",
    "vllm/entrypoints/openai/chat_completion/__init__.py": "",
    "vllm/entrypoints/openai/chat_completion/protocol.py": (
        "class ChatCompletionRequest:\n    def __init__(self, **fields):\n        self.__dict__.update(fields)\n"
    ),
}
THEIR_PLUGIN = """
from types import SimpleNamespace as S
from vllm.tool_parsers.abstract_tool_parser import ToolParserManager
from vllm.reasoning.abs_reasoning_parsers import ReasoningParserManager

class Tools:
    def __init__(self, tokenizer, tools):
        self.on = False
    def extract_tool_calls_streaming(self, before, now, text, ids_before, ids_now, ids, request):
        assert [ord(c) for c in now] == ids_now
        if text == "!now":
            self.on = True
            return S(content=None, tool_calls=[S(index=0, id="x", function=S(name="now", arguments=None))])
        if not self.on:
            return S(content=text, tool_calls=[])
        if text == "!":
            return None
        return S(content=None, tool_calls=[S(index=0, id=None, function=S(name=None, arguments=text))])
    def get_remaining_unstreamed_args(self):
        return ""

class Reasons:
    def __init__(self, tokenizer):
        pass
    def extract_reasoning_streaming(self, before, now, text, ids_before, ids_now, ids):
        return None if text == "|" else S(reasoning=text, content=None)
    def is_reasoning_end_streaming(self, ids_now, ids):
        return ord("|") in ids

ToolParserManager.tool_parsers["theirs"] = Tools
ReasoningParserManager.reasoning_parsers["theirs"] = Reasons
"""
