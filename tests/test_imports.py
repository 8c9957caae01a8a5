"""Every module can be imported first, in any installation, and light commands load nothing heavy."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "fastfront").rglob("*.py")
    if path.name != "__main__.py"
)
#: What a command that does not serve must not load.
HEAVY = ("torch", "zmq", "vllm", "sglang", "transformers", "numpy", "tokenizers", "jinja2", "uvloop")

#: Modules that need torch, which not every installation has.
WITH_TORCH = [name for name in MODULES if name.startswith("fastfront.engine.torch.")]

FRESH = """
import importlib, json, os, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
failed = {}
for name in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed[name] = True
sys.exit(bool(failed))
"""


def import_alone(modules: list[str], *before: str, native: str = "auto") -> None:
    """Each in a fork of an interpreter that has imported nothing of fastfront, only `before`."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH, json.dumps(modules), *before],
        cwd=ROOT, env={**os.environ, "FASTFRONT_NATIVE": native}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("native", ["0", "auto"])
def test_every_module_alone(native: str) -> None:
    import_alone([name for name in MODULES if name not in WITH_TORCH], native=native)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is an optional part")
def test_every_module_of_the_engine_alone() -> None:
    import_alone(WITH_TORCH, "torch")


@pytest.mark.parametrize(
    "argv",
    [["--version"], *([command, "--help"] for command in ("serve", "render", "frontend", "bench"))],
    ids=" ".join,
)
def test_light_commands_load_nothing_heavy(argv: list[str]) -> None:
    code = (
        "import sys; from fastfront.cli.main import main; code = main(sys.argv[1:]); "
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert done.stdout.startswith(("fastfront ", "usage: fastfront "))
