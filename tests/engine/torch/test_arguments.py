"""The built-in engine's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastfront.engine.torch.arguments import parse
from fastfront.engine.torch.settings import EngineSettings, RunnerSettings
from fastfront.errors import ConfigError

NEEDED = ["m", "--handshake", "tcp://h:1"]


def test_defaults_are_those_of_the_records() -> None:
    assert parse(NEEDED) == (RunnerSettings(model=Path("m")), EngineSettings(handshake="tcp://h:1"))


def test_every_option_lands() -> None:
    words = (
        "--local --device cuda:1 --dtype half --max_model_len 32K --block-size 32 --gpu-memory-utilization=0.5 "
        "--num-gpu-blocks-override 9 --max-num-seqs 3 --max-num-batched-tokens 44 --enforce-eager --seed 5 "
        "--disable-log-stats --no-enable-prefix-caching --enable-chunked-prefill --trust-remote-code -tp 1 "
        "--log-level debug"
    ).split()
    config = '{"profiler": "torch", "torch_profiler_dir": "/t"}'
    assert parse([*NEEDED, *words, "--profiler-config", config]) == (
        RunnerSettings(
            model=Path("m"), device="cuda:1", dtype="float16", max_model_len=32768, block_size=32,
            gpu_memory_utilization=0.5, num_gpu_blocks_override=9, max_num_seqs=3, max_num_batched_tokens=44,
            enforce_eager=True,
        ),
        EngineSettings(
            handshake="tcp://h:1", local=True, seed=5, log_stats=False, enable_prefix_caching=False,
            torch_profiler_dir=Path("/t"), log_level="DEBUG",
        ),
    )  # fmt: skip


@pytest.mark.parametrize("word, length", [("64", 64), ("32k", 32000), ("1M", 1 << 20), ("auto", None), ("-1", None)])
def test_lengths(word: str, length: int | None) -> None:
    assert parse([*NEEDED, f"--max-model-len={word}"])[0].max_model_len == length


def test_a_step_has_room_for_as_many_tokens_as_requests() -> None:
    assert parse([*NEEDED, "--max-num-seqs", "5000"])[0].max_num_batched_tokens == 10000


@pytest.mark.parametrize(
    "line, says",
    [
        ("--no-such 3 --quantization=awq -O3", "does not have these options: --no-such, --quantization, -O3"),
        ("--dtype int8", "--dtype: invalid choice: 'int8'"),
        ("--device mps", "--device: must be auto, cuda, cuda:N or cpu, not 'mps'"),
        ("--max-model-len 1.5", "--max-model-len: must be a whole number of at least 1, or auto, not '1.5'"),
        ("--max-model-len inf", "--max-model-len: must be a whole number"),
        ("--block-size 0", "--block-size: must be a whole number of at least 1, not '0'"),
        ("--gpu-memory-utilization 1.1", "--gpu-memory-utilization: must be a number above 0 and at most 1"),
        ("--gpu-memory-utilization nan", "--gpu-memory-utilization: must be a number"),
        ("--no-enable-chunked-prefill", "--no-enable-chunked-prefill is not served"),
        ("-tp 2", "-tp/--tensor-parallel-size: the built-in engine has 1 only, not 2"),
        ("--kv-cache-dtype fp8", "--kv-cache-dtype: the built-in engine has auto only, not fp8"),
        ("--max-num-batched-tokens 256", "--max-num-batched-tokens 256 must be more than --max-num-seqs 256"),
        ("--profiler-config []", "--profiler-config: must be"),
        ("--profiler-config {\"profiler\":\"cuda\"}", "--profiler-config: must be"),
        ("--seed", "--seed: expected one argument"),
    ],
)
def test_what_is_not_served_is_named(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse([*NEEDED, *line.split()])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
