"""These tests need torch, an optional part: without it they are not collected, which CI takes for a failure."""

from __future__ import annotations

import importlib.util
import os

collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    if os.environ.get("CI") == "true":
        raise RuntimeError("torch is not installed")
    collect_ignore_glob.append("test_*.py")
