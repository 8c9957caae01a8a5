"""`sharegpt` and `custom`: prompts out of a file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastfront.errors import ConfigError
from fastfront.load.options import Data
from fastfront.load.sample import Conversation, Sample, Tokenizer, needed

#: What vLLM leaves out of a ShareGPT file: prompts and answers shorter, prompts longer, both together longer.
_LEAST, _MOST_PROMPT, _MOST_TOTAL = 4, 1024, 2048


def sharegpt(data: Data, count: int, tokenizer: Tokenizer | None, rng: random.Random) -> list[Sample]:
    """Each conversation's first question, and an answer as long as the file's or as `sharegpt_output_len`."""
    encode = needed(tokenizer, "sharegpt").encode
    samples: list[Sample] = []
    for turns in _conversations(data, rng):
        if len(samples) == count:
            break
        length = len(encode(turns[0], True))
        output = data.sharegpt_output_len or len(encode(turns[1], True))
        if length < _LEAST or length > _MOST_PROMPT or length + output > _MOST_TOTAL:
            continue
        if data.sharegpt_output_len is None and output < _LEAST:
            continue
        samples.append(Sample(turns[0], length, output))
    return samples


def sharegpt_talks(
    data: Data, count: int, most: int, tokenizer: Tokenizer | None, rng: random.Random
) -> list[Conversation]:
    """Whole conversations, of at most `most` questions each (0: all)."""
    encode = needed(tokenizer, "sharegpt").encode
    talks: list[Conversation] = []
    for turns in _conversations(data, rng):
        if len(talks) == count:
            break
        pairs = list(zip(turns[::2], turns[1::2], strict=False))[: most or None]
        outputs = [data.sharegpt_output_len or max(1, len(encode(answer, False))) for _, answer in pairs]
        talks.append(Conversation([question for question, _ in pairs], outputs))
    return talks


def _conversations(data: Data, rng: random.Random) -> list[list[str]]:
    """The texts of every conversation with at least two."""
    found = []
    for entry in _json(data):
        turns = entry.get("conversations") if isinstance(entry, dict) else None
        if not isinstance(turns, list) or len(turns) < 2:
            continue
        texts = [turn.get("value") if isinstance(turn, dict) else None for turn in turns]
        if not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"{data.path}: a turn of a conversation has no text `value`")
        found.append([str(text) for text in texts])
    if data.shuffle:
        rng.shuffle(found)
    return found


def _json(data: Data) -> list[Any]:
    try:
        value = json.loads(_path(data).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read --dataset-path {data.path}: {error}") from None
    if not isinstance(value, list):
        raise ConfigError(f"{data.path} is not a JSON list of conversations")
    return value


def custom(data: Data, count: int, tokenizer: Tokenizer | None, rng: random.Random, chat: bool) -> list[Sample]:
    """A line each: `{"prompt": text, "output_tokens": n}`; of a chat also a list of messages, else also token ids."""
    rows = list(json_lines(data))
    if data.shuffle:
        rng.shuffle(rows)
    samples: list[Sample] = []
    for number, row in rows[:count]:
        prompt: Any = row.get("prompt")
        if not _is_prompt(prompt, chat):
            says = "a text or messages" if chat else "a text or token ids"
            raise ConfigError(f"{data.path}, line {number}: `prompt` must be {says}")
        output = data.custom_output_len
        if output == -1:
            output = max(1, natural(row, "output_tokens", data.path, number))
        samples.append(Sample(prompt, _length(prompt, tokenizer, chat), output))
    return samples


def _is_prompt(prompt: Any, chat: bool) -> bool:
    if isinstance(prompt, list) and prompt:
        return all(isinstance(item, dict if chat else int) for item in prompt)
    return isinstance(prompt, str)


def _length(prompt: str | list[Any], tokenizer: Tokenizer | None, chat: bool) -> int:
    """Tokens of a prompt, 0 where only the server knows."""
    if isinstance(prompt, str):
        return len(tokenizer.encode(prompt, True)) if tokenizer is not None else 0
    return 0 if chat else len(prompt)


def json_lines(data: Data) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file with their line numbers; ConfigError names the wrong one."""
    try:
        lines = _path(data).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read --dataset-path {data.path}: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ConfigError(f"{data.path}, line {number}: not a JSON object")
        yield number, row


def natural(row: dict[str, Any], key: str, path: str, number: int) -> int:
    """A whole number of at least 0 in a line; ConfigError where it is not."""
    value = row.get(key)
    if type(value) is not int or value < 0:
        raise ConfigError(f"{path}, line {number}: `{key}` must be a whole number, not {value!r}")
    return value


def _path(data: Data) -> Path:
    if not data.path:
        raise ConfigError(f"--dataset-name {data.name} needs --dataset-path")
    return Path(data.path)
