"""`python -m tests.engine.torch.fake_process ADDRESS [max_model_len [vocab_size]]`: the engine's process, no model.

A step takes some milliseconds; a prompt that begins with the token 66 breaks the device.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fastfront.engine.torch.batch import Batch
from fastfront.engine.torch.process import Process
from fastfront.engine.torch.settings import EngineSettings, RunnerSettings
from tests.engine.torch.fake import VOCAB, FakeRunner

DEADLY = 66
STEP_S = 0.003


def load(settings: RunnerSettings) -> FakeRunner:
    """A runner with room for a few."""
    max_model_len = settings.max_model_len or 100
    runner = FakeRunner(4 * max_model_len, 4, max_model_len, settings.block_size)

    def trip(batch: Batch) -> None:
        time.sleep(STEP_S)
        at = 0
        for context, count in zip(batch.context_lens, batch.query_lens, strict=True):
            if not context and batch.token_ids[at] == DEADLY:
                raise RuntimeError("CUDA error: as told")
            at += count

    runner.on_run = trip
    return runner


def main(address: str, max_model_len: str = "100", vocab_size: str = str(VOCAB), folder: str = "") -> int:
    """Runs it; the block size of the settings carries the vocabulary's size, which a real model brings itself."""
    runner = RunnerSettings(
        model=Path("/nowhere"), max_model_len=int(max_model_len), block_size=int(vocab_size), max_num_seqs=64
    )
    engine = EngineSettings(handshake=address, torch_profiler_dir=Path(folder) if folder else None)
    return Process(runner, engine, load).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
