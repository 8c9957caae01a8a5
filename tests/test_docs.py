"""The documentation names what the code has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from fastfront.http.auth import GUARDED

_VARIABLE = re.compile(r"\b(?:FASTFRONT|FASTOKENS|VLLM)_[A-Z_]+\b")


def test_every_variable_is_in_the_table(root: Path) -> None:
    """Each function of env.py tells in its docstring which variables it reads, and operations.md has those."""
    functions = [
        node
        for node in ast.parse((root / "fastfront" / "env.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    told = {name for node in functions for name in _VARIABLE.findall(ast.get_docstring(node) or "")}
    bodies = [ast.unparse(part) for node in functions for part in node.body[1:]]
    read = {name for body in bodies for name in _VARIABLE.findall(body)}
    text = (root / "docs" / "operations.md").read_text(encoding="utf-8")
    table = text[text.index("## Environment") : text.index("## Security")]
    named = set(_VARIABLE.findall(table))
    assert len(told) > 15
    assert told == read == named


def test_every_guarded_prefix_is_named(root: Path) -> None:
    text = (root / "docs" / "operations.md").read_text(encoding="utf-8")
    guards = text[text.index("`--api-key` guards") : text.index("are open")]
    for prefix in GUARDED:
        assert f"`{prefix}`" in guards
