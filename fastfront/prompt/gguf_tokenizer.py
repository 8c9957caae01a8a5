"""The tokenizer.json that a GGUF file's vocabulary stands for.

A GGUF names the way to cut text into words (`tokenizer.ggml.pre`) instead of saying it; the names are llama.cpp's, what
they mean is what the tokenizer.json of the first model of that name says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fastfront.errors import StartError
from fastfront.gguf_file import GgufFile

Json = dict[str, Any]

#: `tokenizer.ggml.token_type`.
UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5
SPACE = "▁"


class _Words(NamedTuple):
    """How a byte-level tokenizer cuts text into words, and what goes with it."""

    steps: list[Json]
    normalizer: Json | None = None
    ignore_merges: bool = False
    adds_bos: bool = False


def _split(regex: str) -> list[Json]:
    step = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return [step, _byte_level(use_regex=False)]


def _byte_level(*, use_regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
)
_DIGITS = [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)]

#: `tokenizer.ggml.pre` -> what it stands for.
WORDS = {
    "gpt-2": _Words([_byte_level(use_regex=True)]),
    "olmo": _Words([_byte_level(use_regex=True)]),
    "smollm": _Words(_DIGITS),
    "starcoder": _Words(_DIGITS),
    "llama-bpe": _Words(_split(_LLAMA3), ignore_merges=True, adds_bos=True),
    "smaug-bpe": _Words(_split(_LLAMA3)),
    "qwen2": _Words(_split(_QWEN2), normalizer={"type": "NFC"}),
    "deepseek-r1-qwen": _Words(_split(_QWEN2)),
    "tekken": _Words(_split(_TEKKEN), ignore_merges=True, adds_bos=True),
}
WORDS["llama3"] = WORDS["llama-v3"] = WORDS["llama-bpe"]
WORDS["gpt2"] = WORDS["gpt-2"]


def tokenizer_json(file: GgufFile) -> Json:
    """The content of tokenizer.json; StartError for a kind of vocabulary that is not served."""
    kind = file.values.get("tokenizer.ggml.model")
    if kind not in _KINDS:
        raise _refusal(file, f"its tokenizer is of the kind {kind!r}; {' and '.join(_KINDS)} are served")
    tokens = file.values.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise _refusal(file, "it has no vocabulary (tokenizer.ggml.tokens)")
    types = file.values.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    if len(types) != len(tokens):
        raise _refusal(file, f"it has {len(tokens)} tokens and {len(types)} token types")
    pads = {i for i, text in enumerate(tokens) if types[i] == UNUSED and text == f"[PAD{i}]"}
    vocabulary = {text: i for i, text in enumerate(tokens) if i not in pads}
    added = [
        {
            "id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": types[i] != USER_DEFINED,
        }
        for text, i in vocabulary.items()
        if types[i] in (UNKNOWN, CONTROL, USER_DEFINED)
    ]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        **_KINDS[kind](file, vocabulary, types),
    }


def _byte_level_bpe(file: GgufFile, vocabulary: dict[str, int], types: Sequence[int]) -> Json:
    pre = file.values.get("tokenizer.ggml.pre")
    words = WORDS.get(str(pre))
    if words is None:
        known = ", ".join(sorted(WORDS))
        raise _refusal(file, f"its tokenizer cuts words in the way {pre!r} (tokenizer.ggml.pre); {known} are served")
    merges = file.values.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise _refusal(file, "it has no merges (tokenizer.ggml.merges)")
    return {
        "normalizer": words.normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": words.steps},
        "post_processor": _ends(file, words.adds_bos),
        "decoder": _byte_level(use_regex=True),
        "model": _model(vocabulary, [merge.split(" ", 1) for merge in merges], ignore_merges=words.ignore_merges),
    }


def _sentencepiece(file: GgufFile, vocabulary: dict[str, int], types: Sequence[int]) -> Json:
    """The BPE of sentencepiece: merges are told by the scores of what they make."""
    scores = file.values.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(types):
        raise _refusal(file, "it has no score for each token (tokenizer.ggml.scores)")
    prefix = bool(file.values.get("tokenizer.ggml.add_space_prefix", True))
    unknown = file.values.get("tokenizer.ggml.unknown_token_id")
    names = {i: text for text, i in vocabulary.items()}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    decoders = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        *strip,
    ]
    before = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, replace]},
        "pre_tokenizer": None,
        "post_processor": _ends(file, True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(
            vocabulary,
            _merges(vocabulary, types, scores),
            unk_token=names.get(unknown) if isinstance(unknown, int) else None,
            fuse_unk=True,
            byte_fallback=True,
        ),
    }


_KINDS: dict[Any, Callable[[GgufFile, dict[str, int], Sequence[int]], Json]] = {
    "gpt2": _byte_level_bpe,
    "llama": _sentencepiece,
}


def _merges(vocabulary: dict[str, int], types: Sequence[int], scores: Sequence[float]) -> list[list[str]]:
    """Every way to make one piece of two: by the piece's score, the best first, then by its id and its parts'."""
    ways: list[tuple[float, int, int, int, str, str]] = []
    for piece, i in vocabulary.items():
        if types[i] in (UNKNOWN, CONTROL):
            continue
        for cut in range(1, len(piece)):
            left, right = vocabulary.get(piece[:cut]), vocabulary.get(piece[cut:])
            if left is not None and right is not None:
                ways.append((-scores[i], i, left, right, piece[:cut], piece[cut:]))
    ways.sort(key=lambda way: way[:4])
    return [[left, right] for *_, left, right in ways]


def _model(vocabulary: dict[str, int], merges: list[list[str]], **other: Any) -> Json:
    common: Json = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    common |= {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {"type": "BPE", **common, **other, "vocab": vocabulary, "merges": merges}


def _ends(file: GgufFile, adds_bos: bool) -> Json | None:
    """Adds the tokens that begin and end every prompt."""
    tokens = file.values["tokenizer.ggml.tokens"]
    wanted = {"bos": adds_bos, "eos": False}
    placed: dict[str, int] = {}
    for name, default in wanted.items():
        i = file.values.get(f"tokenizer.ggml.{name}_token_id")
        if file.values.get(f"tokenizer.ggml.add_{name}_token", default) and isinstance(i, int):
            if i >= len(tokens):
                raise _refusal(file, f"its {name} token {i} is outside of the vocabulary")
            placed[name] = i
    if not placed:
        return _byte_level(use_regex=False) if file.values["tokenizer.ggml.model"] == "gpt2" else None

    def sides(kind: int, text: str) -> list[Json]:
        around = {name: [{"SpecialToken": {"id": tokens[i], "type_id": kind}}] for name, i in placed.items()}
        middle = {"Sequence": {"id": text, "type_id": kind}}
        return [*around.get("bos", []), middle, *around.get("eos", [])]

    specials = {tokens[i]: {"id": tokens[i], "ids": [i], "tokens": [tokens[i]]} for i in placed.values()}
    both = [*sides(0, "A"), *sides(1, "B")]
    return {"type": "TemplateProcessing", "single": sides(0, "A"), "pair": both, "special_tokens": specials}


def _refusal(file: GgufFile, why: str) -> StartError:
    return StartError(f"the tokenizer of {file.path} cannot be used: {why}. --tokenizer FOLDER names another one")
