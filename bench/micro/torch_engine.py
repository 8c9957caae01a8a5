"""Tokens a second of the built-in engine's model on this machine, without scheduler and sampler, greedy.

    python bench/micro/torch_engine.py MODEL [--batch 1,16] [--dtype auto,float32] [--transformers] [--device cpu]

MODEL is a folder or a GGUF file. Each sequence has --prompt tokens and gets --tokens more; the prompt is not counted.
With --transformers, its `generate` does the same in the same type, and the two answers are compared.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch

from fastfront.engine.torch.batch import Batch
from fastfront.engine.torch.runner import Runner
from fastfront.engine.torch.settings import RunnerSettings

ROUNDS = 3

Answers = list[list[int]]


def ours(runner: Runner, prompts: Answers, tokens: int) -> tuple[float, float, Answers]:
    """Seconds of the prompts and of the rest, and the answers."""
    length, size = len(prompts[0]), runner.block_size
    blocks = -(-(length + tokens) // size)
    tables = [[1 + blocks * at + block for block in range(blocks)] for at in range(len(prompts))]
    began = time.perf_counter()
    ends = [length * (at + 1) - 1 for at in range(len(prompts))]
    logits = runner.run(
        Batch(
            [token for prompt in prompts for token in prompt], [length] * len(prompts), [0] * len(prompts), tables, ends
        )
    )
    answers = [[token] for token in logits.argmax(-1).tolist()]
    first = time.perf_counter()
    for step in range(tokens - 1):
        batch = Batch(
            [answer[-1] for answer in answers], [1] * len(prompts), [length + step] * len(prompts), tables,
            list(range(len(prompts))),
        )  # fmt: skip
        for answer, token in zip(answers, runner.run(batch).argmax(-1).tolist(), strict=True):
            answer.append(token)
    return first - began, time.perf_counter() - first, answers


def theirs(model: Path, dtype: torch.dtype, device: torch.device) -> Callable[[Answers, int], tuple[float, Answers]]:
    """`generate` of transformers: seconds of everything, and the answers."""
    from transformers import AutoModelForCausalLM

    where = {"gguf_file": model.name} if model.is_file() else {}
    loaded = AutoModelForCausalLM.from_pretrained(model.parent if where else model, dtype=dtype, **where).to(device)

    def generate(prompts: Answers, tokens: int) -> tuple[float, Answers]:
        ids = torch.tensor(prompts, device=device)
        began = time.perf_counter()
        found = loaded.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
        )
        return time.perf_counter() - began, found[:, ids.shape[1] :].tolist()

    return generate


def main() -> None:
    """Prints a line per type and batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=129)
    parser.add_argument("--transformers", action="store_true")
    args = parser.parse_args()
    for dtype in args.dtype.split(","):
        settings = RunnerSettings(
            model=args.model, dtype=dtype, device=args.device, max_model_len=args.prompt + args.tokens
        )
        runner = Runner(settings)
        generate = theirs(args.model, runner.dtype, runner.device) if args.transformers else None
        for batch in map(int, args.batch.split(",")):
            rng = random.Random(batch)
            prompts = [[rng.randrange(100, runner.vocab_size) for _ in range(args.prompt)] for _ in range(batch)]
            runs = [ours(runner, prompts, args.tokens) for _ in range(ROUNDS)]
            count = batch * (args.tokens - 1)
            rate = count / min(rest for _, rest, _ in runs)
            line = f"{runner.dtype} batch {batch}: {rate:.0f} tokens/s, prompts {min(run[0] for run in runs):.3f} s"
            if generate is not None:
                first = min(generate(prompts, 1)[0] for _ in range(ROUNDS))
                whole, answers = min(generate(prompts, args.tokens) for _ in range(ROUNDS))
                same = sum(one == other for one, other in zip(runs[0][2], answers, strict=True))
                slower = count / (whole - first)
                line += (
                    f"; transformers {slower:.0f} tokens/s ({rate / slower:.1f} times), {same}/{batch} answers equal"
                )
            print(f"{line} ({torch.get_num_threads()} threads)", flush=True)


if __name__ == "__main__":
    main()
