"""One body of requests, on every engine but vLLM's own, which test_vllm.py has running anyway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.conftest import Start
from tests.e2e.body import MODEL, QUESTION, check_serving, check_text

pytestmark = [pytest.mark.peer, pytest.mark.timeout(900)]

Serve = Callable[..., str]
PROMPTS = ("The capital of France is", "def fibonacci(n):", "Es war einmal ein König, der")


@pytest.fixture
def serve(start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int]) -> Serve:
    """serve(engine, *words): a server whose engine it has started itself; its URL."""

    def begin(engine: str, *words: str, model: str = "models/smollm2") -> str:
        base = f"http://127.0.0.1:{(port := free_port())}"
        named = ["--served-model-name", MODEL, "--port", str(port), "--engine", engine, "--max-model-len", "2048"]
        # More threads than there are free cores make it slower, not faster.
        words_and_names = [*fastfront, "serve", peers / model, *named, *words]
        start(words_and_names, env={"OMP_NUM_THREADS": "1"}).wait_http(f"{base}/health", 300)
        return base

    return begin


def test_mock(serve: Serve) -> None:
    check_serving(serve("mock", "--", "--max-model-len", "2048", "--stats", "--step-ms", "1"))


@pytest.mark.parametrize("model", ["models/smollm2", "smollm2.gguf"])
def test_built_in(serve: Serve, model: str) -> None:
    base = serve("torch", model=model)
    check_serving(base)
    check_text(base)


def test_built_in_says_what_transformers_says(serve: Serve, peers: Path) -> None:
    base = serve("torch", "--dtype", "float32")
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", timeout=300, max_retries=0)
    folder = peers / "models" / "smollm2"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    chat = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    for prompt in (*PROMPTS, chat):
        ids = tokenizer(prompt, return_tensors="pt")
        made = model.generate(**ids, max_new_tokens=24, do_sample=False)[0, ids["input_ids"].shape[1] :]
        want = tokenizer.decode(made, skip_special_tokens=True)
        got = client.completions.create(model=MODEL, prompt=prompt, max_tokens=24, temperature=0)
        assert got.choices[0].text == want, prompt
