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
    options = ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    serving = serve(start, fastfront, peers, free_port, *options, engine=None)
    add_engine(start, fastfront, serving, "--scripts", str(cases / "scripts.json"))
    serving.front.wait_http(f"{serving.base}/health")
    for again in range(3):  # what was decided for a body serves others alike from the third on
        got = runner.run(serving.base, requests)
        wrong = set()
        for name, want in expected.items():
            wants = want["any"] if isinstance(want, dict) and "any" in want else [want]
            if not any(runner.same(one, got[name]) for one in wants):
                wrong.add(name)
        assert sorted(wrong) == [], f"round {again + 1}"
