from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from fastfront.errors import ConfigError, RequestError, StartError
from fastfront.flow import ChatInput, Prompt
from fastfront.prompt.fast_template import FastTemplate
from fastfront.prompt.load import PromptSettings, find_model, load_prompter, open_prompter
from fastfront.prompt.prompter import Prompter
from fastfront.prompt.sandbox import TemplateSandbox

USER = {"role": "user", "content": "hi"}
Load = Callable[..., Prompter]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def refused(work: Coroutine[Any, Any, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        asyncio.run(work)
    return caught.value


def as_input(body: dict[str, Any]) -> ChatInput:
    """The fields of a request body that decide its prompt."""
    return ChatInput(**{k: v for k, v in body.items() if k in ChatInput.__struct_fields__})


def test_http_cases_have_the_expected_number_of_prompt_tokens(load: Load, shared: Path) -> None:
    http = shared / "cases" / "http"
    requests = json.loads((http / "requests.json").read_text(encoding="utf-8"))
    expected = json.loads((http / "expected.json").read_text(encoding="utf-8"))
    prompter, seen = load("qwen3"), 0
    for name, case in requests.items():
        want = expected[name].get("any", [expected[name]])[0]
        body = case["body"]
        if case["path"] != "/v1/chat/completions" or want["status"] != 200 or not want.get("usage"):
            continue
        seen += 1
        assert len(run(prompter.chat(as_input(body))).token_ids) == want["usage"]["prompt_tokens"], name
    assert seen > 50
    for name, case in requests.items():
        want, body = expected[name], case["body"]
        if case["path"] == "/tokenize" and want.get("status") == 200:
            if "messages" in body:
                ids = run(prompter.tokenize_chat(as_input(body)))
            else:
                ids = run(prompter.tokenize(body["prompt"], body.get("add_special_tokens", True)))
            assert list(ids) == want["body"]["tokens"], name
            if body.get("return_token_strs"):
                assert prompter.tokenizer.tokens(list(ids)) == want["body"]["token_strs"]
        elif case["path"] == "/detokenize" and want.get("status") == 200:
            assert run(prompter.detokenize(body["tokens"])) == want["body"]["prompt"], name


def test_golden_pairs_of_tokenize(load: Load, shared: Path) -> None:
    lines = (shared / "features" / "main_golden_py.jsonl").read_text(encoding="utf-8").splitlines()
    prompter, seen = load("qwen3"), 0
    for pair in map(json.loads, lines):
        if pair["path"] == "/tokenize" and pair["status"] == 200 and "messages" in pair["request"]:
            seen += 1
            ids = run(prompter.tokenize_chat(as_input(pair["request"])))
            assert list(ids) == json.loads(pair["body"])["tokens"], pair["name"]
    assert seen


def test_model_info(load: Load) -> None:
    info = load("qwen3").info
    assert (info.names, info.max_model_len, info.vocab_size) == (["m"], 40960, 151936)
    assert (info.eos_token_id, info.extra_eos_token_ids) == (151645, [151643])
    assert info.sampling_defaults == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
    plain = load("qwen3", generation_config="vllm", max_model_len=64).info
    assert (plain.sampling_defaults, plain.max_model_len, plain.extra_eos_token_ids) == ({}, 64, [151643])


@pytest.mark.parametrize(
    ("more", "aside"),
    [({"ids": 2048}, False), ({"size": 16384}, False), ({"ids": 2049}, True), ({"size": 16385}, True)],
)
def test_what_is_much_is_done_in_a_thread(load: Load, more: dict[str, int], aside: bool) -> None:
    thread = run(load("qwen3").aside(threading.current_thread, **more))
    assert (thread is not threading.main_thread()) == aside


CONVERSATIONS: list[Any] = [
    [USER],
    [{"role": "system", "content": "Be kind."}, USER, {"role": "assistant", "content": "<think>x</think>\n1"}, USER],
    [{"role": "developer", "content": "d"}, {"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}],
    [{"role": "user", "content": [{"type": "text", "text": "alone"}]}, {"role": "system", "content": ["x"]}],
    [{"role": "user", "content": "\x1c \x85"}, {"role": "tool", "content": "1.5", "tool_call_id": "c"}],
    [{"role": "user", "content": [{"type": "text", "text": 5}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    [],
    [{"role": "user", "content": "long " * 5000}],
]
TOOL = {"type": "function", "function": {"name": "f", "description": None, "parameters": {"x": 1.5}}}
SHARED = [
    ChatInput([]),
    ChatInput([], tools=[TOOL]),
    ChatInput([], documents=[{"title": "t", "text": "x"}]),
    ChatInput([], chat_template_kwargs={"enable_thinking": False, "unread": 1.5}),
    ChatInput([], chat_template_kwargs={"messages": 1}),
    ChatInput([], chat_template_kwargs={"tools": 1}),
    ChatInput([], chat_template_kwargs={"bos_token": "?"}, add_generation_prompt=False),
    ChatInput([], add_generation_prompt=False, continue_final_message=True),
    ChatInput([], safe_user_text=True),
    ChatInput([], chat_template="x"),
]


@pytest.mark.parametrize("model", ["qwen3", "deepseek_v3", "gemma3", "gptoss", "llama3_1"])
def test_what_conversations_share_changes_none(load: Load, model: str) -> None:
    """The prompts of `chats` are those of `chat`, whichever conversation came before."""
    prompter = load(model)

    def answer(work: Callable[..., Any], *args: Any) -> Any:
        try:
            made = work(*args)
            return run(made) if isinstance(made, Coroutine) else made
        except RequestError as error:
            return str(error), error.param

    made = 0
    for shared in SHARED:
        chats = prompter.chats(shared)
        for messages in CONVERSATIONS * 2:
            whole = replace(shared, messages=messages)
            want = answer(prompter.chat, whole)
            for source in (msgspec.json.encode(whole), b""):
                got = answer(chats.now, messages, source) or answer(chats.made, messages, source)
                assert got == want, (shared, messages)
                made += isinstance(got, Prompt)
    assert made > 100


def test_nothing_is_prepared_for_a_heavy_conversation(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    prompter = load("qwen3")
    monkeypatch.setattr(type(prompter), "_common", None)
    heavy = [{"role": "user", "content": "x" * 20_000}]
    assert prompter.chats(ChatInput([])).now(heavy, json.dumps(heavy).encode()) is None


def test_a_renderer_that_comes_later_is_taken(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[Any] = []
    render = FastTemplate.render

    def spied(*args: Any) -> str | None:
        rendered.append(args)
        return render(*args)

    monkeypatch.setattr(FastTemplate, "render", spied)
    prompter = open_prompter(find_model(PromptSettings(str(models / "qwen3"))))
    chats = prompter.chats(ChatInput([]))
    source = json.dumps([USER]).encode()
    before = chats.now([USER], source)
    assert before is not None and not rendered
    prompter.speed_up()
    after = chats.now([USER], source)
    assert after is not None and len(rendered) == 1
    assert (list(after.token_ids), after.text) == (list(before.token_ids), before.text)
    run(prompter.close())


def test_limits(load: Load) -> None:
    prompter = load("qwen3", max_model_len=64)
    error = refused(prompter.chat(ChatInput([{"role": "user", "content": "hi " * 100}])))
    assert (error.param, error.limit, error.value) == ("input_tokens", 64, 109)
    assert refused(prompter.text("x" * 64 * 200_000)).param == "input_text"
    assert len(prompter.ids([1] * 64).token_ids) == 64
    assert refused(prompter.text("")).param == "prompt"
    with pytest.raises(RequestError, match="Token id 151936 is out of vocabulary"):
        prompter.ids([151936])
    assert prompter.ids([9707, 151935]).token_ids == [9707, 151935]
    # of ids that are too many none is looked at
    with pytest.raises(RequestError, match="maximum context length"):
        prompter.ids([151936] * 65)
    kept = prompter.limits(truncate_prompt_tokens=3)
    assert prompter.ids([1, 2, 3, 4], kept).token_ids == [2, 3, 4]
    assert len(run(prompter.text("a b c d e f", True, kept)).token_ids) == 3
    with pytest.raises(RequestError, match="max_completion_tokens=65 cannot be greater"):
        prompter.limits(max_tokens=65, max_tokens_param="max_completion_tokens")
    assert len(run(prompter.tokenize("hi " * 100))) > 64
    assert refused(prompter.text("", True, prompter.limits(truncate_prompt_tokens=0))).param == "prompt"


def test_truncation_keeps_bos_unless_a_side_is_named(load: Load) -> None:
    prompter = load("llama3_1")
    whole = run(prompter.text("one two three four")).token_ids
    assert run(prompter.text("one two three four", True, prompter.limits(truncate_prompt_tokens=3))).token_ids == [
        128000,
        *whole[-2:],
    ]
    left = prompter.limits(truncate_prompt_tokens=3, truncation_side="left")
    assert run(prompter.text("one two three four", True, left)).token_ids == whole[-3:]


def test_long_prompts_leave_the_loop(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    prompter, names = load("qwen3"), list[str]()
    encode = prompter.tokenizer.prompt_ids

    def watched(text: str, add_special_tokens: bool = True, *, alone: bool = False) -> Sequence[int]:
        names.append(threading.current_thread().name)
        return encode(text, add_special_tokens, alone=alone)

    monkeypatch.setattr(prompter.tokenizer, "prompt_ids", watched)
    text = "word " * prompter.tokenizer.light
    same = [run(prompter.text(text)).token_ids, encode(text)]
    assert same[0] == same[1]
    run(prompter.chat(ChatInput([{"role": "user", "content": text}])))
    run(prompter.chat(ChatInput([USER])))
    assert [name.startswith("prompt") for name in names] == [True, True, False]
    assert run(prompter.detokenize(list(same[0]))) == text


def test_templates_of_requests_are_refused_unless_trusted(load: Load) -> None:
    chat = ChatInput([USER], chat_template="{{ messages[0].content }}")
    hidden = ChatInput([USER], chat_template_kwargs={"chat_template": "x"})
    for work in (chat, hidden):
        error = refused(load("qwen3").chat(work))
        assert "--trust-request-chat-template is not set" in error.message
        assert error.param is None


@pytest.fixture
def trusting(load: Load) -> Prompter:
    return load_prompter(
        PromptSettings(load("smollm2").info.root, served_model_name=("m",), trust_request_chat_template=True)
    )


def test_trusted_templates(trusting: Prompter) -> None:
    async def all_at_once() -> list[Any]:
        sources = ("{{ messages[0].content }}!", "{{ bos_token }}{{ tools }}", "{{ x }}é")
        chats = [ChatInput([USER], chat_template=s, chat_template_kwargs={"x": "\ud7ff"}) for s in sources]
        hidden = ChatInput(
            [USER], chat_template_kwargs={"chat_template": "{% for c in messages[0].content %}{% endfor %}k"}
        )
        try:
            return await asyncio.gather(*(trusting.chat(chat) for chat in (*chats, hidden)))
        finally:
            await trusting.close()

    prompts = run(all_at_once())
    assert [p.text for p in prompts] == ["hi!", "<|im_start|>None", "\ud7ffé", "k"]
    assert list(prompts[0].token_ids) == trusting.tokenizer.encode("hi!")


BOMBS = {
    "endless": "{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
    "large value": "{{ ('x' * 10**10) | length }}",
    "doubling": "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "long": "{% for i in range(1000) %}{{ 'x' * 100000 }}{% endfor %}",
    "source": "x" * 300_000,
    "syntax": "{{ bad",
    "raise": "{{ raise_exception('no') }}",
    "exit": "{{ ''.__class__ }}{{ cycler.__init__.__globals__.os._exit(0) }}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_template_of_a_request_takes_more_than_it_may(trusting: Prompter, name: str) -> None:
    async def go() -> str:
        sandbox = TemplateSandbox(trusting.format, 0.5)  # type: ignore[arg-type]
        try:
            with pytest.raises(RequestError) as caught:
                await sandbox.render(BOMBS[name], ChatInput([USER]))
            assert caught.value.message
            assert await sandbox.render("{{ messages[0].content }}", ChatInput([USER])) == "hi"
        finally:
            await sandbox.close()
        return str(caught.value)

    words = run(go())
    if name == "endless":
        assert "ran longer than 0.5 seconds" in words


def test_a_request_that_leaves_while_its_template_runs(trusting: Prompter) -> None:
    async def go() -> None:
        sandbox = TemplateSandbox(trusting.format, 0)  # type: ignore[arg-type]
        try:
            await sandbox.render("x", ChatInput([USER]))
            task = asyncio.create_task(sandbox.render(BOMBS["endless"], ChatInput([USER])))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await sandbox.render("{{ messages[0].content }}", ChatInput([USER])) == "hi"
        finally:
            await sandbox.close()

    run(go())


def test_chat_template_flag(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("from a file", encoding="utf-8")
    chat = ChatInput([USER])
    assert run(load("llama2", chat_template=str(file)).chat(chat)).text == "from a file"
    assert run(load("llama2", chat_template="{{ messages[0].content }}!").chat(chat)).text == "hi!"
    assert run(load("qwen3", chat_template="default").chat(chat)).text == run(load("qwen3").chat(chat)).text
    with pytest.raises(StartError, match=r"--chat-template no/such/file\.jinja"):
        load("llama2", chat_template="no/such/file.jinja")
    with pytest.raises(StartError, match="does not compile"):
        load("llama2", chat_template="{{ bad")
    error = refused(load("llama2").chat(chat))
    assert (error.param, "provide a chat template" in error.message) == ("chat_template", True)


def test_tokenizer_modes(load: Load, models: Path) -> None:
    with pytest.raises(ConfigError, match="--tokenizer-mode inkling is not served"):
        load_prompter(PromptSettings(str(models / "qwen3"), tokenizer_mode="inkling"))
    chat = ChatInput([USER], chat_template_kwargs={"reasoning_effort": "low"})
    harmony = load("gptoss")
    ids = run(harmony.chat(chat)).token_ids
    assert harmony.tokenizer.tokens(ids[:3]) == ["<|start|>", "system", "<|message|>"]
    for mode in ("deepseek_v32", "deepseek_v4"):
        assert "<｜User｜>hi<｜Assistant｜><" in run(load("deepseek_v3", tokenizer_mode=mode).chat(chat)).text
    for settings in ({}, {"tokenizer_mode": "harmony"}):
        with pytest.raises(ConfigError, match="--chat-template has no effect with --tokenizer-mode harmony"):
            load("gptoss", chat_template="x", **settings)
    assert run(load("gptoss", tokenizer_mode="hf", chat_template="{{ 'x' }}").chat(chat)).text == "x"


@pytest.mark.parametrize(
    "chat, param",
    [
        (ChatInput([]), "messages"),
        (ChatInput([{"role": "user", "content": "a\ud800"}]), "prompt"),
        (ChatInput([{"role": "user", "content": 5}]), "messages.0.content"),
        (ChatInput([{"role": "assistant", "content": "x", "reasoning": 5}]), "messages.0.reasoning"),
        (ChatInput([USER], tools=[{"type": "function"}]), "tools.0.function"),
        (ChatInput([USER], documents=cast("Any", ["x"])), "documents"),
        (ChatInput([USER], chat_template_kwargs={"messages": [1]}), "chat_template_kwargs.messages"),
    ],
)
def test_bad_chats_name_the_field(load: Load, chat: ChatInput, param: str) -> None:
    assert refused(load("qwen3").chat(chat)).param == param


def test_bad_ids_name_the_limit(load: Load) -> None:
    for bad in (151936, -1):
        with pytest.raises(RequestError) as caught:
            load("qwen3").ids([1, bad])
        assert (caught.value.param, caught.value.value, caught.value.limit) == ("prompt", bad, 151935)


def test_deep_nesting_is_refused(load: Load) -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"type": "array", "items": deep}
    tools = [{"type": "function", "function": {"name": "f", "parameters": deep}}]
    for prompter in (load("qwen3"), load("gptoss"), load("deepseek_v3", tokenizer_mode="deepseek_v32")):
        refused(prompter.chat(ChatInput([USER], tools=tools)))


def test_loads_nothing_heavy(models: Path) -> None:
    code = (
        "import sys; from fastfront.prompt.load import *; load_prompter(PromptSettings(sys.argv[1]));"
        "print(*[m for m in ('torch', 'zmq', 'vllm', 'transformers', 'huggingface_hub', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, models / "smollm2"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
