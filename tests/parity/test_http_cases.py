"""The reference HTTP cases: what vLLM's frontends answered, or what is right where they are wrong."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.e2e.serving import add_engine, serve

pytestmark = pytest.mark.peer

#: Cases that are not served yet, by the beginning of their names, and why. One that passes must leave this list.
NOT_YET = {
    "lp.": "log-probabilities",
    "chat.logprobs": "log-probabilities",
    "chat.reasoning": "reasoning parsers",
    "chat.include_reasoning_false": "reasoning parsers",
    "tool.": "tool parsers",
}
#: Cases under those names that pass all the same: they are refused, or need no parser.
PASS_ALREADY = frozenset(
    (
        "chat.reasoning_never chat.reasoning_never.stream chat.reasoning_off chat.reasoning_off.stream lp.negative "
        "lp.too_many tool.choice_without_tools tool.empty_list tool.history tool.history.stream "
        "tool.required_without_tools"
    ).split()
)


def tool(shared: Path) -> Any:
    """The reference runner as a module."""
    path = shared / "tools" / "http_cases.py"
    spec = importlib.util.spec_from_file_location("http_cases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cases(start: Start, fastfront: list[str], shared: Path, peers: Path, free_port: Callable[[], int]) -> None:
    cases = shared / "cases" / "http"
    requests = json.loads((cases / "requests.json").read_text())
    expected = json.loads((cases / "expected.json").read_text())
    runner = tool(shared)
    options = ["--tool-call-parser", "none", "--reasoning-parser", "none"]
    serving = serve(start, fastfront, peers, free_port, *options, engine=None)
    add_engine(start, fastfront, serving, "--scripts", str(cases / "scripts.json"))
    serving.front.wait_http(f"{serving.base}/health")
    got = runner.run(serving.base, requests)
    wrong = set()
    for name, want in expected.items():
        wants = want["any"] if isinstance(want, dict) and "any" in want else [want]
        if not any(runner.same(one, got[name]) for one in wants):
            wrong.add(name)
    excused = {name for name in expected if name.startswith(tuple(NOT_YET))} - PASS_ALREADY
    assert wrong - excused == set()
    assert sorted(excused - wrong) == [], "these pass now: take them off the list"
