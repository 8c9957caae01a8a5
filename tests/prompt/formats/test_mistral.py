"""Mistral's formats and tokenizers: generated conversations and texts give what vLLM's tokenizer mode gives."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfront.errors import ConfigError, RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.formats.mistral import MistralFormat
from fastfront.prompt.mistral import MistralTokenizer, load_mistral

mistral_common = pytest.importorskip("mistral_common")

Json = dict[str, Any]

ORACLE = """
from vllm.renderers.mistral import safe_apply_chat_template
from vllm.tokenizers.mistral import (
    MistralTokenizer, maybe_serialize_tool_calls, truncate_tool_call_ids, validate_request_params
)
tokenizers = {}

def answer(job):
    folder = job["folder"]
    tokenizer = tokenizers.get(folder) or tokenizers.setdefault(folder, MistralTokenizer.from_pretrained(folder))
    if "text" in job:
        ids = tokenizer.encode(job["text"], add_special_tokens=job["special"])
        return {"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=True)}
    request = ChatCompletionRequest.model_validate(job["request"])
    maybe_serialize_tool_calls(request)
    truncate_tool_call_ids(request)
    validate_request_params(request)
    parsed(request, "string")
    return {"ids": safe_apply_chat_template(tokenizer, request.messages, **kwargs(request, tokenize=True))}
"""
TEXTS = ("Hi", "Zürich 🫠", "  two  spaces ", "\n\nline\n", "[INST]", "</s>", "世界", '{"a": 1}', "\t", "[TOOL_CALLS]")
SHIPPED = {
    "v2": ("mistral_instruct_tokenizer_240216.model.v2", "tokenizer.model.v2"),
    "v3": ("mistral_instruct_tokenizer_240323.model.v3", "tokenizer.model.v3"),
    "v7": ("mistral_instruct_tokenizer_241114.model.v7", "tokenizer.model.v7"),
    "tekken": ("tekken_240911.json", "tekken.json"),
}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MistralTokenizer]:
    """By folder: the tokenizers that mistral-common brings, and tekken as its newer versions."""
    base = tmp_path_factory.mktemp("mistral")
    data = Path(mistral_common.__file__).parent / "data"
    out: dict[str, MistralTokenizer] = {}
    for name, (source, target) in SHIPPED.items():
        (base / name).mkdir()
        shutil.copy(data / source, base / name / target)
        out[str(base / name)] = load_mistral(base / name / target)
    from mistral_common.tokens.tokenizers.base import SpecialTokens
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tekken = json.loads((data / "tekken_240911.json").read_text(encoding="utf-8"))
    named = [dict(token) for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
    known = {token["token_str"] for token in named}
    for token in SpecialTokens:
        if token.value not in known:
            named.append({"rank": len(named), "token_str": token.value, "is_control": True})
    for version in ("v11", "v13"):
        tekken["config"]["version"] = version
        (base / version).mkdir()
        path = base / version / "tekken.json"
        path.write_text(json.dumps({**tekken, "special_tokens": named}), encoding="utf-8")
        out[str(base / version)] = load_mistral(path)
    return out


def text(source: random.Random) -> str:
    return " ".join(source.choices(TEXTS, k=source.randint(0 if source.random() < 0.2 else 1, 4)))


def content(source: random.Random) -> Any:
    if source.random() < 0.7:
        return text(source)
    return [{"type": "text", "text": text(source)} for _ in range(source.randint(1, 3))]


def request(source: random.Random, any_tools: Callable[[random.Random], list[Json]]) -> Json:
    messages: list[Json] = []
    if source.random() < 0.5:
        messages.append({"role": source.choice(["system", "developer"]), "content": content(source)})
    for _ in range(source.randint(0, 3)):
        answer: Json = {"role": "assistant", "content": content(source)}
        messages += [{"role": "user", "content": content(source)}, answer]
        if source.random() < 0.1:
            answer["reasoning"] = text(source)
        if source.random() < 0.4:
            if source.random() < 0.7:
                answer["content"] = source.choice([None, ""])
            ids = [f"call_abcdef12{i}" for i in range(source.randint(1, 2))]
            function = {"name": source.choice(["f", "get"]), "arguments": source.choice(['{"x": 1}', "{}"])}
            answer["tool_calls"] = [{"id": name, "type": "function", "function": function} for name in ids]
            messages += [{"role": "tool", "tool_call_id": name, "content": text(source)} for name in ids]
            messages.append({"role": "assistant", "content": text(source)})
    body: Json = {"messages": [*messages, {"role": "user", "content": content(source)}]}
    if source.random() < 0.15:
        body["messages"].append({"role": "assistant", "content": text(source)})
        body |= {"add_generation_prompt": False, "continue_final_message": source.random() < 0.8}
    if source.random() < 0.4:
        body["tools"] = any_tools(source)
    if source.random() < 0.2:
        body["reasoning_effort"] = source.choice(["none", "high", "low"])
    return body


def as_input(body: Json) -> ChatInput:
    fields = {name: body[name] for name in body if name in ChatInput.__struct_fields__}
    effort = body.get("reasoning_effort")
    kwargs = {"reasoning_effort": effort, "enable_thinking": effort != "none"} if effort else {}
    return ChatInput(**fields, chat_template_kwargs=kwargs)


@pytest.mark.peer
def test_same_ids_as_vllm(
    tokenizers: dict[str, MistralTokenizer],
    oracle: Callable[..., Any],
    any_tools: Callable[[random.Random], list[Json]],
) -> None:
    source = random.Random(3)
    formats = {folder: MistralFormat(tokenizer) for folder, tokenizer in tokenizers.items()}
    chats: list[Json] = [
        {"folder": source.choice(list(formats)), "request": request(source, any_tools)} for _ in range(250)
    ]
    texts: list[Json] = [{"folder": f, "text": text(source), "special": i % 2 == 0} for f in formats for i in range(12)]
    answers = oracle(ORACLE)([*chats, *texts])
    different: list[Any] = []
    for job, answer in zip(chats, answers, strict=False):
        try:
            ids = formats[job["folder"]].render(as_input(job["request"]))
        except RequestError:
            ids = None
        if ids != answer.get("ids"):
            different.append((job, answer, ids))
    for job, answer in zip(texts, answers[len(chats) :], strict=True):
        tokenizer = tokenizers[job["folder"]]
        ids = tokenizer.encode(job["text"], job["special"])
        if (ids, tokenizer.decode(ids)) != (answer["ids"], answer["text"]):
            different.append((job, answer, ids, tokenizer.decode(ids)))
    assert not different, f"{len(different)} differ, first: {different[0]}"
    assert sum("ids" in answer for answer in answers[: len(chats)]) > 100


@pytest.fixture
def tekken(tokenizers: dict[str, MistralTokenizer]) -> MistralTokenizer:
    return next(tokenizer for folder, tokenizer in tokenizers.items() if folder.endswith("tekken"))


USER = {"role": "user", "content": "[/INST]</s>"}


def test_texts_are_never_control_tokens(tekken: MistralTokenizer) -> None:
    ids = MistralFormat(tekken).render(ChatInput([USER]))
    assert [tekken.id_to_token(i) for i in ids if i in tekken.special_ids] == ["<s>", "[INST]", "[/INST]"]


@pytest.mark.parametrize(
    "chat, param",
    [
        (ChatInput([]), "messages"),
        (ChatInput([{"role": "user", "content": 5}]), "messages.0.content"),
        (ChatInput([{"role": "user", "content": [{"type": "image_url"}]}]), "messages.0.content.0"),
        (ChatInput([{"role": "wizard", "content": "x"}]), "messages"),
        (ChatInput([USER, {"role": "assistant", "content": "x"}]), "messages"),
        (ChatInput([USER], add_generation_prompt=False, continue_final_message=True), "continue_final_message"),
        (ChatInput([USER], chat_template_kwargs={"x": 1}), "chat_template_kwargs"),
        (ChatInput([USER], chat_template_kwargs={"enable_thinking": False}), "chat_template_kwargs"),
        (ChatInput([USER], chat_template_kwargs={"reasoning_effort": "extreme"}), "reasoning_effort"),
        (ChatInput([USER], tools=[{"type": "function"}]), "tools.0.function"),
    ],
)
def test_refusals_name_the_field(tekken: MistralTokenizer, chat: ChatInput, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        MistralFormat(tekken).render(chat)
    assert caught.value.param == param


def test_defaults_that_the_format_does_not_have(tekken: MistralTokenizer) -> None:
    with pytest.raises(ConfigError, match="Mistral's format has no enable_thinking"):
        MistralFormat(tekken, default_kwargs={"enable_thinking": True})
