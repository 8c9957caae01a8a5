"""`fastfront bench serve`: measures a server of the OpenAI API, as `vllm bench serve` does."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastfront.cli.bench_plan import Plan
from fastfront.config import DEFAULT_MODEL
from fastfront.errors import FastfrontError, StartError
from fastfront.load.bench import Point, measure
from fastfront.load.client import Client
from fastfront.load.data.registry import make_conversations, make_samples
from fastfront.load.options import Load
from fastfront.load.result import Result, file_name, read, save
from fastfront.load.sample import Tokenizer
from fastfront.load.several import compared, runs_table, sweep_table

_WIDTH = 70


def run(plan: Plan) -> int:
    """Does what the plan says; 0, or 1 where not one request was answered. Raises FastfrontError."""
    if plan.compare:
        one, two = plan.compare
        print(compared(read(Path(one)), read(Path(two)), one, two), end="")
        return 0
    import uvloop

    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_bench(plan))
    except asyncio.CancelledError:  # by a signal
        return 0


async def _bench(plan: Plan) -> int:
    model, root = (plan.model, plan.model) if plan.model else await _ask_model(plan.load)
    source = None if plan.skip_tokenizer else plan.tokenizer or root
    tokenizer = None if source is None else load_tokenizer(source, plan.tokenizer_mode)
    load = plan.load
    if not load.target.names:
        load = replace(load, target=replace(load.target, names=(plan.served_name or model or "",)))
    plan = replace(plan, load=load, model=model, tokenizer=source)
    if plan.dry_run:
        print(_dry(load, tokenizer), end="")
        return 0
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):  # what raises in a callback of the loop would be lost there
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    now = datetime.now(UTC)
    about = _about(plan, now)
    bar = None if plan.no_bar else sys.stderr

    async def once(one: Load) -> Point:
        point = await measure(one, tokenizer, _say, bar)
        print(point.text, end="", flush=True)
        return point._replace(result=about | point.result)

    if plan.points:
        points = await _sweep(plan, once)
    else:
        points = await _repeat(plan, once)
    _save(plan, [point.result for point in points], now)
    return 0 if any(point.summary.completed for point in points) else 1


async def _sweep(plan: Plan, once: Callable[[Load], Awaitable[Point]]) -> list[Point]:
    points: list[Point] = []
    option = "max_concurrency" if plan.concurrencies else "request_rate"
    wanted = plan.load.wanted
    extra = replace(wanted, percentiles=tuple(dict.fromkeys((*wanted.percentiles, *plan.sweep_percentiles))))
    for number, (name, load) in enumerate(plan.points, 1):
        title = f" Run {number}/{len(plan.points)}: {option}={name.partition('=')[2]} "
        print(f"\n{title:-^{_WIDTH}}")
        points.append(await once(replace(load, wanted=extra)))
    heading = "Max Concurrency" if plan.concurrencies else "Request Rate"
    rows = [(name, point.summary, point.steady) for (name, _), point in zip(plan.points, points, strict=True)]
    print("\n" + sweep_table(heading, rows, plan.sweep_percentiles), end="")
    return points


async def _repeat(plan: Plan, once: Callable[[Load], Awaitable[Point]]) -> list[Point]:
    points: list[Point] = []
    for number in range(1, plan.runs + 1):
        if plan.runs > 1:
            print(f"\n{f' Run {number}/{plan.runs} ':-^{_WIDTH}}")
        points.append(await once(plan.load))
    if plan.runs > 1:
        print("\n" + runs_table([point.result for point in points]), end="")
    return points


async def _ask_model(load: Load) -> tuple[str, str]:
    """The first model that the server names, and where its tokenizer is."""
    client = Client(load.target)
    try:
        listed = await client.ask("GET", "/v1/models")
    except FastfrontError as error:
        raise StartError(f"--model is not given, and the server does not tell: {error}") from None
    finally:
        client.close()
    models: Any = listed.get("data") if isinstance(listed, dict) else None
    first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
    if not isinstance(first.get("id"), str):
        raise StartError("--model is not given, and /v1/models lists none")
    return first["id"], first.get("root") or first["id"]


def load_tokenizer(name: str, mode: str) -> Tokenizer:
    """The tokenizer of a folder, a GGUF file or a hub name, with the ids that are no control tokens. StartError."""
    from fastfront.prompt.default_model import find_default_model
    from fastfront.prompt.files import read_model_files
    from fastfront.prompt.hub import Wish
    from fastfront.prompt.mistral import AnyTokenizer, load_mistral
    from fastfront.prompt.tokenizer import load_tokenizer as load_json

    try:
        # The default model may lie where `serve` put it.
        place = str(find_default_model(Wish())) if name == DEFAULT_MODEL else name
        files = read_model_files(place, tokenizer_mode=mode)
    except StartError as error:
        may = "--tokenizer takes a folder, a GGUF file or a hub name"
        raise StartError(f"{error}; or name a tokenizer: {may}") from error
    found: AnyTokenizer
    if files.mode == "mistral" and isinstance(files.tokenizer, Path):
        found = load_mistral(files.tokenizer)
    else:
        found = load_json(files)
    ids = [number for number, piece in enumerate(found.pieces()) if piece is not None and not piece.added]
    return Tokenizer(lambda text, special: found.encode(text, special), lambda ids: found.decode(ids), ids)


def _about(plan: Plan, now: datetime) -> Result:
    """What a result says of itself; keys of --metadata come last."""
    about: Result = {
        "date": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "endpoint_type": plan.backend,
        "backend": plan.backend,
        "label": plan.label,
        "model_id": plan.model,
        "tokenizer_id": plan.tokenizer,
    }
    for pair in plan.metadata:
        key, _, value = pair.partition("=")
        about[key.strip()] = value.strip()
    return about


def _save(plan: Plan, results: list[Result], now: datetime) -> None:
    """One JSON object a line: one for a run, one a point for several."""
    if not (plan.save or plan.append):
        return
    name = plan.file or file_name(plan.load, plan.label or plan.backend, plan.model or "", now)
    path = Path(plan.folder or ".") / name
    save(path, results, append=plan.append)
    print(f"Result saved to {path}")


def _dry(load: Load, tokenizer: Tokenizer | None) -> str:
    """How long the prompts and answers would be."""
    if load.turns is not None:
        talks = make_conversations(load, load.turns, tokenizer)
        turns = sum(len(talk.questions) for talk in talks)
        return f"{len(talks)} conversations, {turns} turns\n"
    samples = make_samples(load, tokenizer)
    inputs = sorted(sample.prompt_tokens for sample in samples)
    outputs = sorted(sample.output_tokens for sample in samples)
    lines = [f"{len(samples)} requests"]
    for name, values in (("input", inputs), ("output", outputs)):
        middle, mean = values[len(values) // 2], sum(values) / len(values)
        spread = f"min {values[0]}, median {middle}, mean {mean:.1f}, max {values[-1]}"
        lines.append(f"{name} tokens: {sum(values)} ({spread})")
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _raise_file_limit() -> None:
    """A connection is an open file: take as many as this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS says "no limit" and does not mean it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
