"""Each data set: its lengths, what it shares between prompts, and that a seed decides all of it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import DEFAULT_MODEL
from fastfront.errors import ConfigError, StartError
from fastfront.load.data.exact import added, exact_text
from fastfront.load.data.registry import make_conversations, make_samples
from fastfront.load.options import Data, Load, Target, Turns
from fastfront.load.sample import Sample, Tokenizer
from fastfront.prompt.default_model import GGUF
from tests.load.vocabulary import tokenizer

IDS = Target()
CHAT = Target(chat=True)


def samples(
    count: int, target: Target = IDS, seed: int = 0, words: Tokenizer | None = None, **data: Any
) -> list[Sample]:
    load = Load(target=target, data=Data(**data), num_prompts=count, seed=seed)
    return make_samples(load, words or tokenizer())


def text(sample: Sample) -> str:
    assert isinstance(sample.prompt, str)
    return sample.prompt


def ids(sample: Sample) -> list[int]:
    assert isinstance(sample.prompt, list)
    return [number for number in sample.prompt if isinstance(number, int)]


@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_texts_have_exactly_as_many_tokens(length: int) -> None:
    words = tokenizer()
    for seed in range(20):
        rng = random.Random(seed)
        made = exact_text(words, rng.choices(words.ids, k=length), rng)
        assert len(words.encode(made, False)) == length


@pytest.mark.parametrize("model", ["qwen3", "llama2"])
def test_real_tokenizers(peers: Path, model: str) -> None:
    from fastfront.cli.bench import load_tokenizer

    words = load_tokenizer(str(peers / "models" / model), "auto")
    for made in samples(4, words=words, random_input_len=33, random_prefix_len=5):
        assert made.prompt_tokens == 38
        assert len(words.encode(text(made), True)) == 38
    assert added(words) == (0 if model == "qwen3" else 1)


def test_the_default_model_lies_where_it_is_served_from(
    peers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastfront.cli.bench import load_tokenizer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "fastfront" / "models"
    kept.mkdir(parents=True)
    (kept / GGUF).symlink_to(peers / "smollm2.gguf")
    words = load_tokenizer(DEFAULT_MODEL, "auto")
    (one,) = samples(1, words=words, random_input_len=20)
    assert len(words.encode(text(one), True)) == 20
    with pytest.raises(StartError, match=r"nobody/nothing.*; or name a tokenizer: --tokenizer takes"):
        load_tokenizer("nobody/nothing", "auto")


def test_no_text_of_that_length() -> None:
    """Where nothing but one long piece is left, two tokens cannot be had."""
    only = Tokenizer(lambda text, special: [1], lambda ids: "a", [1])
    with pytest.raises(ConfigError, match="no text of exactly 2 tokens"):
        exact_text(only, [1, 1], random.Random(0))


def test_random_texts() -> None:
    words = tokenizer()
    made = samples(8, random_input_len=20, random_output_len=3)
    assert all(len(words.encode(text(one), True)) == one.prompt_tokens == 20 for one in made)
    assert {one.output_tokens for one in made} == {3}
    assert made == samples(8, random_input_len=20, random_output_len=3)
    assert made != samples(8, random_input_len=20, random_output_len=3, seed=1)
    assert len(set(map(text, made))) > 4


def test_a_chats_length_is_its_texts() -> None:
    made = samples(2, CHAT, random_input_len=20)
    assert all(len(tokenizer().encode(text(one), False)) == one.prompt_tokens == 20 for one in made)


def test_random_ids() -> None:
    made = samples(5, random_input_len=20, as_ids=True)
    assert all(len(ids(one)) == one.prompt_tokens == 20 for one in made)
    assert {number for one in made for number in ids(one)} <= set(tokenizer().ids)


def test_a_shared_prefix_comes_on_top() -> None:
    made = samples(5, random_input_len=10, random_prefix_len=30, as_ids=True)
    assert len({tuple(ids(one)[:30]) for one in made}) == 1
    assert {one.prompt_tokens for one in made} == {40}
    words = tokenizer()
    made = samples(5, random_input_len=10, random_prefix_len=30)
    assert {len(words.encode(text(one), True)) for one in made} == {40}
    assert len({text(one)[:25] for one in made}) == 1
    only = samples(2, random_input_len=1, random_prefix_len=30)
    assert {one.prompt_tokens for one in only} == {31}
    with pytest.raises(ConfigError, match="--random-input-len 1 leaves no token"):
        samples(2, random_input_len=1)


def test_a_range_of_lengths() -> None:
    made = samples(300, random_input_len=40, random_output_len=10, input_range=0.25, output_range=0.5, as_ids=True)
    inputs, outputs = {one.prompt_tokens for one in made}, {one.output_tokens for one in made}
    assert (min(inputs), max(inputs)) == (30, 50)
    assert (min(outputs), max(outputs)) == (5, 15)


def test_cache_hits() -> None:
    made = samples(200, random_input_len=20, cache_hit_fraction=0.8, cache_ratio=0.75, as_ids=True)
    starts = [tuple(ids(one)[:15]) for one in made]
    most = max(set(starts), key=starts.count)
    assert 140 < starts.count(most) < 180
    assert {len(ids(one)) for one in made} == {20}


def test_repeated_prefixes() -> None:
    made = samples(23, name="prefix_repetition", prefix_len=40, suffix_len=5, num_prefixes=4, as_ids=True)
    assert len(made) == 20
    starts = [tuple(ids(one)[:40]) for one in made]
    assert {starts.count(start) for start in starts} == {5}
    assert starts != sorted(starts, key=starts.index)
    words = tokenizer()
    texts = samples(4, name="prefix_repetition", prefix_len=40, suffix_len=5, num_prefixes=2)
    assert {len(words.encode(text(one), True)) for one in texts} == {one.prompt_tokens for one in texts} == {46}
    with pytest.raises(ConfigError, match="--num-prompts 3 is less than"):
        samples(3, name="prefix_repetition", num_prefixes=4)


TALKS = [
    {"conversations": [{"value": "abc abc abc abc"}, {"value": "aaaaa"}, {"value": "def"}, {"value": "fe"}]},
    {"conversations": [{"value": "fff"}, {"value": "aaaaa"}]},
    {"conversations": [{"value": "alone"}]},
    {"conversations": [{"value": "f f" * 1000}, {"value": "aaaaa"}]},
    {"id": 5},
]


@pytest.fixture
def talks(tmp_path: Path) -> str:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(TALKS).replace("f f", "fdf"))
    return str(path)


def test_sharegpt(talks: str) -> None:
    words = tokenizer()
    made = samples(10, name="sharegpt", path=talks, oversample=False)
    # "fff" is three tokens and BOS, which is enough; the fourth is too long.
    assert sorted(made) == sorted(
        Sample(prompt, len(words.encode(prompt, True)), 6) for prompt in ("abc abc abc abc", "fff")
    )
    assert len(samples(10, name="sharegpt", path=talks)) == 10
    assert {one.output_tokens for one in samples(4, name="sharegpt", path=talks, sharegpt_output_len=2)} == {2}
    assert samples(1, name="sharegpt", path=talks, shuffle=False)[0].prompt == "abc abc abc abc"
    short = samples(9, name="sharegpt", path=talks, oversample=False, max_model_len=10)
    assert [one.prompt for one in short] == ["fff"]


def lines(tmp_path: Path, *rows: Any) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n\n")
    return str(path)


def test_custom(tmp_path: Path) -> None:
    path = lines(tmp_path, {"prompt": "abcd", "output_tokens": 3}, {"prompt": [1, 2], "output_tokens": 4})
    made = samples(2, name="custom", path=path, shuffle=False, custom_output_len=-1)
    assert made == [Sample("abcd", 2, 3), Sample([1, 2], 2, 4)]
    assert [one.output_tokens for one in samples(2, name="custom", path=path)] == [256, 256]
    alone = Load(target=IDS, data=Data(name="custom", path=path, shuffle=False), num_prompts=5)
    assert [one.prompt_tokens for one in make_samples(alone, None)[:2]] == [0, 2]
    messages = [{"role": "user", "content": "a"}]
    path = lines(tmp_path, {"prompt": messages})
    assert samples(1, CHAT, name="custom", path=path)[0].prompt == messages


TRACE = [
    {"timestamp": 3000, "input_length": 40, "output_length": 5, "hash_ids": [7, 8, 9]},
    {"timestamp": 500, "input_length": 20, "output_length": 0, "hash_ids": [7]},
    {"timestamp": 4000, "input_length": 8, "output_length": 2, "hash_ids": [8]},
]


def test_a_timed_trace(tmp_path: Path) -> None:
    path = lines(tmp_path, *TRACE)
    made = samples(3, name="timed_trace", path=path, seconds=0.001, chunk_size=16)
    assert [one.due for one in made] == [0.5, 3.0, 4.0]
    assert [one.prompt_tokens for one in made] == [len(ids(one)) for one in made] == [20, 40, 8]
    assert [one.output_tokens for one in made] == [1, 5, 2]
    # The same hash stands for the same ids, at any place.
    assert ids(made[0])[:16] == ids(made[1])[:16]
    assert ids(made[2]) == ids(made[1])[16:24]
    assert len(samples(2, name="timed_trace", path=path)) == 2
    other = [{"t": 1, "i": 2, "o": 3, "h": [1]}]
    keys: dict[str, Any] = {"timestamp_key": "t", "input_key": "i", "output_key": "o", "hash_key": "h"}
    assert samples(1, name="timed_trace", path=lines(tmp_path, *other), **keys)[0].output_tokens == 3


@pytest.mark.parametrize(
    "data, rows, says",
    [
        ({"name": "sharegpt"}, None, "--dataset-name sharegpt needs --dataset-path"),
        ({"name": "sharegpt"}, ["{"], "cannot read --dataset-path"),
        ({"name": "sharegpt"}, [{}], "is not a JSON list of conversations"),
        ({"name": "custom"}, ["x"], "line 1: not a JSON object"),
        ({"name": "custom"}, [{"prompt": 5}], "line 1: `prompt` must be a text or token ids"),
        ({"name": "custom", "custom_output_len": -1}, [{"prompt": "a"}], "`output_tokens` must be a whole number"),
        ({"name": "timed_trace"}, [{"timestamp": "x"}], "`timestamp` must be a number, not 'x'"),
        ({"name": "timed_trace"}, [{"timestamp": 1, "input_length": -1}], "`input_length` must be a whole number"),
        ({"name": "timed_trace"}, [{"timestamp": 1, "hash_ids": 1}], "`hash_ids` must be a list"),
        ({"max_model_len": 5}, None, "gives no prompt with these options"),
        ({"path": "x"}, None, "--dataset-name random reads no file"),
        ({"cache_ratio": 0.5}, None, "need each other"),
        ({"cache_ratio": 0.5, "cache_hit_fraction": 0.5}, None, "--random-cache-hit-fraction needs"),
        ({"name": "custom", "as_ids": True}, [], "--prompt-token-ids works with completions"),
    ],
)
def test_errors(tmp_path: Path, data: dict[str, Any], rows: list[Any] | None, says: str) -> None:
    where = {} if rows is None else {"path": lines(tmp_path, *rows)}
    with pytest.raises(ConfigError, match=says):
        samples(2, **{**data, **where})


def test_what_needs_a_tokenizer() -> None:
    with pytest.raises(ConfigError, match="--dataset-name random needs a tokenizer"):
        make_samples(Load(target=IDS), None)


def test_what_a_chat_cannot_send(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only --backend openai takes"):
        samples(1, CHAT, name="timed_trace", path=lines(tmp_path, *TRACE))
    with pytest.raises(ConfigError, match="--prompt-token-ids works with completions"):
        samples(1, CHAT, as_ids=True)


def test_conversations() -> None:
    words = tokenizer()
    load = Load(target=CHAT, data=Data(random_input_len=12, random_output_len=4), num_prompts=30)
    made = make_conversations(load, Turns(count=3, input_len=5), words)
    assert {len(one.questions) for one in made} == {3}
    assert [[len(words.encode(q, False)) for q in one.questions] for one in made] == [[12, 5, 5]] * 30
    assert {tuple(one.output_tokens) for one in made} == {(4, 4, 4)}
    made = make_conversations(load, Turns(least=1, most=4), words)
    assert {len(one.questions) for one in made} == {1, 2, 3, 4}
    with pytest.raises(ConfigError, match="--multi-turn-min-turns 5 is more than"):
        make_conversations(load, Turns(least=5, most=4), words)
    with pytest.raises(ConfigError, match="--multi-turn works with texts of"):
        make_conversations(replace(load, data=Data(name="custom")), Turns(), words)


def test_conversations_of_a_file(talks: str) -> None:
    load = Load(target=CHAT, data=Data(name="sharegpt", path=talks, shuffle=False), num_prompts=1)
    (made,) = make_conversations(load, Turns(), tokenizer())
    assert made.questions == ["abc abc abc abc", "def"]
    assert made.output_tokens == [5, 2]
    (short,) = make_conversations(load, Turns(most=1), tokenizer())
    assert short.questions == ["abc abc abc abc"]
