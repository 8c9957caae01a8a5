"""The one switch between the compiled modules and their pure twins: `X_native` or `X`, the same names from both.

`FASTFRONT_NATIVE=auto` takes the compiled ones if they are all there, `1` insists on them, `0` takes the pure ones.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastfront import env
from fastfront.errors import NativeMissingError

if TYPE_CHECKING:
    from fastfront.fast.cut import cut_field
    from fastfront.fast.detok import Decoder, Vocab
    from fastfront.fast.head import HeadReader
    from fastfront.fast.ids import json_ids, pack_ids
    from fastfront.fast.msgpack import walk_outputs
    from fastfront.fast.nest import Nest
    from fastfront.fast.scan import Patterns, Scanner
    from fastfront.fast.sse import Flusher, Outbox, escape
    from fastfront.fast.stream import Router, Step, Stream
    from fastfront.fast.stretch import Stretch

MODULES: dict[str, tuple[str, ...]] = {
    "cut": ("cut_field",),
    "detok": ("Vocab", "Decoder"),
    "scan": ("Patterns", "Scanner"),
    "sse": ("Flusher", "Outbox", "escape"),
    "head": ("HeadReader",),
    "ids": ("json_ids", "pack_ids"),
    "msgpack": ("walk_outputs",),
    "nest": ("Nest",),
    "stream": ("Router", "Step", "Stream", "Stretch"),
}


def load(native: bool) -> dict[str, Any]:
    """Every public name of the twins; ImportError where a compiled module is missing."""
    suffix = "_native" if native else ""
    names: dict[str, Any] = {}
    for module, public in MODULES.items():
        twin = import_module(f"fastfront.fast.{module}{suffix}")
        names.update({name: getattr(twin, name) for name in public})
    return names


def choose(wish: str) -> tuple[bool, dict[str, Any]]:
    """Whether the compiled twins are in use, and the names; `wish` is auto, 1 or 0."""
    if wish == "0":
        return False, load(native=False)
    try:
        return True, load(native=True)
    except Exception as missing:  # also modules of another version, which fail in many ways
        if wish == "1":
            raise NativeMissingError(
                f"FASTFRONT_NATIVE=1, but the compiled modules cannot be loaded ({missing}); "
                "install with FASTFRONT_REQUIRE_NATIVE=1 to see why they were not built"
            ) from missing
        return False, load(native=False)


def describe() -> str:
    """Which twins are in use, for people: `native`, or `pure: ` and why."""
    if NATIVE:
        return "native"
    if env.native() == "0":
        return "pure: FASTFRONT_NATIVE=0"
    try:
        load(native=True)
    except Exception as missing:
        return f"pure: {missing}"
    return "pure"


NATIVE, _names = choose(env.native())
globals().update(_names)

__all__ = [
    "NATIVE",
    "Decoder",
    "Flusher",
    "HeadReader",
    "Nest",
    "Outbox",
    "Patterns",
    "Router",
    "Scanner",
    "Step",
    "Stream",
    "Stretch",
    "Vocab",
    "cut_field",
    "escape",
    "json_ids",
    "pack_ids",
    "walk_outputs",
]
