"""The tokens of a model as grammars need them: read from the tokenizer's own file, or from a GGUF's fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fastfront.gguf_file import read_gguf

Kind = Literal["raw", "byte_fallback", "byte_level"]


class Vocabulary(NamedTuple):
    """Every token as it is written in the vocabulary, by id ("" where there is none), and how that is to be read."""

    tokens: list[str]
    kind: Kind
    #: Whether a text's first word gets a space before it.
    space_first: bool
    #: The tokens that end a text; none: whatever looks like one.
    stop_ids: list[int]

    def find(self, token: str) -> int | None:
        """The id of a token."""
        return self.tokens.index(token) if token in self.tokens else None


def read_vocabulary(model: Path, size: int) -> Vocabulary:
    """The first `size` tokens of a folder or GGUF file; OSError, StartError or ValueError where it tells of none."""
    if model.is_file():
        return _of_gguf(model, size)
    document = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = document["model"]["vocab"]
    named = dict(vocab) if isinstance(vocab, dict) else {entry[0]: at for at, entry in enumerate(vocab)}
    named.update((token["content"], token["id"]) for token in document.get("added_tokens") or ())
    tokens = [""] * size
    for token, at in named.items():
        if at < size:
            tokens[at] = token
    kinds = set(_types(document.get("decoder"))) | set(_types(document.get("pre_tokenizer")))
    kind: Kind = "byte_level" if "ByteLevel" in kinds else "byte_fallback" if "ByteFallback" in kinds else "raw"
    return Vocabulary(tokens, kind, _space_first(document), _ends(model))


def _types(step: dict[str, Any] | None) -> list[str]:
    """The types of a step of a tokenizer and of those in it."""
    if step is None:
        return []
    inner = step.get("decoders") or step.get("pretokenizers") or step.get("normalizers") or ()
    return [step.get("type", ""), *(name for part in inner for name in _types(part))]


def _space_first(document: dict[str, Any]) -> bool:
    before = document.get("pre_tokenizer") or {}
    steps = [before, *(before.get("pretokenizers") or ())]
    for step in steps:
        if step.get("type") == "ByteLevel" and step.get("add_prefix_space"):
            return True
        if step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never":
            return bool(step.get("add_prefix_space", True))
    return "Prepend" in _types(document.get("normalizer"))


def _ends(model: Path) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        file = model / name
        if file.is_file():
            value = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
            if value is not None:
                return value if isinstance(value, list) else [value]
    return []


def _of_gguf(file: Path, size: int) -> Vocabulary:
    values = read_gguf(file).values

    def read(name: str, default: Any = None) -> Any:
        return values.get(f"tokenizer.ggml.{name}", default)

    tokens = read("tokens")
    if not tokens:
        raise ValueError(f"{file.name} has no tokenizer.ggml.tokens")
    kind: Kind = "byte_level" if read("model") == "gpt2" else "byte_fallback"
    end = read("eos_token_id")
    padded = [*tokens, *[""] * (size - len(tokens))][:size]
    space_first = bool(read("add_space_prefix", kind == "byte_fallback"))
    return Vocabulary(padded, kind, space_first, [] if end is None else [end])
