"""Parsers that users bring: a Python file, a module or an entry point that registers classes under names.

Such a class is made once for each answer, with the request's tools and whether the answer begins inside reasoning, and
has `feed` and `finish` (fastfront.flow.Parser). Files made for vLLM are taken too; see vllm_plugin.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fastfront.errors import ConfigError
from fastfront.flow import Parser

#: Entry points of this group are modules that register parsers when they are imported.
GROUP = "fastfront.parsers"

MakeParser = Callable[[Sequence[Mapping[str, Any]], bool | None], Parser]
_Made = TypeVar("_Made", bound=MakeParser)

TOOL_PARSERS: dict[str, MakeParser] = {}
REASONING_PARSERS: dict[str, MakeParser] = {}


def register_tool_parser(name: str) -> Callable[[_Made], _Made]:
    """A class decorator: --tool-call-parser NAME is this class. It makes content and calls of content."""

    def register(make: _Made) -> _Made:
        TOOL_PARSERS[name] = make
        return make

    return register


def register_reasoning_parser(name: str) -> Callable[[_Made], _Made]:
    """A class decorator: --reasoning-parser NAME is this class. It makes reasoning and content of all text."""

    def register(make: _Made) -> _Made:
        REASONING_PARSERS[name] = make
        return make

    return register


def load_plugin(where: str, model: str = "") -> None:
    """Imports what `where` names: a file, an entry point or a module; ConfigError if that cannot be done.

    `model` is the path or name that vLLM's plug-ins get their tokenizer from.
    """
    from importlib.metadata import entry_points  # imports much, and few have plug-ins

    try:
        if where.endswith(".py") or "/" in where:
            _import_file(Path(where).expanduser())
        elif found := list(entry_points(group=GROUP, name=where)):
            found[0].load()
        else:
            importlib.import_module(where)
        if "vllm" in sys.modules:
            importlib.import_module("fastfront.parse.vllm_plugin").adopt(model)
    except ConfigError:
        raise
    except Exception as wrong:
        raise ConfigError(f"the parser plug-in {where!r} cannot be loaded: {type(wrong).__name__}: {wrong}") from wrong


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"the parser plug-in {str(path)!r} is no file")
    name = f"fastfront_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"the parser plug-in {str(path)!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
