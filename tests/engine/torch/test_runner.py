"""Memory, sleep and the choice of device and type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fastfront.engine.torch import device, memory
from fastfront.engine.torch.batch import Batch
from fastfront.engine.torch.device import choose_device, choose_dtype
from fastfront.engine.torch.linear import linear
from fastfront.engine.torch.runner import Runner
from fastfront.engine.torch.settings import RunnerSettings
from fastfront.errors import ConfigError, StartError
from tests.engine.torch.tiny import Cache, check, feed, make, prompts, runner_for

CPU = torch.device("cpu")


def test_sleep_and_wake(tmp_path: Path) -> None:
    model = make("qwen2", tmp_path)
    runner = runner_for(tmp_path)
    batch = Batch([5, 6], [2], [0], [Cache(runner).table(2)], [1])
    before = runner.run(batch).clone()
    runner.sleep(1)
    with pytest.raises(RuntimeError, match="sleeps"):
        runner.run(batch)
    runner.wake(["weights"])
    with pytest.raises(RuntimeError, match="sleeps"):
        runner.run(batch)
    runner.wake(["kv_cache"])
    assert torch.equal(runner.run(batch), before)
    runner.sleep(2)
    runner.wake(None)
    runner.wake(None)
    check(model, runner, prompts(1, [20]), 3)


def test_waking_without_the_files_fails(tmp_path: Path) -> None:
    make("llama", tmp_path)
    runner = runner_for(tmp_path)
    runner.sleep(2)
    (tmp_path / "config.json").unlink()
    with pytest.raises(StartError, match=r"config\.json"):
        runner.wake(None)


@pytest.mark.parametrize("left", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_with_its_sequence(left: float, tmp_path: Path) -> None:
    """Blocks that a broken sequence had are given to others, which write only their beginnings."""
    model = make("qwen2", tmp_path)
    runner = runner_for(tmp_path, num_gpu_blocks_override=9)
    assert runner._cache is not None
    everybody = runner._cache.whole[:, runner._planner.kv_heads :]  # without the block of nobody
    with torch.inference_mode():
        everybody.fill_(left)
    check(model, runner, prompts(1, [21, 5, 16]), 14)
    with torch.inference_mode():
        everybody.fill_(left)
    assert feed(runner, prompts(2, [40]), [Cache(runner).table(40)], 7)[0].isfinite().all()


def sized(folder: Path, monkeypatch: pytest.MonkeyPatch, free: int, **settings: object) -> Runner:
    """A runner where so many bytes are free."""
    monkeypatch.setattr(memory, "free_memory", lambda where: free)
    return Runner(RunnerSettings(**{"model": folder, "device": "cpu", "dtype": "float32", **settings}))  # type: ignore[arg-type]


def test_the_cache_is_as_large_as_sequences_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path)
    runner = sized(tmp_path, monkeypatch, 1 << 40, max_num_seqs=5)
    assert runner.num_blocks == 1 + 5 * 512 // 16
    assert runner.max_model_len == 512


def test_the_cache_on_a_cpu_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path)
    block = 16 * 3 * 2 * 2 * 8 * 4
    monkeypatch.setattr(memory, "CPU_CACHE", 40 * block)
    assert sized(tmp_path, monkeypatch, 1 << 40).num_blocks == 40
    # One sequence always has room if there is memory for it.
    monkeypatch.setattr(memory, "CPU_CACHE", 4 * block)
    assert sized(tmp_path, monkeypatch, 1 << 40).num_blocks == 1 + 512 // 16


def test_little_memory_shortens_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path)
    few = {"max_num_seqs": 1, "max_num_batched_tokens": 2}
    runner = sized(tmp_path, monkeypatch, 300_000, **few)
    assert 16 <= runner.max_model_len < 512
    assert runner.max_model_len == (runner.num_blocks - 1) * 16
    with pytest.raises(StartError, match=r"too little memory: the KV cache has room for \d+ tokens and .* have 512"):
        sized(tmp_path, monkeypatch, 300_000, max_model_len=512, **few)
    with pytest.raises(StartError, match=r"room for 0 tokens .*, --gpu-memory-utilization 0\.9\): .* raise that"):
        sized(tmp_path, monkeypatch, 300_000)
    with pytest.raises(StartError, match=r"room for 64 tokens .*, --num-gpu-blocks-override 5\)"):
        sized(tmp_path, monkeypatch, 1 << 30, max_model_len=65, num_gpu_blocks_override=5)


def test_weights_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("llama", tmp_path)
    matrices = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
    with pytest.raises(StartError, match=r"too little memory on cpu: the weights take 0\.00 GiB as float32"):
        sized(tmp_path, monkeypatch, 4 * matrices - 1, num_gpu_blocks_override=1)


def test_positions_that_do_not_fit(tmp_path: Path) -> None:
    make("llama", tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "max_position_embeddings": 1 << 45}))
    with pytest.raises(StartError, match=r"too little memory on cpu .*\(--max-model-len lowers it\)"):
        runner_for(tmp_path)
    assert runner_for(tmp_path, max_model_len=64).max_model_len == 64


def test_blocks_that_were_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path)
    assert sized(tmp_path, monkeypatch, 1 << 30, num_gpu_blocks_override=77).num_blocks == 77
    with pytest.raises(StartError, match=r"77 blocks \(--num-gpu-blocks-override\) take 0\.00 GiB"):
        sized(tmp_path, monkeypatch, 300_000, num_gpu_blocks_override=77)


def test_longer_than_the_model_was_made_for(tmp_path: Path) -> None:
    make("llama", tmp_path)
    assert runner_for(tmp_path, max_model_len=100).max_model_len == 100
    with pytest.raises(StartError, match="--max-model-len 513 is more than the model was made for: 512"):
        runner_for(tmp_path, max_model_len=513)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == CPU
    with pytest.raises(StartError, match="sees 0 CUDA devices here; use --device cpu"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda", 0)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(StartError, match=r"device cuda:2: .* sees 2"):
        choose_device("cuda:2")
    with pytest.raises(ConfigError, match="'tpu' is not one of"):
        choose_device("tpu")


def test_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_multiplies_bfloat16", lambda: True)
    assert choose_dtype("auto", "float16", CPU) is torch.bfloat16
    monkeypatch.setattr(device, "_multiplies_bfloat16", lambda: False)
    assert choose_dtype("auto", "bfloat16", CPU) is torch.float32
    assert choose_dtype("float16", "float32", CPU) is torch.float16
    with pytest.raises(ConfigError, match="'int8' is not one of auto, float32"):
        choose_dtype("int8", "float32", CPU)


def test_free_memory_knows_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = device.free_memory(CPU)
    assert free > 1 << 20
    for name, text in {"max": "5000000", "current": "4000000", "stat": "anon 1\ninactive_file 2000\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(device, "CGROUPS", [(str(tmp_path), "memory.max", "memory.current", "inactive_file")])
    assert device.free_memory(CPU) == 1_002_000
    (tmp_path / "memory.max").write_text("max")
    assert device.free_memory(CPU) > 1_002_000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_linear(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    weight, bias = torch.randn(70, 50).to(dtype), torch.randn(70).to(dtype)
    for rows in (1, 3, 40):
        x = torch.randn(rows, 50).to(dtype)
        for offset in (bias, None):
            expected = torch.nn.functional.linear(
                x.double(), weight.double(), None if offset is None else offset.double()
            )
            found = linear(weight, offset)(x)
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=1e-1 if dtype.itemsize == 2 else 1e-4)
