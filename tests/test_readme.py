"""The commands of README do what README says."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import DIRECT, Start


def commands(root: Path, heading: str) -> list[str]:
    """The bash blocks below a heading of README."""
    text = (root / "README.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.MULTILINE)
    body = next(part for part in section if part.startswith(f"{heading}\n"))
    return re.findall(r"^```bash\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)


def test_the_test_command_is_what_ci_runs(root: Path) -> None:
    assert commands(root, "Test") == ["tests/run\n"]
    assert "exec tests/run" in (root / ".ci" / "run").read_text()
    assert "\ntest:\n\ttests/run\n" in (root / "Makefile").read_text()
    for script in ("tests/run", ".ci/run"):
        assert os.access(root / script, os.X_OK), script


def test_links_lead_somewhere(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (root / link).exists(), link


@pytest.mark.peer
@pytest.mark.timeout(1200)
def test_the_main_command_serves_from_nothing(
    root: Path, tmp_path: Path, start: Start, free_port: Callable[[], int]
) -> None:
    """In a copy of the tree: a fresh environment, an install with its dependencies, a server, one right answer."""
    tree = tmp_path / "tree"
    left_out = shutil.ignore_patterns(".git", ".venv", "build", "*.so", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(root, tree, ignore=left_out)
    command = commands(root, "Run")[0].strip()
    assert command.endswith("pip install '.[cuda]' && fastfront serve")
    port = free_port()
    constraint = tmp_path / "constraint.txt"
    constraint.write_text("torch==2.13.0\n")  # the tests' own, so that it is downloaded once
    environment = {
        "PIP_CONSTRAINT": str(constraint), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HF_HOME": str(tmp_path / "hf"),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }  # fmt: skip
    server = start(["bash", "-c", f"unset FASTFRONT_NATIVE; {command} --port {port}"], env=environment, cwd=tree)
    server.wait_http(f"http://127.0.0.1:{port}/health", timeout=1000)

    curl = commands(root, "Run")[1]
    found = re.search(r"http://127\.0\.0\.1:8000(\S+) .*-d '(.+)'", curl)
    assert found
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{found[1]}", found[2].encode(), {"content-type": "application/json"}
    )
    with DIRECT.open(request, timeout=60) as answer:
        body = json.load(answer)
    assert json.loads(found[2])["messages"][0]["content"] == "What is the capital of France?"
    assert body["choices"][0]["message"]["content"] == "The capital of France is Paris."
