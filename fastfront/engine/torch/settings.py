"""What the runner of the model is told at start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """Which model runs where; the fields are the flags of these names."""

    #: A folder with config.json and safetensors, or a .gguf file.
    model: Path
    #: auto, cuda, cuda:N or cpu.
    device: str = "auto"
    #: auto, float32, bfloat16 or float16.
    dtype: str = "auto"
    #: Tokens of one sequence, prompt and answer; None: what the model was made for.
    max_model_len: int | None = None
    block_size: int = 16
    #: Share of the device's memory that weights, activations and cache may take.
    gpu_memory_utilization: float = 0.9
    #: Blocks of the cache, whatever memory is free.
    num_gpu_blocks_override: int | None = None
    #: Sequences and tokens of one batch at most: what the activations are sized for.
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    #: No CUDA graphs.
    enforce_eager: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine's process is told beside that."""

    #: Where the frontend waits, e.g. tcp://127.0.0.1:29550.
    handshake: str
    #: Started as a child: it says so in the handshake, and ends when its parent does.
    local: bool = False
    #: What the answers of requests without a seed are drawn from.
    seed: int = 0
    #: Whether statistics and events are sent.
    log_stats: bool = True
    enable_prefix_caching: bool = True
    #: Where `profile` writes its traces; None: it is refused.
    torch_profiler_dir: Path | None = None
    log_level: str = "INFO"
