"""The six real vocabularies of the reference cases, for either twin."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenizers import Tokenizer

from fastfront.text import vocab as text_vocab

MODELS = ("qwen3", "llama3_1", "gemma3", "deepseek_v3", "gptoss", "llama2")


@functools.cache
def _loaded(path: Path) -> tuple[list[str | None], set[int], dict[str, Any]]:
    raw = json.loads(path.read_text())
    tokenizer = Tokenizer.from_file(str(path))
    tokens = [tokenizer.id_to_token(n) for n in range(tokenizer.get_vocab_size(True))]
    return tokens, {t["id"] for t in raw["added_tokens"] if t["special"]}, raw["decoder"]


_built: dict[tuple[str, str], Any] = {}


def vocab(fast: SimpleNamespace, peers: Path, model: str, monkeypatch: Any) -> Any:
    """The Vocab of `model`, of the twin that `fast` holds."""
    key = (fast.kind, model)
    if key not in _built:
        monkeypatch.setattr(text_vocab, "Vocab", fast.Vocab)
        tokens, special, decoder = _loaded(peers / "models" / model / "tokenizer.json")
        _built[key] = text_vocab.build_vocab(tokens, special, decoder)
    return _built[key]


def rows(shared: Path, name: str) -> list[dict[str, Any]]:
    """The cases of one file."""
    return [json.loads(line) for line in (shared / "cases" / name).read_text().splitlines()]
