"""Reads the golden frames, and writes msgpack in its one normal form."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

FOLDER = Path(__file__).parent / "vllm"


class Golden(NamedTuple):
    """One captured message."""

    name: str
    direction: str
    frames: list[bytes]
    decoded: list[Any]


def load(path: Path) -> Golden:
    """One file."""
    data = json.loads(path.read_text())
    return Golden(path.stem, data["direction"], [bytes.fromhex(text) for text in data["frames_hex"]], data["decoded"])


def load_all(pattern: str) -> list[Golden]:
    """All files of a pattern; there must be some."""
    found = [load(path) for path in sorted(FOLDER.glob(f"{pattern}.json"))]
    assert found, pattern
    return found


def view(value: Any) -> Any:
    """A decoded value as the files show it: JSON, extensions as hex."""

    def shown(node: Any) -> Any:
        if isinstance(node, msgspec.msgpack.Ext):
            return {"__ext__": node.code, "hex": bytes(node.data).hex()}
        if isinstance(node, dict):
            return {str(key): shown(child) for key, child in node.items()}
        if isinstance(node, (list, tuple)):
            return [shown(child) for child in node]
        return node

    return json.loads(json.dumps(shown(value)))


def normal(data: bytes) -> bytes:
    """msgpack in the form that Python writes, for comparing bytes; all not named here is untouched.

    A float32 (the Rust frontend's) becomes the float64 of the same value, there being no float32 in Python. A map of
    fewer than 16 pairs whose count takes two bytes (how msgspec writes a struct with many fields, most left out) gets
    the short count.
    """
    out = bytearray()
    end = _normal(data, 0, out)
    assert end == len(data)
    return bytes(out)


def _normal(data: bytes, at: int, out: bytearray) -> int:
    """Copies one value; where it ends."""
    tag = data[at]
    if tag == 0xCA:
        out += b"\xcb" + struct.pack(">d", struct.unpack(">f", data[at + 1 : at + 5])[0])
        return at + 5
    head, size, children = 1, 0, 0
    if tag >> 4 in (8, 9):
        children = (tag & 15) * (2 if tag >> 4 == 8 else 1)
    elif tag >> 5 == 5:
        size = tag & 31
    elif tag in (0xDC, 0xDD, 0xDE, 0xDF):
        head = 3 if tag in (0xDC, 0xDE) else 5
        children = int.from_bytes(data[at + 1 : at + head], "big") * (2 if tag >= 0xDE else 1)
    elif tag in (0xD9, 0xDA, 0xDB):
        head = 1 + (1 << (tag - 0xD9))
        size = int.from_bytes(data[at + 1 : at + head], "big")
    elif tag in (0xC7, 0xC8, 0xC9):
        head = 1 + (1 << (tag - 0xC7))
        size = int.from_bytes(data[at + 1 : at + head], "big") + 1
    elif 0xD4 <= tag <= 0xD8:
        size = 1 + (1 << (tag - 0xD4))
    elif tag in _FIXED:
        size = _FIXED[tag]
    else:
        assert tag < 0x80 or tag >= 0xE0 or tag in (0xC0, 0xC2, 0xC3), hex(tag)
    if tag == 0xDE and children < 32:
        out.append(0x80 | children // 2)
    else:
        out += data[at : at + head + size]
    at += head + size
    for _ in range(children):
        at = _normal(data, at, out)
    return at


_FIXED = {0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
