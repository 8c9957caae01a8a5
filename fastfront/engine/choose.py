"""Which engine `serve` starts, and whether what it takes is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fastfront.errors import StartError

Kind = Literal["torch", "vllm", "mock", "none"]

#: How long another Python may take to say what it has (s).
PROBE_S = 30.0
INSTALL = "pip install 'fastfront[cuda]'"
#: Ends with 0 where the package is there; a folder of that name is none.
_PROBE = "import importlib.util as u, sys; s = u.find_spec('vllm'); sys.exit(0 if s and s.origin else 3)"


class Choice(NamedTuple):
    """An engine, and in words what it is and why."""

    kind: Kind
    why: str


def choose(asked: str, python: str, *, gguf: bool) -> Choice:
    """The engine for --engine `asked` and a model that is a GGUF file or not; StartError where it cannot be had."""
    if asked in ("mock", "none"):
        return Choice("mock" if asked == "mock" else "none", f"--engine {asked}")
    if asked == "vllm":
        _check_vllm(python, gguf)
        return Choice("vllm", f"vLLM, by {python}")
    if asked == "torch":
        _check_torch(gguf)
        return Choice("torch", "the built-in one, on torch")
    if gguf:
        _check_torch(gguf)
        return Choice("torch", "the built-in one, on torch, which reads GGUF files")
    if has_vllm(python):
        return Choice("vllm", f"vLLM, which {python} has (--engine torch for the built-in one)")
    if not _has("torch"):
        raise StartError(
            f"there is no engine: neither vLLM in {python} nor torch in {sys.executable}. Install one ({INSTALL} for "
            "the built-in engine), name the Python that has vLLM (--python), or try --engine mock"
        )
    _check_torch(gguf)
    return Choice("torch", f"the built-in one, on torch, for {python} has no vLLM")


def check_words(words: Sequence[str]) -> None:
    """ConfigError for what the built-in engine's command line would not take."""
    from fastfront.engine.torch.arguments import parse

    parse(("MODEL", "--handshake", "ADDRESS", *words))


def has_vllm(python: str) -> bool:
    """Whether `python` can import vLLM, without importing it; StartError where there is no such Python."""
    if python == sys.executable:
        return _has("vllm")
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False
        )
    except (OSError, ValueError) as error:
        raise StartError(f"--python {python} cannot be run: {getattr(error, 'strerror', None) or error}") from error
    except subprocess.TimeoutExpired as error:
        raise StartError(f"--python {python} did not say within {PROBE_S:g} s whether it has vLLM") from error
    return done.returncode == 0


def _has(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def _check_vllm(python: str, gguf: bool) -> None:
    if gguf:
        raise StartError("vLLM 0.32 reads no GGUF files; the built-in engine does: --engine torch")
    if not has_vllm(python):
        raise StartError(
            f"--engine vllm: {python} has no vLLM. Install it there (pip install vllm==0.32.0), name another Python "
            "(--python), or take the built-in engine (--engine torch)"
        )


def _check_torch(gguf: bool) -> None:
    needed = {"torch": "", "safetensors": "", **({"gguf": " to read GGUF files"} if gguf else {})}
    for package, why in needed.items():
        if not _has(package):
            raise StartError(
                f"the built-in engine needs the package {package}{why}, which {sys.executable} does not have: {INSTALL}"
            )
