"""DeepSeek V3.2 and V4: generated conversations give the text of vLLM's tokenizer modes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.formats.deepseek_v4 import DeepSeekV4Format
from fastfront.prompt.formats.deepseek_v32 import DeepSeekV32Format

Json = dict[str, Any]

ORACLE = """
from transformers import AutoTokenizer
from vllm.tokenizers.deepseek_v32 import get_deepseek_v32_tokenizer
from vllm.tokenizers.deepseek_v4 import get_deepseek_v4_tokenizer

base = AutoTokenizer.from_pretrained("FOLDER")
modes = {
    "deepseek_v32": (get_deepseek_v32_tokenizer(base), "string"),
    "deepseek_v4": (get_deepseek_v4_tokenizer(base), "openai"),
}

def answer(job):
    tokenizer, content_format = modes[job["mode"]]
    request = ChatCompletionRequest.model_validate(job["request"])
    conversation = parsed(request, content_format)
    given = kwargs(request, tokenize=False)
    return {"text": tokenizer.apply_chat_template(conversation=conversation, messages=request.messages, **given)}
"""
FORMATS = {"deepseek_v32": DeepSeekV32Format(), "deepseek_v4": DeepSeekV4Format()}
TEXTS = ("Hi", "Zürich", "  two  spaces ", "\n\nline\n", "<｜User｜>", "</think>", "世界", '{"a": 1}', "", "\t")


def text(source: random.Random) -> str:
    return " ".join(source.choices(TEXTS, k=source.randint(0, 4)))


def message(source: random.Random, role: str) -> Json:
    parts = [{"type": "text", "text": text(source)} for _ in range(source.randint(0, 3))]
    out: Json = {"role": role, "content": text(source) if source.random() < 0.6 else parts}
    if role == "assistant" and source.random() < 0.1:
        out["content"] = None
    if role == "assistant" and source.random() < 0.5:
        out["reasoning"] = text(source) or "r"
    if source.random() < 0.05:
        out["task"] = source.choice(["action", "query", "weird"])
    return out


def call(source: random.Random, number: int) -> Json:
    arguments = ('{"x": 1, "s":"a<b>", "l":[1,{"a":null}],"f":1.50}', "{}", '{"b":true}')
    function = {"name": source.choice(["f", "get"]), "arguments": source.choice(arguments)}
    return {"id": f"c{number}", "type": "function", "function": function}


def request(source: random.Random, any_tools: Callable[[random.Random], list[Json]]) -> Json:
    messages = [message(source, source.choice(["system", "developer"]))] if source.random() < 0.5 else []
    for _ in range(source.randint(1, 4)):
        messages.append(message(source, source.choice(["user"] * 6 + ["developer", "system", "latest_reminder"])))
        if source.random() < 0.2:
            continue
        answer = message(source, "assistant")
        messages.append(answer)
        if source.random() < 0.5:
            count = source.randint(1, 3)
            answer["tool_calls"] = [call(source, i) for i in range(count)]
            order = source.sample(range(count), count if source.random() < 0.8 else source.randint(0, count))
            messages += [{**message(source, "tool"), "tool_call_id": f"c{i}"} for i in order]
            if source.random() < 0.5:
                messages.append(message(source, "assistant"))
    if source.random() < 0.6:
        messages.append(message(source, "user"))
    body: Json = {"messages": messages}
    if source.random() < 0.4:
        body["tools"] = any_tools(source)
    if source.random() < 0.5:
        name = source.choice(["thinking", "enable_thinking", "drop_thinking"])
        body["chat_template_kwargs"] = {name: source.choice([True, False, None])}
    if source.random() < 0.4:
        efforts = ["low", "medium", "high", "none", "minimal", "max", "xhigh"]
        body["reasoning_effort"] = source.choice(efforts)
    return body


def as_input(body: Json) -> ChatInput:
    kwargs = dict(body.get("chat_template_kwargs") or {})
    if "reasoning_effort" in body:
        kwargs["reasoning_effort"] = body["reasoning_effort"]
        kwargs.setdefault("enable_thinking", body["reasoning_effort"] != "none")
    return ChatInput(body["messages"], body.get("tools"), chat_template_kwargs=kwargs)


@pytest.mark.peer
def test_same_text_as_vllm(
    oracle: Callable[..., Any], any_tools: Callable[[random.Random], list[Json]], models: Path
) -> None:
    source = random.Random(5)
    jobs: list[Json] = [
        {"mode": source.choice(list(FORMATS)), "request": request(source, any_tools)} for _ in range(600)
    ]
    answers = oracle(ORACLE.replace("FOLDER", str(models / "deepseek_v3")))(jobs)
    different = []
    for job, answer in zip(jobs, answers, strict=True):
        try:
            ours: Any = FORMATS[job["mode"]].render(as_input(job["request"]))
        except RequestError:
            ours = None
        # vLLM's V3.2 stumbles over developer messages before the last question, see below.
        if ours != answer.get("text") and "out of range for messages list" not in answer.get("error", ""):
            different.append((job, ours, answer))
    assert not different, f"{len(different)} of {len(jobs)} differ, first: {different[0]}"
    assert sum("text" in answer for answer in answers) > 350


USER = {"role": "user", "content": "q"}


def test_developer_messages_stay_when_thoughts_go() -> None:
    chat = ChatInput([{"role": "developer", "content": "Obey."}, USER], chat_template_kwargs={"thinking": True})
    assert FORMATS["deepseek_v32"].render(chat) == (
        "<｜begin▁of▁sentence｜><｜User｜>\n\n# The user's message is: Obey.<｜Assistant｜></think>"
        "<｜User｜>q<｜Assistant｜><think>"
    )


@pytest.mark.parametrize("name", FORMATS)
def test_endings(name: str) -> None:
    chat = ChatInput([USER], chat_template_kwargs={"thinking": False}, add_generation_prompt=False)
    assert FORMATS[name].render(chat) == "<｜begin▁of▁sentence｜><｜User｜>q"
    begun = replace(chat, messages=[USER, {"role": "assistant", "content": "a"}])
    whole = FORMATS[name].render(begun)
    assert whole == "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>a<｜end▁of▁sentence｜>"
    assert whole == FORMATS[name].render(replace(begun, continue_final_message=True)) + "<｜end▁of▁sentence｜>"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "messages, param",
    [
        ([], "messages"),
        ([{"role": "wizard", "content": "x"}], "messages.0"),
        ([{"role": "developer", "content": ""}], "messages.0"),
        ([USER, {"role": "assistant", "content": "x", "reasoning": 5}], "messages.1.reasoning"),
        ([{"role": "developer", "content": "x", "tools": [5]}], "tools"),
    ],
)
def test_refusals_name_the_field(name: str, messages: list[Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        FORMATS[name].render(ChatInput(messages))
    assert caught.value.param == param


def test_results_without_calls() -> None:
    lone = {"role": "tool", "content": "x", "tool_call_id": "c"}
    with pytest.raises(RequestError, match=r"messages.1 \(tool\) answers no tool call"):
        FORMATS["deepseek_v32"].render(ChatInput([USER, lone]))
    assert "<tool_result>x</tool_result>" in FORMATS["deepseek_v4"].render(ChatInput([USER, lone]))
