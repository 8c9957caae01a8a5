"""Makes the samples, runs them, and turns what came of it into figures: one point of a measurement."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TextIO

from fastfront.load.client import Client
from fastfront.load.data.registry import make_conversations, make_samples
from fastfront.load.metrics import Summary, summarize
from fastfront.load.options import Load, Turns
from fastfront.load.progress import Progress
from fastfront.load.result import Result, figures, result
from fastfront.load.run import Run, Runner, Say
from fastfront.load.sample import Conversation, Tokenizer
from fastfront.load.steady import Steady, steady_state
from fastfront.load.table import errors, table, talks_table


class Point(NamedTuple):
    """One run's figures, the same as a JSON object, and the text that tells them."""

    summary: Summary
    steady: Steady | None
    result: Result
    text: str


async def measure(load: Load, tokenizer: Tokenizer | None, say: Say, bar: TextIO | None) -> Point:
    """Runs `load` once; raises ConfigError for options that cannot go together, StartError for a server not ready."""
    client = Client(load.target)
    try:
        if load.turns is not None:
            talks = make_conversations(load, load.turns, tokenizer)
            total = sum(len(talk.questions) for talk in talks)
            with _unswept():
                run = await Runner(load, client, Progress(total, bar), say).conversations(talks, load.turns)
            return _talked(load, load.turns, talks, run)
        samples = make_samples(load, tokenizer)
        with _unswept():
            run = await Runner(load, client, Progress(len(samples), bar), say).samples(samples)
    finally:
        client.close()
    summary = summarize(run.records, run.duration, load.wanted)
    steady = steady_state(run.records, run.began, run.duration, load)
    details = run.records if load.wanted.detailed else ()
    text = errors(run.records) + table(summary, load, steady)
    return Point(summary, steady, result(summary, load, steady, details), text)


@contextmanager
def _unswept() -> Iterator[None]:
    """The collector leaves alone what is there already, so that its pauses do not grow with the prompts."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _talked(load: Load, turns: Turns, talks: list[Conversation], run: Run) -> Point:
    wanted = load.wanted
    overall = summarize(run.records, run.duration, wanted)
    most = max(len(talk.questions) for talk in talks)
    by_turn = [[record for record in run.records if record.turn == turn] for turn in range(most)]
    summaries = [summarize(records, run.duration, wanted) for records in by_turn]
    answered = sum(not record.error for record in run.records)
    broken = sum(bool(record.error) for record in run.records)
    at_once = turns.concurrency or load.traffic.max_concurrency or len(talks)
    facts = {
        "Conversations completed/total": f"{len(talks) - broken}/{len(talks)}",
        "Turns per conversation (configured)": f"{turns.count if load.data.name == 'random' else most}",
        "Avg turns completed": f"{answered / len(talks):.1f}",
        "Concurrency": f"{at_once}",
        "Inter-turn delay (ms)": f"{turns.delay * 1000:g}",
        "Benchmark duration (s)": f"{run.duration:.2f}",
    }
    details = run.records if wanted.detailed else ()
    out = result(overall, load, None, details) | {
        "mode": "multi_turn",
        "num_conversations": len(talks),
        "conversations_completed": len(talks) - broken,
        "conversations_failed": broken,
        "multi_turn_concurrency": at_once,
        "inter_turn_delay_ms": turns.delay * 1000,
        "avg_turns_completed": answered / len(talks),
        "per_turn_metrics": [
            {"turn_index": turn, "num_samples": len(by_turn[turn]), **figures(summary, wanted)}
            for turn, summary in enumerate(summaries)
        ],
    }
    return Point(overall, None, out, errors(run.records) + talks_table(overall, summaries, facts, wanted))
