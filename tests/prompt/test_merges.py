"""A tokenizer.json's merges in the older form: the same file but for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.prompt.merges import join_merges

#: What looks like the JSON around it, what JSON escapes, and more pairs than are read at once.
PAIRS = [
    *(
        [",", "Ċ"],
        ["[", "]"],
        ["]", ","],
        ['"', "\\"],
        ['\\"', '",'],
        ['"],["', '","'],
        ["é", "\u4e16"],
        ["\n", "\x01"],
    ),
    *([f"{n}", "x"] for n in range(2500)),
]


def tokenizer(merges: Any) -> dict[str, Any]:
    return {"version": "1.0", "model": {"type": "BPE", "vocab": {"merges": 0, "a b": 1}, "merges": merges}, "end": [1]}


@pytest.mark.parametrize("form", [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])
def test_pairs_become_strings(form: dict[str, Any]) -> None:
    joined = join_merges(json.dumps(tokenizer(PAIRS), **form).encode())
    assert json.loads(joined) == tokenizer([f"{left} {right}" for left, right in PAIRS])


@pytest.mark.parametrize(
    "merges", [["a b", "c d"], [["a", "b"], ["c ", "d"]], [["a", "b"], "c d"], [["a", "b", "c"]], [1], {}, None, "x"]
)
def test_others_stay(merges: Any) -> None:
    text = json.dumps(tokenizer(merges)).encode()
    assert join_merges(text) is text


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b'{"model": 1}', b'{"model": {}}', b'{"model": {"merges": [["a", "b"]']
)
def test_what_is_no_tokenizer_stays(text: bytes) -> None:
    assert join_merges(text) is text


def test_no_merges() -> None:
    assert json.loads(join_merges(json.dumps(tokenizer([])).encode())) == tokenizer([])


@pytest.mark.parametrize("model", ["qwen3", "gemma3", "gptoss", "smollm2"])
def test_real_ones(models: Path, model: str) -> None:
    text = (models / model / "tokenizer.json").read_bytes()
    want = json.loads(text)
    want["model"]["merges"] = [" ".join(pair) for pair in want["model"]["merges"]]
    assert json.loads(join_merges(text)) == want
