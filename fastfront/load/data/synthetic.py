"""`random` and `prefix_repetition`: made-up prompts of given lengths."""

from __future__ import annotations

import math
import random

from fastfront.errors import ConfigError
from fastfront.load.data.exact import added, exact_text
from fastfront.load.options import Data
from fastfront.load.sample import Sample, Tokenizer


class Maker:
    """Makes prompts out of ids that follow each other in the vocabulary, from a place that is drawn (as vLLM does)."""

    def __init__(self, data: Data, tokenizer: Tokenizer, rng: random.Random, chat: bool) -> None:
        self._as_ids = data.as_ids
        self._tokenizer = tokenizer
        self._rng = rng
        #: Tokens of each prompt that the server adds to its text.
        self.added = 0 if data.as_ids or chat else added(tokenizer)

    def run(self, length: int) -> list[int]:
        """`length` ids in a row."""
        ids = self._tokenizer.ids
        start = self._rng.randrange(len(ids))
        return [ids[(start + step) % len(ids)] for step in range(length)]

    def shared(self, length: int) -> list[int]:
        """`length` ids for prompts to begin with."""
        ids = self._rng.choices(self._tokenizer.ids, k=length)
        return ids if self._as_ids else self._tokenizer.encode(self.text(ids), False)

    def sample(self, ids: list[int], output_tokens: int) -> Sample:
        """A request whose prompt is `ids`, or a text of as many tokens that begins as theirs does."""
        total = len(ids) + self.added
        if self._as_ids:
            return Sample(ids, total, output_tokens)
        return Sample(self.text(ids), total, output_tokens)

    def text(self, ids: list[int]) -> str:
        """A text of exactly as many tokens."""
        return exact_text(self._tokenizer, ids, self._rng)


def random_samples(data: Data, count: int, tokenizer: Tokenizer, rng: random.Random, chat: bool) -> list[Sample]:
    """Prompts of `random_prefix_len` shared tokens and others of their own."""
    make = Maker(data, tokenizer, rng, chat)
    inputs = lengths(rng, max(0, data.random_input_len - make.added), data.input_range, count)
    outputs = lengths(rng, data.random_output_len, data.output_range, count)
    if data.cache_hit_fraction:
        return _bimodal(data, make, inputs, outputs, rng)
    prefix = make.shared(data.random_prefix_len)
    if len(prefix) + min(inputs) < 1:
        raise ConfigError(f"--random-input-len {data.random_input_len} leaves no token for the prompt")
    return [
        make.sample(prefix + make.run(length), max(1, output)) for length, output in zip(inputs, outputs, strict=True)
    ]


def _bimodal(data: Data, make: Maker, inputs: list[int], outputs: list[int], rng: random.Random) -> list[Sample]:
    """A fraction of the prompts begins with the same tokens, the others with their own."""
    prefix = make.shared(max(inputs))
    samples = []
    for length, output in zip(inputs, outputs, strict=True):
        cached = round(length * data.cache_ratio) if rng.random() < data.cache_hit_fraction else 0
        samples.append(make.sample(prefix[:cached] + make.run(length - cached), max(1, output)))
    return samples


def repeated_prefixes(data: Data, count: int, tokenizer: Tokenizer, rng: random.Random, chat: bool) -> list[Sample]:
    """`count // num_prefixes` prompts for each of `num_prefixes` beginnings, shuffled."""
    each = count // data.num_prefixes
    if not each:
        raise ConfigError(f"--num-prompts {count} is less than --prefix-repetition-num-prefixes {data.num_prefixes}")
    make = Maker(data, tokenizer, rng, chat)
    samples = []
    for _ in range(data.num_prefixes):
        prefix = make.shared(data.prefix_len)
        for _ in range(each):
            ids = prefix + rng.choices(tokenizer.ids, k=data.suffix_len)
            samples.append(make.sample(ids, data.prefix_output_len))
    if data.shuffle:
        rng.shuffle(samples)
    return samples


def lengths(rng: random.Random, middle: int, spread: float, count: int) -> list[int]:
    """Uniform whole numbers from middle * (1 - spread) to middle * (1 + spread)."""
    low, high = math.floor(middle * (1 - spread)), math.ceil(middle * (1 + spread))
    return [rng.randint(low, high) for _ in range(count)]
