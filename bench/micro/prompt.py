"""Microseconds a request in the prompt stage: the whole of it, the templates' two renderers, the two tokenizers.

    python bench/micro/prompt.py MODEL_FOLDER

Bodies are those of the render bench: a short chat, eight turns, eight tool definitions; every request differs a little.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from fastfront.flow import ChatInput
from fastfront.prompt.files import read_model_files
from fastfront.prompt.formats.jinja import JinjaFormat
from fastfront.prompt.load import PromptSettings, load_prompter
from fastfront.prompt.prompter import Prompter
from fastfront.prompt.tokenizer import load_tokenizer

ROUNDS = 7
SYSTEM = {"role": "system", "content": "You are a helpful assistant. Session {n}."}
ASK = "A paged key value cache lets an engine admit more requests; what happens when blocks run out? "
TELL = "A request is preempted when no block is left, its blocks are freed and later computed again. "


def tool(i: int) -> dict[str, Any]:
    """One tool definition."""
    words = {"type": "string", "description": "City and country"}
    properties = {"place": words, "day": words, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}
    parameters = {"type": "object", "properties": properties, "required": ["place", "day"]}
    description = f"Looks up a thing of kind {i} for a place and a day, in the unit asked for."
    function = {"name": f"get_thing_{i}", "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def chat(kind: str, n: int) -> ChatInput:
    """The n-th request of a kind."""
    system = {**SYSTEM, "content": SYSTEM["content"].format(n=n)}
    if kind == "short":
        return ChatInput([system, {"role": "user", "content": f"What is the capital of country {n}? Answer briefly."}])
    if kind == "tools":
        return ChatInput([{"role": "user", "content": f"Weather in Paris on day {n}?"}], [tool(i) for i in range(8)])
    turns: list[dict[str, Any]] = [system]
    for i in range(8):
        turns.append({"role": "user", "content": f"Turn {n + i}: " + ASK * 7})
        turns.append({"role": "assistant", "content": f"Answer {n + i}: " + TELL * 7})
    return ChatInput(turns[:-1])


def measure(work: Callable[[Any], Any], inputs: list[Any]) -> float:
    """The best round's microseconds for one input."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for item in inputs:
            work(item)
        best = min(best, (time.perf_counter() - began) / len(inputs))
    return 1e6 * best


async def whole(prompter: Prompter, chats: list[ChatInput]) -> float:
    """The best round's microseconds of CPU for Prompter.chat, worker threads included."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for item in chats:
            await prompter.chat(item)
        best = min(best, (time.process_time() - began) / len(chats))
    return 1e6 * best


def unseen(size: int, seed: int) -> str:
    """About `size` characters of words that no other seed has."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(size // 7))


def main() -> None:
    """Prints the figures for one model."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", help="a folder with config.json, tokenizer.json and a chat template")
    model = arguments.parse_args().model
    prompter = load_prompter(PromptSettings(model))
    reference = load_tokenizer(read_model_files(model), fast=False)
    assert isinstance(prompter.format, JinjaFormat)
    print(
        ("{:8s}" + " {:>10s}" * 6).format("body", "tokens", "stage", "jinja2", "minijinja", "fastokens", "tokenizers")
    )
    for kind in ("short", "long", "tools"):
        chats = [chat(kind, n) for n in range(100)]
        template, _ = prompter.format.prepare(chats[0])
        variables = [prompter.format.variables(item) for item in chats]
        texts = [template.render_exactly(item) for item in variables]
        row = [
            asyncio.run(whole(prompter, chats)),
            measure(template.render_exactly, variables[:20]),
            measure(template.fast, variables) if template.fast is not None else float("nan"),
            measure(prompter.tokenizer.encode, texts),
            measure(reference.encode, texts[:20]),
        ]
        count = len(prompter.tokenizer.encode(texts[0]))
        print(("{:8s} {:10d}" + " {:10.1f}" * 5).format(kind, count, *row))
    for size in (1000, 4000, 12000, 100_000):
        text = unseen(size, size)
        began = time.perf_counter()
        prompter.tokenizer.encode(text)
        cold = 1e6 * (time.perf_counter() - began)
        words = text.split(" ")
        mixed = [" ".join(random.Random(i).sample(words, len(words))) for i in range(20)]
        warm, slow = measure(prompter.tokenizer.encode, mixed), measure(reference.encode, mixed[:3])
        print(f"encode {size:6d} characters: unseen words {cold:.0f}, seen {warm:.0f}, tokenizers {slow:.0f}")
    print(f"the event loop itself takes up to {prompter.tokenizer.light} bytes")


if __name__ == "__main__":
    main()
