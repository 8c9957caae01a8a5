"""Words of a command line against the table."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront.cli.argv import Words, read_words
from fastfront.cli.flags_table import SERVE
from fastfront.errors import ConfigError


def read(line: str) -> Words:
    return read_words(line.split(), SERVE)


@pytest.mark.parametrize(
    "line, values",
    [
        ("", {}),
        ("--port 81", {"port": 81}),
        ("--port=81", {"port": 81}),
        ("--port 80 --port 81", {"port": 81}),
        ("--served-model-name a b", {"served_model_name": ["a", "b"]}),
        ("--served_model_name=a", {"served_model_name": ["a"]}),
        ("--disable-log-stats", {"disable_log_stats": True}),
        ("--enable_access_log false", {"enable_access_log": False}),
        ("--no-enable-access-log", {"enable_access_log": False}),
        ("--max-logprobs -1", {"max_logprobs": -1}),
        ("-dp 2 -dpl=1", {"data_parallel_size": 2, "data_parallel_size_local": 1}),
        ("--handshake-host h --handshake-port 5", {"data_parallel_address": "h", "data_parallel_rpc_port": 5}),
        ('--allowed-origins ["a"]', {"allowed_origins": ["a"]}),
        ('--hf-overrides {"a":1}', {"hf_overrides": {"a": 1}}),
        ("--hf-overrides.a.b 1 --hf_overrides.a.c_d=x", {"hf_overrides": {"a": {"b": 1, "c_d": "x"}}}),
        ("--hf-token --port 1", {"hf_token": True, "port": 1}),
        ("--log-level debug", {"log_level": "DEBUG"}),
        ("--api-key a b", {"api_key": ["a", "b"]}),
    ],
)
def test_values(line: str, values: dict[str, Any]) -> None:
    got = read(line)
    assert got.values == values
    assert not got.unknown
    assert not got.rest


def test_the_engines_words_come_out_as_they_were() -> None:
    got = read("--dtype half -tp 2 --port 81 -O3 --x-config.mode 3 --enforce-eager --max_num_seqs=5 -- --x -- y")
    assert got.values == {"port": 81}
    assert got.unknown == "--dtype half -tp 2 -O3 --x-config.mode 3 --enforce-eager --max_num_seqs=5".split()
    assert got.rest == ["--x", "--", "y"]


@pytest.mark.parametrize(
    "line, says",
    [
        ("--port", "--port needs a value"),
        ("--port x", "--port must be a whole number from 0 to 65535, not 'x'"),
        ("--port 65536", "not 65536"),
        ("--port 80 81", "unexpected argument '81'"),
        ("--stream-interval 0", "--stream-interval must be a whole number of at least 1, not 0"),
        ("--served-model-name --port 1", "--served-model-name needs at least one value"),
        ("--hf-overrides [1]", "must be a JSON object, not [1]"),
        ("--hf-overrides {", "must be a JSON object, not '{'"),
        ("--hf-overrides.a", "--hf-overrides.a needs a value"),
        ("--hf-overrides.a 1 --hf-overrides.a.b 1", "a is not an object"),
        ("--port.a 1", "--port.a is not an option"),
        ("--allowed-origins *", "must be a JSON list of strings"),
        ("--engine x", "--engine must be one of auto, torch, vllm, mock, none, not 'x'"),
        ("--log-level loud", "--log-level must be one of DEBUG"),
        ("word", "unexpected argument 'word'"),
        ("--no-enable-access-log=false", "--no-enable-access-log takes no value, but 'false' is given"),
        ("--no-enable-access-log false", "unexpected argument 'false'"),
        ("--enable-access-log=maybe", "--enable-access-log must be true or false, not 'maybe'"),
        ("--enable-access-log=", "--enable-access-log must be true or false, not ''"),
        ("--hf-overrides " + "[" * 100_000, "--hf-overrides must be a JSON object, not '[[["),
        ("--hf-overrides.a " + "[" * 100_000, "--hf-overrides.a is nested too deeply"),
    ],
)
def test_errors_name_the_option_and_the_value(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(line)
    assert says in str(caught.value)
