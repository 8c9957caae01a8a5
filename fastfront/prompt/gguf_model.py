"""What a GGUF file says of its model, in the words of the files that a model's folder has."""

from __future__ import annotations

from typing import Any

from fastfront.errors import StartError
from fastfront.gguf_file import GgufFile

Json = dict[str, Any]

#: Architectures whose name in config.json is another one.
_MODEL_TYPES = {
    "gpt-oss": "gpt_oss", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "deepseek2": "deepseek_v3",
    "gemma3": "gemma3_text", "glm4moe": "glm4_moe",
}  # fmt: skip
#: Sampling defaults (`general.sampling.*`) -> their names in generation_config.json.
_SAMPLING = {
    "temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty"
}  # fmt: skip
#: The token that ends a text, a turn, and a message that awaits a tool's answer.
_ENDS = ("eos", "eot", "eom")
_NAMED = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def config(file: GgufFile) -> Json:
    """As config.json: what a frontend must know. StartError for a later part of a model, or for no language model."""
    part, parts = file.values.get("split.no", 0), file.values.get("split.count", 1)
    if part:
        raise StartError(f"{file.path} is part {part + 1} of {parts} of a model: name the first one")
    length = file.of_model("context_length")
    if not isinstance(length, int) or length < 1:
        raise StartError(f"{file.path} holds no language model: {file.architecture or '?'}.context_length is not there")
    embedding = file.tensors.get("token_embd.weight")
    architecture = file.architecture
    ends = end_tokens(file)
    return {
        "model_type": _MODEL_TYPES.get(architecture, architecture),
        "vocab_size": embedding.shape[0] if embedding else len(file.values.get("tokenizer.ggml.tokens", ())),
        "max_position_embeddings": length,
        "num_experts": file.of_model("expert_count", 0),
        "bos_token_id": file.values.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": ends[0] if ends else None,
    }


def generation_config(file: GgufFile) -> Json:
    """As generation_config.json: end tokens and sampling defaults."""
    given = {ours: file.values.get(f"general.sampling.{theirs}") for theirs, ours in _SAMPLING.items()}
    return {"eos_token_id": end_tokens(file), **{name: value for name, value in given.items() if value is not None}}


def end_tokens(file: GgufFile) -> list[int]:
    """Ids after which an answer has ended, the text's own first."""
    ids = (file.values.get(f"tokenizer.ggml.{name}_token_id") for name in _ENDS)
    return list(dict.fromkeys(i for i in ids if isinstance(i, int)))


def tokenizer_config(file: GgufFile) -> Json:
    """As tokenizer_config.json: the named tokens."""
    tokens = file.values.get("tokenizer.ggml.tokens", [])
    ids = {name: file.values.get(f"tokenizer.ggml.{key}_token_id") for key, name in _NAMED.items()}
    named = {name: tokens[i] for name, i in ids.items() if isinstance(i, int) and i < len(tokens)}
    return {"tokenizer_class": "PreTrainedTokenizerFast", **named}


def templates(file: GgufFile) -> dict[str, str]:
    """Chat templates by name; `default` is the one without a name."""
    key = "tokenizer.chat_template"
    found = {name.removeprefix(f"{key}."): text for name, text in file.values.items() if name.startswith(f"{key}.")}
    if key in file.values:
        found["default"] = file.values[key]
    return {name: text for name, text in found.items() if isinstance(text, str)}
