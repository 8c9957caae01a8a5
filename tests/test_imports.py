"""Every module can be imported first, in any installation, and light commands load nothing heavy."""

from __future__ import annotations

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

FRESH = """
import importlib, json, os, sys
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


@pytest.mark.parametrize("native", ["0", "auto"])
def test_every_module_alone(native: str) -> None:
    """Each in a fork of an interpreter that has imported nothing of fastfront."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH, json.dumps(MODULES)],
        cwd=ROOT, env={**os.environ, "FASTFRONT_NATIVE": native}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "argv", [["--version"], ["serve", "--help"], ["render", "--help"], ["frontend", "--help"]], ids=" ".join
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
