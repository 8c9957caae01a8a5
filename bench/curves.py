"""How a frontend's CPU time a token grows with concurrency, output length and prompt length; `plot.py` draws it.

    python bench/curves.py --peers DIR [--rounds 3] [--step-ms 0] [--axes concurrency,output,prompt] [--most 2048]

Every point is a run of `fastfront bench serve` against each frontend in turn, with a mock engine behind it. Points that
the result file has are not measured again: stop at any time and go on later. DIR is what fetch_peers.sh filled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from frontends import COMMANDS, Frontend

RESULT = Path(__file__).resolve().parent / "results" / "curves.json"
Row = dict[str, Any]


class Work(NamedTuple):
    """One point: what is asked for at once, how long, and how often."""

    axis: str
    x: int
    concurrency: int
    prompt: int
    output: int
    prompts: int


def points(axis: str, most: int) -> list[Work]:
    """The points of an axis, at most up to `most`; each takes a few seconds."""
    if axis == "concurrency":  # every connection is used twice
        sizes = _doubling(1, 2048, most)
        return [Work(axis, x, x, 128, 128, max(256, 2 * x)) for x in sizes]
    if axis == "output":
        return [Work(axis, x, 16, 64, x, max(32, 65536 // x)) for x in _doubling(16, 8192, most)]
    return [Work(axis, x, 4, x, 64, max(16, min(1024, 2097152 // x))) for x in _doubling(64, 131072, most)]


def _doubling(first: int, last: int, most: int) -> list[int]:
    return [size for size in (first << n for n in range(32)) if size <= min(last, most)]


def measure(frontend: Frontend, work: Work, tokenizer: Path) -> Row:
    """One row: the frontend's CPU seconds and the client's counts."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        words = [
            sys.executable, "-m", "fastfront", "bench", "serve", "--base-url", frontend.url, "--model", "m",
            "--tokenizer", str(tokenizer), "--random-input-len", str(work.prompt),
            "--random-output-len", str(work.output), "--num-prompts", str(work.prompts),
            "--max-concurrency", str(work.concurrency), "--disable-tqdm", "--save-result",
            "--result-filename", str(out), "--no-steady-state",
        ]  # fmt: skip
        before = frontend.cpu_seconds()
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        used = frontend.cpu_seconds() - before
        result = json.loads(out.read_text()) if out.exists() else {"failed": "all"}
    if result["failed"]:
        told = done.stdout[-2000:] + done.stderr[-2000:]
        sys.exit(f"{frontend.name}, {work}: {result['failed']} requests failed:\n{told}")
    return {
        "frontend": frontend.name, **work._asdict(), "cpu_s": round(used, 5), "seconds": round(result["duration"], 3),
        "input_tokens": result["total_input_tokens"], "output_tokens": result["total_output_tokens"],
        "median_ttft_ms": round(result["median_ttft_ms"], 3),
    }  # fmt: skip


def missing(work: Work, rounds: int, rows: list[Row]) -> Iterator[tuple[str, int]]:
    """Frontend and round of every measurement that a point still lacks, in turn."""
    there = {(row["frontend"], row["round"]) for row in rows if (row["axis"], row["x"]) == (work.axis, work.x)}
    for number in range(rounds):
        yield from ((name, number) for name in COMMANDS if (name, number) not in there)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True, type=Path)
    parser.add_argument("--model", default="qwen3", help="a folder of DIR/models")
    parser.add_argument("--axes", default="concurrency,output,prompt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=1 << 20, help="leave out points beyond")
    parser.add_argument("--step-ms", type=float, default=0.0, help="least time of an engine step; 0: it is ahead")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    peers = args.peers.expanduser().resolve()
    kept = json.loads(args.out.read_text()) if args.out.exists() else {"step_ms": args.step_ms, "rows": []}
    if kept["step_ms"] != args.step_ms:
        sys.exit(f"{args.out} was measured with --step-ms {kept['step_ms']:g}")
    rows: list[Row] = kept["rows"]
    works = [work for axis in args.axes.split(",") for work in points(axis, args.most)]
    log = Path(tempfile.gettempdir()) / f"fastfront-curves-{os.getpid()}.log"
    frontends = {name: Frontend(name, peers, args.model, args.step_ms, log) for name in COMMANDS}
    with frontends["fastfront"], frontends["vllm-rs"]:
        for work in works:
            for name, number in missing(work, args.rounds, rows):
                row = measure(frontends[name], work, peers / "models" / args.model) | {"round": number}
                rows.append(row)
                args.out.write_text(json.dumps(kept, indent=0) + "\n")
                each = 1e6 * row["cpu_s"] / row["output_tokens"]
                told = f"{each:.2f} us a generated token, {row['seconds']:.1f} s"
                print(f"{name:10} {work.axis} {work.x}: {told}", flush=True)


if __name__ == "__main__":
    main()
