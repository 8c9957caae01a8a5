"""What a process with engines tells them."""

from __future__ import annotations

import logging

import pytest

from fastfront.app import grammar_backend, holds_budgets, tell_engine
from fastfront.cli.build import serve_config
from fastfront.config import EngineConfig


@pytest.mark.parametrize(
    ("line", "parser", "words"),
    [
        ("m --engine vllm --reasoning-parser qwen3 --foo 1", "qwen3", ("--foo", "1", "--reasoning-parser", "qwen3")),
        ("m --engine vllm --reasoning-parser auto", "deepseek_r1", ("--reasoning-parser", "deepseek_r1")),
        ("m --engine vllm", None, ()),
        ("m --engine vllm -- --reasoning-parser=own", "qwen3", ("--reasoning-parser=own",)),
        ("m --engine vllm", "a_plug_in", ()),
        ("m --engine mock --reasoning-parser qwen3", "qwen3", ()),
    ],
)
def test_vllm_is_told_of_the_reasoning_parser(
    line: str, parser: str | None, words: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        engine = tell_engine(serve_config(line.split()), parser).engine
    assert isinstance(engine, EngineConfig)
    assert engine.arguments.get(engine.kind, ()) == words
    assert ("a_plug_in" in caplog.text) == (parser == "a_plug_in")


def test_engines_from_outside_are_told_nothing() -> None:
    config = serve_config(["m", "--data-parallel-size-local", "0"])
    assert tell_engine(config, "qwen3") == config


@pytest.mark.parametrize(
    ("line", "parser", "holds"),
    [
        ("m --engine mock", "qwen3", True),
        ("m --engine mock", None, False),
        ("m --engine vllm", "openai_gptoss", False),  # of which vLLM's engine learns no marks
        ("m --engine vllm", "a_plug_in", False),
        ('m --engine vllm --reasoning-config {"reasoning_start_str":"<t>","reasoning_end_str":"</t>"}', None, True),
        ("m --engine torch", "qwen3", False),
    ],
)
def test_who_holds_thinking_budgets(line: str, parser: str | None, holds: bool) -> None:
    assert holds_budgets(serve_config(line.split()), parser) == holds


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        ("m --engine vllm", "auto"),
        ('m --engine vllm --structured-outputs-config {"backend":"guidance"}', "guidance"),
        ("m --engine torch", "xgrammar"),
        ("m --data-parallel-size-local 0", "auto"),
    ],
)
def test_constraints_are_checked_for_the_engine_that_gets_them(line: str, backend: str) -> None:
    assert grammar_backend(serve_config(line.split())) == backend
