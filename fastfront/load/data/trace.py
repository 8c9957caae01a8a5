"""`timed_trace`: lengths, shared prefixes and arrival times that were recorded on a real server (Mooncake's form)."""

from __future__ import annotations

import random
from typing import Any

from fastfront.errors import ConfigError
from fastfront.load.data.files import json_lines, natural
from fastfront.load.options import Data
from fastfront.load.sample import Sample, Tokenizer


def timed_trace(data: Data, count: int, tokenizer: Tokenizer) -> list[Sample]:
    """The first `count` lines, by time. Each hash id stands for the same `chunk_size` token ids wherever it comes."""
    samples: list[Sample] = []
    for number, row in json_lines(data):
        if len(samples) == count:
            break
        time: Any = row.get(data.timestamp_key)
        if type(time) not in (int, float):
            raise ConfigError(f"{data.path}, line {number}: `{data.timestamp_key}` must be a number, not {time!r}")
        hashes = row.get(data.hash_key, [])
        if not isinstance(hashes, list):
            raise ConfigError(f"{data.path}, line {number}: `{data.hash_key}` must be a list")
        length = natural(row, data.input_key, data.path, number)
        output = natural(row, data.output_key, data.path, number)
        ids = _ids(hashes, length, data.chunk_size, tokenizer, number)
        samples.append(Sample(ids, length, max(1, output), float(time) * data.seconds))
    return sorted(samples, key=lambda sample: sample.due or 0.0)


def _ids(hashes: list[object], length: int, chunk_size: int, tokenizer: Tokenizer, number: int) -> list[int]:
    """A chunk of ids for each hash; what no hash covers is the line's own."""
    ids: list[int] = []
    for chunk in hashes:
        if len(ids) >= length:
            break
        ids += random.Random(f"{chunk}").choices(tokenizer.ids, k=chunk_size)
    if len(ids) < length:
        ids += random.Random(f"line {number}").choices(tokenizer.ids, k=length - len(ids))
    return ids[:length]
