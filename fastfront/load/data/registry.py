"""From options to samples, or to conversations."""

from __future__ import annotations

import random

from fastfront.errors import ConfigError
from fastfront.load.data.files import custom, sharegpt, sharegpt_talks
from fastfront.load.data.synthetic import Maker, random_samples, repeated_prefixes
from fastfront.load.data.trace import timed_trace
from fastfront.load.options import Data, Load, Turns
from fastfront.load.sample import Conversation, Sample, Tokenizer, needed


def make_samples(load: Load, tokenizer: Tokenizer | None) -> list[Sample]:
    """The requests of a run, the same for the same seed; raises ConfigError."""
    data, count, chat = load.data, load.num_prompts, load.target.chat
    _check(data, chat)
    rng = random.Random(load.seed)
    if data.name == "random":
        samples = random_samples(data, count, needed(tokenizer, data.name), rng, chat)
    elif data.name == "prefix_repetition":
        samples = repeated_prefixes(data, count, needed(tokenizer, data.name), rng, chat)
    elif data.name == "timed_trace":
        samples = timed_trace(data, count, needed(tokenizer, data.name))
    elif data.name == "sharegpt":
        samples = sharegpt(data, count, tokenizer, rng)
    else:
        samples = custom(data, count, tokenizer, rng, chat)
    if data.max_model_len is not None:
        samples = [s for s in samples if s.prompt_tokens + s.output_tokens <= data.max_model_len]
    if not samples:
        raise ConfigError(f"--dataset-name {data.name} gives no prompt with these options")
    if data.name in ("sharegpt", "custom") and data.oversample and len(samples) < count:
        samples += rng.choices(samples, k=count - len(samples))
    return samples


def make_conversations(load: Load, turns: Turns, tokenizer: Tokenizer | None) -> list[Conversation]:
    """The conversations of a run, the same for the same seed; raises ConfigError."""
    data, count = load.data, load.num_prompts
    _check(data, load.target.chat)
    rng = random.Random(load.seed)
    if data.name == "sharegpt":
        talks = sharegpt_talks(data, count, turns.most, tokenizer, rng)
        if not talks:
            raise ConfigError(f"{data.path} holds no conversation")
        return talks
    if data.name != "random" or data.as_ids:
        raise ConfigError("--multi-turn works with texts of --dataset-name random or sharegpt")
    make = Maker(data, needed(tokenizer, data.name), rng, chat=True)
    least = turns.least or turns.count
    most = turns.most or max(turns.count, least)
    if least > most:
        raise ConfigError(f"--multi-turn-min-turns {least} is more than --multi-turn-max-turns {most}")
    talks = []
    for _ in range(count):
        number = rng.randint(least, most)
        sizes = [data.random_input_len, *[turns.input_len or data.random_input_len] * (number - 1)]
        questions = [make.text(make.run(size)) for size in sizes]
        talks.append(Conversation(questions, [data.random_output_len] * number))
    return talks


def _check(data: Data, chat: bool) -> None:
    """ConfigError for options that contradict each other."""
    made_up = data.name in ("random", "prefix_repetition")
    if made_up and data.path:
        raise ConfigError(f"--dataset-name {data.name} reads no file, but --dataset-path {data.path} is given")
    if data.as_ids and (chat or not made_up):
        raise ConfigError("--prompt-token-ids works with completions of --dataset-name random or prefix_repetition")
    if data.name == "timed_trace" and chat:
        raise ConfigError("--dataset-name timed_trace sends token ids, which only --backend openai takes")
    if bool(data.cache_hit_fraction) != bool(data.cache_ratio):
        raise ConfigError("--random-cache-hit-fraction and --random-cache-ratio need each other")
    if data.cache_hit_fraction and not (data.as_ids and data.name == "random"):
        raise ConfigError("--random-cache-hit-fraction needs --dataset-name random and --prompt-token-ids")
