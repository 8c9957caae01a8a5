"""Every sampling parameter against a plain statement of what it means."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from fastfront.engine.rank.request import Sampling
from fastfront.engine.torch.sampler import NO_TOKEN, Row, sample, uniform

VOCAB = 1000
Logits = np.ndarray[Any, np.dtype[np.float64]]


def made_row(prompt: list[int], answer: list[int], *, seed: int = 0, vocab: int = VOCAB, **params: Any) -> Row:
    """A request's row, in the middle of its answer."""
    return Row(Sampling(**params), [*prompt, *answer], len(prompt), seed, vocab)


def made_logits(rows: int = 1, seed: int = 0, vocab: int = VOCAB) -> torch.Tensor:
    """Logits with a few likely tokens."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((rows, vocab)).astype(np.float32) * 3)


def reference(logits: Logits, params: dict[str, Any], prompt: list[int], answer: list[int]) -> Logits:
    """The probabilities of all tokens, by the plainest way to the same."""
    values = logits.astype(np.float64).copy()
    if params.get("allowed_token_ids") is not None:
        values[[t for t in range(len(values)) if t not in params["allowed_token_ids"]]] = -np.inf
    for word in params.get("bad_words_token_ids") or ():
        if answer[len(answer) - len(word) + 1 :] == word[:-1]:
            values[word[-1]] = -np.inf
    if len(answer) < params.get("min_tokens", 0):
        values[[token for token in params["all_stop_token_ids"] if token < len(values)]] = -np.inf
    for token, bias in (params.get("logit_bias") or {}).items():
        values[token] += bias
    repetition = params.get("repetition_penalty", 1.0)
    for token in {*prompt, *answer}:
        values[token] = values[token] / repetition if values[token] > 0 else values[token] * repetition
    for token, count in Counter(answer).items():
        values[token] -= params.get("frequency_penalty", 0.0) * count + params.get("presence_penalty", 0.0)
    values /= params.get("temperature", 1.0) or 1e-9
    chances = np.exp(values - values.max())
    chances /= chances.sum()
    chances[chances < params.get("min_p", 0.0) * chances.max()] = 0.0
    chances /= chances.sum()
    order = np.argsort(-chances, kind="stable")
    if params.get("top_k", 0) > 0:
        chances[order[params["top_k"] :]] = 0.0
        chances /= chances.sum()
    before = np.cumsum(chances[order]) - chances[order]
    chances[order[before >= params.get("top_p", 1.0)]] = 0.0
    result: Logits = chances / chances.sum()
    return result


PROMPT, ANSWER = [1, 2, 3, 3, 500], [4, 4, 4, 500, 7, 8]
CASES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_p": 0.8},
    {"top_p": 0.3},
    {"top_p": 1e-6},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 700},
    {"top_k": 20, "top_p": 0.7},
    {"min_p": 0.1},
    {"min_p": 0.05, "top_p": 0.9, "top_k": 12, "temperature": 1.3},
    {"repetition_penalty": 1.5},
    {"frequency_penalty": 1.0, "presence_penalty": -0.5},
    {"repetition_penalty": 0.7, "frequency_penalty": 0.3, "presence_penalty": 0.2, "top_p": 0.9},
    {"logit_bias": {4: 6.0, 9: -3.0, 500: 7.5}},
    {"allowed_token_ids": [4, 9, 11]},
    {"bad_words_token_ids": [[7, 8, 9], [8, 11], [12], [9, 9]], "allowed_token_ids": [9, 11, 12, 13]},
    {"min_tokens": 7, "all_stop_token_ids": {13, 14, 99_999}, "allowed_token_ids": [13, 14, 15], "max_tokens": 9},
    {"min_tokens": 6, "all_stop_token_ids": {13}, "allowed_token_ids": [13, 15], "max_tokens": 9},
]


@pytest.mark.parametrize("params", CASES, ids=str)
def test_each_parameter_gives_the_chances_that_it_means(params: dict[str, Any]) -> None:
    logits = made_logits(seed=5)
    want = reference(logits[0].numpy(), params, PROMPT, ANSWER)
    draws = 1500
    rows = [made_row(PROMPT, ANSWER, seed=n, **params) for n in range(draws)]
    got = np.bincount(sample(logits.expand(draws, -1).clone(), rows), minlength=VOCAB) / draws
    assert set(np.flatnonzero(got)) <= set(np.flatnonzero(want))
    assert np.abs(got - want).sum() / 2 < 0.02 + 0.5 * np.sqrt(np.count_nonzero(want) / draws)


@pytest.mark.parametrize("params", CASES, ids=str)
def test_greedy_takes_the_likeliest(params: dict[str, Any]) -> None:
    params = {name: value for name, value in params.items() if name not in ("top_p", "top_k", "min_p")}
    params["temperature"] = 0.0
    logits = made_logits(seed=6)
    want = int(reference(logits[0].numpy(), params, PROMPT, ANSWER).argmax())
    assert sample(logits.clone(), [made_row(PROMPT, ANSWER, **params)]) == [want]


def test_a_seed_says_the_same_alone_and_among_others() -> None:
    cases = [*CASES, {"temperature": 0.0}]
    rows = [made_row(PROMPT, ANSWER, seed=n, **cases[n % len(cases)]) for n in range(32)]
    logits = made_logits(32, seed=8)
    alone = [sample(logits[n : n + 1].clone(), [rows[n]])[0] for n in range(32)]
    assert sample(logits.clone(), rows) == alone
    order = list(reversed(range(32)))
    assert sample(logits[order].clone(), [rows[n] for n in order]) == [alone[n] for n in order]


def test_numbers_are_even_and_differ_by_seed_place_and_try() -> None:
    numbers = [uniform(seed, place, attempt) for seed in range(-5, 25) for place in range(30) for attempt in range(3)]
    assert len(set(numbers)) == len(numbers)
    assert all(0 <= number < 1 for number in numbers)
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert counts.min() > 0.8 * len(numbers) / 10
    # The choices of one request have seeds that follow each other.
    assert abs(np.corrcoef([[uniform(s, p) for p in range(500)] for s in (1, 2)])[0, 1]) < 0.15


def test_penalties_follow_the_answer_as_it_grows() -> None:
    tokens = [1, 2, 3]
    params: dict[str, Any] = {"temperature": 0.0, "frequency_penalty": 2.0, "repetition_penalty": 1.3}
    row = Row(Sampling(**params), tokens, 3, 0, VOCAB)
    logits = made_logits(seed=9)
    answer: list[int] = []
    for _ in range(100):
        want = reference(logits[0].numpy(), params, [1, 2, 3], answer)
        (token,) = sample(logits.clone(), [row])
        assert token == int(want.argmax())
        tokens.append(token)
        answer.append(token)


def test_vocabularies_of_any_size() -> None:
    for vocab in (1, 2, 127, 128, 129, 50257):
        logits = made_logits(3, seed=vocab, vocab=vocab)
        rows = [
            made_row([0], [], seed=4, vocab=vocab),
            made_row([0], [], seed=4, vocab=vocab, top_p=0.5),
            made_row([0], [], seed=4, vocab=vocab, top_k=3),
        ]
        assert all(0 <= token < vocab for token in sample(logits.clone(), rows))
        for row, values in zip(rows, logits, strict=True):
            params = {"top_p": row.top_p, "top_k": row.top_k}
            want = reference(values.numpy(), params, [0], [])
            assert want[sample(values[None].clone(), [row])[0]] > 0


def test_where_no_token_is_possible() -> None:
    rows = [
        made_row([1], [], allowed_token_ids=[5], bad_words_token_ids=[[5]]),
        made_row([1], [], allowed_token_ids=[5], bad_words_token_ids=[[5]], temperature=0.0),
        made_row([1], [], temperature=0.0),
    ]
    logits = made_logits(4)
    logits[3] = torch.nan
    got = sample(logits.clone(), [*rows, made_row([1], [], top_p=0.5)])
    assert got == [NO_TOKEN, NO_TOKEN, int(logits[2].argmax()), NO_TOKEN]
    assert sample(logits[3:].clone(), [rows[2]]) == [NO_TOKEN]


def test_the_heaviest_of_many_equal_ones() -> None:
    logits = torch.zeros(1, VOCAB)
    rows = [made_row([1], [], seed=n, top_k=4) for n in range(200)]
    assert len({*sample(logits.expand(200, -1).clone(), rows)}) == 4
    rows = [made_row([1], [], seed=n, top_p=0.5) for n in range(200)]
    assert len({*sample(logits.expand(200, -1).clone(), rows)}) > 100
