from __future__ import annotations

import re
from typing import Any

import pytest

from fastfront.errors import ConfigError
from fastfront.prompt import model


@pytest.mark.parametrize(
    "config, length",
    [
        ({"max_position_embeddings": 40960}, 40960),
        ({}, 2048),
        ({"n_positions": 1024, "max_seq_len": 900}, 900),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 4096),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "default", "rope_theta": 1.0}}, 4096),
        ({"n_positions": 131072, "original_max_position_embeddings": 4096, "rope_scaling": {"type": "longrope"}}, 4096),
        ({"model_type": "gemma3", "text_config": {"n_positions": 100, "rope_scaling": {"factor": 8.0}}}, 100),
        ({"text_config": {"max_position_embeddings": 77}}, 77),
    ],
)
def test_context_length(config: dict[str, Any], length: int) -> None:
    assert model.context_length(config) == length


def test_vocab_size() -> None:
    assert model.vocab_size({"vocab_size": 9}) == 9
    assert model.vocab_size({"text_config": {"vocab_size": 8}, "vocab_size": 9}) == 8
    assert model.vocab_size({"thinker_config": {"text_config": {"vocab_size": 8}}}) == 8
    assert model.vocab_size({}) == 0


def test_eos_token_ids() -> None:
    assert model.eos_token_ids({"eos_token_id": 1}, {"eos_token_id": [3, 2, 3]}) == [3, 2]
    assert model.eos_token_ids({"eos_token_id": 1}, None) == [1]
    assert model.eos_token_ids({"eos_token_id": 1}, {}) == []


def test_sampling_defaults() -> None:
    file = {"temperature": 0.6, "top_k": 20, "top_p": None, "max_new_tokens": 7, "do_sample": True}
    assert model.sampling_defaults(file, "auto") == {"temperature": 0.6, "top_k": 20, "max_tokens": 7}
    assert model.sampling_defaults(file, "vllm") == {}
    assert model.sampling_defaults(file, "vllm", {"top_p": 0.5}) == {"top_p": 0.5}
    assert model.sampling_defaults(None, "auto") == {}


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"temperature": "hot"}, "temperature must be from 0 to 2, not 'hot'"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"top_k": 1.5}, "top_k must be"),
        ({"max_new_tokens": -3}, "max_new_tokens must be from 1"),
        ({"top_p": True}, "top_p must be"),
        ({"bogus": 1}, "no 'bogus'; there are repetition_penalty"),
    ],
)
def test_overrides_that_no_request_could_live_with(overrides: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        model.sampling_defaults(None, "auto", overrides)
