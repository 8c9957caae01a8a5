"""Loads what knows grammars, without what that brings along: torch would take seconds and hundreds of megabytes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


def load_guidance() -> Any:
    """llguidance."""
    return importlib.import_module("llguidance")


def load_xgrammar() -> Any:
    """xgrammar's Grammar class; None where it is not installed or does not load. For a process that does nothing else.

    Only its parsing half is imported: the package's own __init__ imports torch, and so does the library below it if it
    can.
    """
    try:
        found = importlib.util.find_spec("xgrammar")
    except ValueError:  # somebody has put a stand-in there
        found = None
    if found is None or found.submodule_search_locations is None:
        return None
    package = ModuleType("xgrammar")
    package.__path__ = list(found.submodule_search_locations)
    package.__spec__ = found
    sys.modules["xgrammar"] = package
    sys.modules["torch"] = None  # type: ignore[assignment]  # importing it fails
    try:
        importlib.import_module("xgrammar.load_binding")
        return importlib.import_module("xgrammar.grammar").Grammar
    except Exception:
        return None
