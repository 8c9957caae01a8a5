"""Who may import whom. A new edge is a change of the design, so it is made in this table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fastfront"

BASE = {"errors", "flow", "config", "cores", "env", "log", "metrics", "gguf_file", "progress", "fast", ""}
STAGES = {"http", "prompt", "engine", "text", "parse"}

#: Part of the package -> the parts that it may import, beside itself. "" is fastfront/__init__.py.
MAY_IMPORT: dict[str, set[str]] = {
    "": set(),
    "errors": set(),
    "env": {"errors"},
    "cores": set(),
    "config": {"errors"},
    "gguf_file": {"errors"},
    "progress": {"env"},
    "log": {"errors"},
    # flow's records as types only: flow itself needs fast.
    "fast": {"errors", "env", "flow"},
    "flow": {"errors", "fast"},
    "metrics": {"errors", "flow", "exposition"},
    # What metrics imports when it is asked for the text.
    "exposition": {"metrics"},
    **dict.fromkeys(STAGES, BASE),
    # A client: nothing of the server's, not even its stages.
    "load": {"errors"},
    "choice": BASE | STAGES,
    "pipeline": BASE | STAGES | {"choice"},
    "beams": BASE,
    "api": BASE | {"beams", "pipeline"},
    # The process's own, whatever runs in it.
    "memory": set(),
    "workers": {"cores", "errors", "log"},
    "bound": {"config", "http"},
    "process": BASE | {"bound", "memory", "workers", "http", "prompt", "text", "parse", "api"},
    # No engine and no pipeline: that is what it is for.
    "render": BASE | {"bound", "memory", "workers", "process", "prompt", "parse", "api"},
    # Which engine, which model: both stages' business.
    "settle": BASE | {"prompt", "engine"},
    "app": BASE | STAGES | {"bound", "memory", "workers", "process", "settle", "pipeline", "api"},
    # mock-engine is an engine with a command line; bench gives the load generator a tokenizer.
    "cli": BASE | {"app", "render", "engine", "load", "prompt"},
    "__main__": {"cli"},
}

#: Third party -> the only part that may import it.
CONFINED = {
    "zmq": "engine",
    "llguidance": "engine",
    "xgrammar": "engine",
    "torch": "engine",
    "vllm": "engine",
    "sglang": "engine",
    "jinja2": "prompt",
    "minijinja": "prompt",
    "tokenizers": "prompt",
    "fastokens": "prompt",
    "huggingface_hub": "prompt",
    "mistral_common": "prompt",
    "httptools": "http",
    "prometheus_client": "exposition",
}

FILES = sorted(PACKAGE.rglob("*.py"))


def part(name: str) -> str:
    """The part of the package that a dotted module name belongs to."""
    return name.split(".")[1] if "." in name else ""


def module_name(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, also those inside functions and for type checkers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            # `from fastfront import x` imports the part x; from below that, the part is in the module's name already.
            if node.module == "fastfront":
                yield from ((node.lineno, f"fastfront.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


def test_every_part_is_in_the_table() -> None:
    found = {part(module_name(path)) for path in FILES}
    assert found <= set(MAY_IMPORT), found - set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downhill(path: Path) -> None:
    here = part(module_name(path))
    if module_name(path) == "fastfront":
        here = ""
    wrong = []
    for line, name in imports(path):
        top = name.partition(".")[0]
        if top == "fastfront":
            there = part(name)
            if name == "fastfront.__version__":
                there = ""
            if there != here and there not in MAY_IMPORT[here]:
                wrong.append(f"line {line}: {here or 'fastfront'} imports {name}")
        elif CONFINED.get(top, here) != here:
            wrong.append(f"line {line}: {top} belongs to {CONFINED[top]}/ alone")
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_env_reads_the_environment(path: Path) -> None:
    if path.name == "env.py" and path.parent == PACKAGE:
        return
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            assert node.attr not in names, f"line {node.lineno}: os.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            assert not names & {alias.name for alias in node.names}, f"line {node.lineno}"


def test_c_sources_know_no_python() -> None:
    for path in sorted((PACKAGE.parent / "csrc").glob("*")):
        assert "Python.h" not in path.read_text(encoding="utf-8"), path
