"""The render routes beyond vLLM's recorded answers: what parameters become, what parsers change, what is shared."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fastfront.api.openai.recipe import _KEPT
from fastfront.config import ApiConfig
from fastfront.flow import ModelInfo
from fastfront.parse.prepare import Preparation
from tests.api.fakes import Answer, Client

CHAT, COMPLETION = "/v1/chat/completions/render", "/v1/completions/render"
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
OTHER = {"type": "function", "function": {"name": "g", "strict": True, "parameters": {"type": "object"}}}


def chat(client: Client, headers: dict[str, str] | None = None, **body: Any) -> Answer:
    return client.post(CHAT, {"messages": [{"role": "user", "content": "Hi"}], **body}, headers)


def completion(client: Client, **body: Any) -> Answer:
    return client.post(COMPLETION, {"prompt": "Hi", **body})


def params(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    got = answer.json
    return (got[0] if isinstance(got, list) else got)["sampling_params"]


@pytest.fixture
def parsing(client: Client) -> Client:
    client.state.settings = ApiConfig(tool_call_parser="hermes", reasoning_parser="qwen3")
    client.state.preparation = Preparation("hermes", "qwen3", {"<think>": 1001, "</think>": 1002}.get)
    return client


DEFAULTS = {
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0,
    "min_p": 0.0, "stop": [], "stop_token_ids": [], "output_kind": 2, "skip_clone": True, "bad_words": [],
    "skip_reading_prefix_cache": False,
}  # fmt: skip
PARAMS: list[tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    ({}, {"max_tokens": 2041}, ()),
    ({"max_tokens": 16}, {}, ()),
    ({"temperature": 0}, {"temperature": 0.0}, ("top_p", "min_p")),
    ({"temperature": 0, "top_k": 5, "top_p": 0.5}, {"temperature": 0.0}, ("top_p", "min_p")),
    ({"top_k": 5}, {"top_k": 5}, ()),
    ({"seed": 7, "n": 2}, {"n": 2, "seed": 7}, ()),
    ({"seed": -1}, {}, ()),
    ({"stop": "abc"}, {"stop": ["abc"], "output_text_buffer_length": 2}, ()),
    ({"stop": ["ab", "c"]}, {"stop": ["ab", "c"], "output_text_buffer_length": 1}, ()),
    (
        {"stop": ["ab"], "include_stop_str_in_output": True},
        {"stop": ["ab"], "include_stop_str_in_output": True},
        (),
    ),
    ({"stop_token_ids": [5, 6, 5]}, {"stop_token_ids": [5, 6]}, ()),
    ({"bad_words": ["x", "x"]}, {"bad_words": ["x"]}, ()),
    ({"ignore_eos": True, "min_tokens": 3}, {"ignore_eos": True, "min_tokens": 3}, ()),
    ({"stream": True, "stream_interval": 4}, {"output_kind": 1, "stream_interval": 4}, ()),
    ({"logit_bias": {"5": 200}}, {"logit_bias": {"5": 100.0}}, ()),
    ({"allowed_token_ids": [1]}, {"allowed_token_ids": [1]}, ()),
    ({"vllm_xargs": {"max_tokens": 1}}, {"extra_args": {"max_tokens": 1}}, ()),
    ({"skip_special_tokens": False}, {"skip_special_tokens": False}, ()),
    ({"spaces_between_special_tokens": False}, {"spaces_between_special_tokens": False}, ()),
    ({"thinking_token_budget": 9}, {"thinking_token_budget": 9}, ()),
    ({"watermarking": False}, {"watermarking": False}, ()),
]


@pytest.mark.parametrize(("asked", "more", "less"), PARAMS, ids=[json.dumps(asked) for asked, _, _ in PARAMS])
def test_params(client: Client, asked: dict[str, Any], more: dict[str, Any], less: tuple[str, ...]) -> None:
    want = {name: value for name, value in {**DEFAULTS, **more}.items() if name not in less}
    for _ in range(2):  # the second time from the recipe
        got = params(chat(client, **asked))
        if "max_tokens" not in asked:
            assert got.pop("max_tokens") == 2041 - 1
            want.pop("max_tokens", None)
        assert got == want


def test_what_is_wrong_is_refused_each_time(client: Client) -> None:
    for _ in range(2):
        assert chat(client, temperature=3).error["message"].startswith("temperature must be in [0, 2], got 3.0.")
        assert chat(client, min_tokens=5, max_tokens=4).status == 400
        assert chat(client, min_tokens=2048).status == 400


def test_requests_alike_do_not_mix(client: Client) -> None:
    """They share their parameters, not their room and their seed."""
    assert [params(chat(client, max_tokens=n)).get("max_tokens") for n in (5, 6, 16, 5)] == [5, 6, None, 5]
    assert params(chat(client, stream=True))["output_kind"] == 1
    assert params(chat(client))["output_kind"] == 2
    assert [params(chat(client, seed=seed)).get("seed") for seed in (1, 2, -1, 0)] == [1, 2, None, 0]
    assert "seed" not in params(chat(client))
    client.chat(max_tokens=3)
    assert client.generation.max_tokens == 3
    assert params(chat(client))["max_tokens"] == 2040


def test_recipes_are_bounded(client: Client) -> None:
    for top_k in range(_KEPT + 20):
        params(chat(client, top_k=top_k))
    assert 0 < len(client.state.recipes) <= _KEPT


def test_what_is_large_is_not_kept_in_a_recipe(client: Client) -> None:
    for stop in ("x" * 10_000, ["x" * 10_000]):
        answer = client.post("/v1/completions/render", {"prompt": "Hi", "stop": stop})
        assert answer.status == 200, answer
        assert answer.json[0]["sampling_params"]["stop"] == (stop if isinstance(stop, list) else [stop])
    assert not client.state.recipes


def test_a_long_prompt_has_a_task(client: Client) -> None:
    messages = [{"role": "user", "content": str(n)} for n in range(20)]
    assert chat(client, messages=messages).json["token_ids"][-1] == ord("9")
    assert len(completion(client, prompt="x" * 500).json[0]["token_ids"]) == 500
    many = completion(client, prompt=["a"] * 40, request_id="r").json
    assert [one["request_id"] for one in many] == [f"cmpl-r-{at}" for at in range(40)]


def test_ids_and_headers(client: Client) -> None:
    got = chat(client, {"x-request-id": "mine", "x-vllm-priority": "3"}, cache_salt="s", model="alias").json
    assert (got["request_id"], got["priority"], got["cache_salt"], got["model"]) == ("chatcmpl-mine", 3, "s", "alias")
    assert len({chat(client).json["request_id"] for _ in range(300)}) == 300


def test_generation_config(client: Client) -> None:
    """A model's own stop ids and defaults are told; its end tokens are not, as the engine's server adds them."""
    info: ModelInfo = client.pipeline.info
    before = info.sampling_defaults
    info.sampling_defaults = {"temperature": 0.5, "stop_token_ids": [9], "max_tokens": 7}
    try:
        got = params(chat(client, stop_token_ids=[8]))
        assert (got["temperature"], got["stop_token_ids"], got["max_tokens"]) == (0.5, [8, 9], 7)
    finally:
        info.sampling_defaults = before


def test_constraints(client: Client) -> None:
    got = params(chat(client, structured_outputs={"regex": "a+"}))["structured_outputs"]
    assert list(got) == [
        "json", "regex", "choice", "grammar", "json_object", "disable_any_whitespace", "disable_additional_properties",
        "whitespace_pattern", "structural_tag", "_backend", "_backend_was_auto",
    ]  # fmt: skip
    assert (got["regex"], got["json"], got["_backend"]) == ("a+", None, None)


def test_stream_options(client: Client) -> None:
    asked: dict[str, Any] = {"stream": True, "stream_options": {"continuous_usage_stats": True}}
    assert chat(client, **asked).json["stream_options"] == {"include_usage": False, "continuous_usage_stats": True}
    assert chat(client, stream=True).json["stream_options"] is None


def test_offsets(qwen: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    client = qwen(2048)
    text = "Hello wörld 世界!"
    got = client.post(COMPLETION, {"prompt": text, "return_token_offsets": True}).json[0]
    tokens = client.post("/tokenize", {"prompt": text, "return_token_strs": True}).json
    assert got["token_ids"] == tokens["tokens"]
    assert len(got["token_offsets"]) == len(got["token_ids"])
    assert [text[a:b] for a, b in got["token_offsets"]][:2] == ["Hello", " w"]
    cut = {"prompt": text, "return_token_offsets": True, "truncate_prompt_tokens": 2}
    assert client.post(COMPLETION, cut).json[0]["token_offsets"] == got["token_offsets"][-2:]
    right = {**cut, "truncation_side": "right"}
    assert client.post(COMPLETION, right).json[0]["token_offsets"] == got["token_offsets"][:2]
    seen: list[threading.Thread] = []
    tokenizer = client.pipeline.prompter.tokenizer
    find = tokenizer.offsets

    def spied(*asked: Any) -> Any:
        seen.append(threading.current_thread())
        return find(*asked)

    monkeypatch.setattr(tokenizer, "offsets", spied)
    for prompts in (["x" * 10], ["word " * 1000] * 4):
        many = client.post(COMPLETION, {"prompt": prompts, "return_token_offsets": True}).json
        assert all(len(each["token_offsets"]) == len(each["token_ids"]) for each in many)
    assert [thread is threading.main_thread() for thread in seen] == [True, *[False] * 4]
    ids = {"prompt": got["token_ids"], "return_token_offsets": True}
    assert client.post(COMPLETION, ids).json[0]["token_offsets"] is None


def _tag(answer: Answer) -> Any:
    constraint = params(answer)["structured_outputs"]
    tag = json.loads(constraint["structural_tag"])
    assert tag["type"] == "structural_tag"
    return tag["format"]


def test_named_tool(parsing: Client) -> None:
    choice = {"type": "function", "function": {"name": "g"}}
    form = _tag(chat(parsing, tools=[TOOL, OTHER], tool_choice=choice))
    assert (form["type"], form["at_least_one"], form["stop_after_first"]) == ("tags_with_separator", True, True)
    assert [tag["begin"] for tag in form["tags"]] == [
        '<tool_call>\n{"name": "g", "arguments": ', '<tool_call>{"name": "g", "arguments": '
    ]  # fmt: skip
    assert form["tags"][0]["content"]["json_schema"] == {"type": "object"}


def test_required_tools(parsing: Client) -> None:
    body: dict[str, Any] = {"tools": [TOOL, OTHER], "tool_choice": "required"}
    body["response_format"] = {"type": "json_object"}
    form = _tag(chat(parsing, **body))
    held = {"type": "object"}
    assert [tag["content"]["json_schema"] for tag in form["tags"]] == [True, True, held, held]
    assert not form["stop_after_first"]
    assert _tag(chat(parsing, **body, parallel_tool_calls=False))["stop_after_first"]


def test_auto_tools(parsing: Client) -> None:
    assert "structured_outputs" not in params(chat(parsing, tools=[TOOL]))
    formed = params(chat(parsing, tools=[TOOL], response_format={"type": "json_object"}))
    assert formed["structured_outputs"]["json_object"] is True
    form = _tag(chat(parsing, tools=[TOOL, OTHER]))
    assert (form["type"], form["triggers"], form["at_least_one"]) == ("triggered_tags", ["<tool_call>"], False)
    assert _tag(chat(parsing, tools=[TOOL], parallel_tool_calls=False))["stop_after_first"]
    assert "structured_outputs" not in params(chat(parsing, tools=[OTHER], tool_choice="none"))
    beside = _tag(chat(parsing, tools=[OTHER], response_format={"type": "json_object"}))
    calls, answer = beside["elements"]
    assert (beside["type"], calls["type"], answer["type"]) == ("or", "tags_with_separator", "json_schema")


def test_a_format_without_a_grammar_calls_in_json(parsing: Client) -> None:
    parsing.state.preparation = Preparation("pythonic", None, lambda text: None)
    assert "structured_outputs" not in params(chat(parsing, tools=[TOOL]))
    held = params(chat(parsing, tools=[TOOL], tool_choice="required"))["structured_outputs"]["json"]
    assert (held["type"], held["minItems"]) == ("array", 1)
    assert held["items"]["anyOf"][0]["properties"]["name"] == {"type": "string", "enum": ["f"]}


def test_without_a_tool_parser(client: Client) -> None:
    assert chat(client, tools=[TOOL], tool_choice="none").status == 200
    assert chat(client, tools=[TOOL]).error["param"] == "tool_choice"
    assert chat(client, include_reasoning=False).status == 200


def test_reasoning(parsing: Client) -> None:
    assert params(chat(parsing))["skip_special_tokens"] is False
    assert chat(parsing).json["reasoning_ended"] is False
    assert chat(parsing, include_reasoning=False).json["reasoning_ended"] is True
    kwargs = chat(parsing, reasoning_effort="none", chat_template_kwargs={"a": None, "b": 1}).json
    assert kwargs["reasoning_parser_kwargs"] == {
        "chat_template_kwargs": {
            "cohere_format": "cmd4", "b": 1, "add_generation_prompt": True, "continue_final_message": False,
            "reasoning_effort": "none", "enable_thinking": False,
        }
    }  # fmt: skip
    assert "skip_special_tokens" not in params(completion(parsing))


def test_on_the_serving_port_without_the_engine(client: Client) -> None:
    """Requests are rendered by the process that serves, and no engine is asked."""
    assert chat(client).status == 200
    assert completion(client).status == 200
    assert client.pipeline.asked == []
    assert ("GET", "/tokenizer_info") not in client.handlers


def test_tokenizer_info() -> None:
    client = Client(settings=ApiConfig(enable_tokenizer_info_endpoint=True))
    assert client.get("/tokenizer_info").json == {"tokenizer_class": "Chars", "eos_token": "<eos>"}


def test_logprobs(client: Client) -> None:
    made = params(chat(client, logprobs=True, top_logprobs=2))
    assert (made["logprobs"], made["skip_reading_prefix_cache"]) == (2, False)
    made = params(completion(client, logprobs=1, echo=True))
    assert (made["logprobs"], made["prompt_logprobs"], made["skip_reading_prefix_cache"]) == (1, 1, True)
    made = params(completion(client, logprobs=1, logprob_token_ids=[5]))
    assert ("logprobs" in made, made["logprob_token_ids"]) == (False, [5])
    assert not {"logprobs", "prompt_logprobs", "logprob_token_ids"} & set(params(chat(client)))
