"""What is sent to both servers: for every field of the generating endpoints values that are right, wrong, at an edge.

What vLLM's Python frontend answered is in tests/golden/field_probes.jsonl, which record_field_probes.py writes anew.
"""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

#: Of the model that the golden answers are from: SmolLM2-135M-Instruct.
MODEL, VOCAB, MODEL_LEN = "smollm2", 49152, 2048

#: Takes a field out of the body.
ABSENT = object()
#: Characters of a message that are kept, and of a field that are told.
_MESSAGE, _SHOWN = 160, 400

FLOAT: list[Any] = [None, True, "0.5", "x", [0.5], {}, 1e-300, 10**30, math.nan, math.inf, -math.inf]
INTEGER: list[Any] = [None, True, "5", "x", 1.0, 1.5, [1], {}, -1, 0, 2**31, 2**63, -(2**63) - 1, math.nan, math.inf]
BOOLEAN: list[Any] = [None, True, False, 1, 0, 2, 0.5, "true", "off", "x", [], {}]
STRING: list[Any] = [None, "", "x", "ü\0", 1, True, ["x"], {}]
OBJECT: list[Any] = [None, {}, {"a": 1}, [], "x", 1, True]
IDS: list[Any] = [
    None, [], [1], [0], [1, 1], ["1"], ["x"], [1.0], [1.5], [None], [-1], [VOCAB - 1], [VOCAB], [2**63], 1, "1", {},
]  # fmt: skip


def any_of(*values: Any) -> tuple[Any, ...]:
    """Values of all kinds."""
    return values


SHARED: dict[str, list[Any]] = {
    "model": [ABSENT, None, "", MODEL, "nope", 1, [MODEL], {}],
    "stream": BOOLEAN,
    "user": STRING,
    "temperature": [*FLOAT, 0, 0.7, 1e-5, 2, 2.01, -0.1],
    "top_p": [*FLOAT, 0, 1, 1.0001, -0.1],
    "top_k": [*INTEGER, -2, 1, VOCAB + 1],
    "min_p": [*FLOAT, 0, 1, 1.1, -0.1],
    "frequency_penalty": [*FLOAT, -2, 2, 2.1, -2.1],
    "presence_penalty": [*FLOAT, -2, 2, 2.1, -2.1],
    "repetition_penalty": [*FLOAT, 0, 1, 2.5, -1],
    "logit_bias": [
        *OBJECT, {"1": 1}, {"1": 200}, {"1": None}, {"1": "2"}, {"1": "x"}, {"1": True}, {"1": math.nan},
        {"1": math.inf},
        {"-1": 1}, {"1.5": 1}, {str(VOCAB - 1): 1}, {str(VOCAB): 1}, {"9" * 30: 1}, {" 7 ": 1}, {"1_0": 1},
    ],
    "seed": [*INTEGER, 2**63 - 1, -(2**63)],
    "watermarking": BOOLEAN,
    "n": [*INTEGER, 2, 16385],
    "stop": [
        *STRING, [], ["a"], ["a", ""], [""], ["a", 1], [None], ["a", "b", "c", "d"], ["a", "b", "c", "d", "e"],
        "y" * 5000,
    ],
    "stop_token_ids": IDS,
    "include_stop_str_in_output": BOOLEAN,
    "ignore_eos": BOOLEAN,
    "min_tokens": [*INTEGER, 2, 3, MODEL_LEN],
    "max_tokens": [*INTEGER, 1, 16, MODEL_LEN - 1, MODEL_LEN, MODEL_LEN + 1],
    "skip_special_tokens": BOOLEAN,
    "spaces_between_special_tokens": BOOLEAN,
    "allowed_token_ids": IDS,
    "bad_words": [None, [], ["a"], ["a", "b c"], [""], [" "], ["a", ""], [1], [None], "a", {}, 1],
    "truncate_prompt_tokens": [*INTEGER, 1, 3, -2, MODEL_LEN, MODEL_LEN + 1, 2**63 - 1],
    "truncation_side": [*STRING, "left", "right", "LEFT"],
    "prompt_logprobs": [*INTEGER, 1, 20, 21, -2],
    "logprob_token_ids": IDS,
    "return_tokens_as_token_ids": BOOLEAN,
    "return_token_ids": BOOLEAN,
    "return_token_offsets": BOOLEAN,
    "routed_experts_prompt_start": [*INTEGER, 1, 10_000],
    "mm_payload": [*STRING, "tensors", "none"],
    "return_mm_kwargs": BOOLEAN,
    "use_beam_search": BOOLEAN,
    "length_penalty": FLOAT,
    "priority": [*INTEGER, 7, -(2**63)],
    "request_id": [*STRING, "a b", "x" * 300],
    "session_id": STRING,
    "cache_salt": [*STRING, "ok", "a@b", "a/b", "a\\b", "s" * 128, "s" * 129],
    "kv_transfer_params": [
        *OBJECT, {"do_remote_decode": True}, {"prompt_token_ids": [1, 2]}, {"prompt_token_ids": []},
        {"prompt_token_ids": [-1]}, {"prompt_token_ids": ["1"]}, {"prompt_token_ids": None}, {"a": 2**64},
        {"a": {"b": [1]}},
    ],
    "ec_transfer_params": OBJECT,
    "vllm_xargs": [
        *OBJECT, {"a": "b"}, {"a": 1.5}, {"a": [1, "b", 2.5]}, {"a": {"b": 1}}, {"a": None}, {"a": [None]},
        {"a": [[1]]},
        {"a": True}, {"a": 2**63}, {"a": 2**64}, {"a": -(2**63) - 1},
    ],
    "repetition_detection": [
        *OBJECT, {"max_pattern_size": 0}, {"max_pattern_size": 4, "min_count": 2},
        {"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 3}, {"max_pattern_size": 4},
        {"max_pattern_size": 2, "min_pattern_size": 4, "min_count": 2}, {"max_pattern_size": -1, "min_count": 2},
        {"max_pattern_size": "4", "min_count": 2}, {"max_pattern_size": None}, {"max_pattern_size": 1.5,
        "min_count": 2},
        {"max_pattern_size": 4, "min_count": 1}, {"max_pattern_size": 4, "min_count": 2, "other": 1},
    ],
    "thinking_token_budget": [*INTEGER, 1, 100, -2],
    "stream_interval": [*INTEGER, 1, 4],
    "stream_options": [*OBJECT, {"include_usage": True}],
    "structured_outputs": [
        *OBJECT, {"json": {}}, {"json": {"type": "object"}}, {"json": '{"type": "object"}'}, {"json": ""},
        {"json": "{"},
        {"json": {"type": "bogus"}}, {"json": 1}, {"json": True}, {"json": []}, {"regex": "[ab]{3}"}, {"regex": ""},
        {"regex": "(["}, {"regex": 1}, {"regex": "a\0b"}, {"choice": ["a", "b"]}, {"choice": []}, {"choice": "a"},
        {"choice": [1]}, {"choice": [""]}, {"choice": ["a", "a"]}, {"grammar": 'root ::= "a" | "b"'}, {"grammar": ""},
        {"grammar": "root ::= ("}, {"grammar": 'start: "a"'}, {"grammar": 1}, {"json_object": True},
        {"json_object": False},
        {"json_object": "x"}, {"structural_tag": "{}"}, {"structural_tag": ""}, {"structural_tag": {}},
        {"structural_tag": '{"type": "structural_tag", "format": {"type": "any_text"}}'}, {"json": {}, "regex": "a"},
        {"regex": "a", "grammar": 'root ::= "a"'}, {"regex": "a", "other": 1}, {"other": 1},
        {"json": {}, "disable_any_whitespace": True}, {"json": {}, "disable_any_whitespace": "x"},
        {"json": {}, "whitespace_pattern": " "}, {"json": {}, "whitespace_pattern": 1},
        {"json": {}, "disable_additional_properties": True}, {"json": None}, {"disable_any_whitespace": True},
    ],
    "response_format": [
        *OBJECT, {"type": "text"}, {"type": "json_object"}, {"type": "json_schema"}, {"type": "nope"}, {"type": None},
        {"type": 1}, {"type": "json_schema", "json_schema": None}, {"type": "json_schema", "json_schema": {}},
        {"type": "json_schema", "json_schema": "x"}, {"type": "json_schema", "json_schema": {"name": "n"}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": None}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": "x"}},
        {"type": "json_schema", "json_schema": {"name": 1, "schema": {}}},
        {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": "x"}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": None}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "description": 1}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "bogus"}}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"$ref": "#/$defs/nope"}}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"$ref": "#"}}},
        {"type": "text", "json_schema": "x"}, {"type": "text", "other": 1},
        {"type": "structural_tag"}, {"type": "structural_tag", "format": {}}, {"type": "structural_tag",
        "format": None},
        {"type": "structural_tag", "format": {"type": "any_text"}},
        {"type": "structural_tag", "structures": [], "triggers": []},
        {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a"]},
        {"type": "structural_tag", "structures": [{"begin": "<a>", "end": "</a>"}], "triggers": ["<a"]},
        {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}}], "triggers": ["<a"]},
        {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": "<a"},
    ],
    "never_heard_of": [1],
    "best_of": [2],
}  # fmt: skip

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASK = {"role": "user", "content": "hi"}

#: Contents of a user's message.
CONTENTS: list[Any] = [
    ABSENT, None, "", "x", 1, True, {}, [], ["x"], [1], [None], [{}], [{"type": "text", "text": "x"}], [{"text": "x"}],
    [{"type": "text"}], [{"type": "text", "text": None}], [{"type": "text", "text": 1}], [{"type": "text", "text": ""}],
    [{"type": "nope", "text": "x"}], [{"type": 1, "text": "x"}], [{"type": "input_text", "text": "x"}],
    [{"type": "output_text", "text": "x"}], [{"type": "refusal", "refusal": "x"}], [{"type": "refusal"}],
    [{"type": "thinking", "thinking": "x"}], [{"type": "thinking"}], ["x", {"type": "text", "text": "y"}],
    [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}], [{"type": "text", "text": "x", "other": 1}],
    [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}}],
    [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}],
]  # fmt: skip

#: Messages after (or instead of) a plain question.
MESSAGES: list[Any] = [
    ABSENT, None, [], {}, "x", 1, ["x"], [1], [None], [[]], [{}], [ASK], [{"content": "x"}], [{"role": "user"}],
    [{"role": None, "content": "x"}], [{"role": 1, "content": "x"}], [{"role": "", "content": "x"}],
    [{"role": "wizard", "content": "x"}], [{"role": "developer", "content": "x"}], [{"role": "system", "content": "x"}],
    [{"role": "system", "content": "x"}, ASK], [{"role": "system", "content": [{"type": "text", "text": "x"}]}, ASK],
    [ASK, {"role": "system", "content": "x"}], [{"role": "tool", "content": "x"}],
    [{"role": "tool", "content": "x", "tool_call_id": "c"}], [{"role": "tool", "content": "x", "tool_call_id": 1}],
    [{"role": "tool", "tool_call_id": "c"}], [{"role": "tool", "content": None, "tool_call_id": "c"}],
    [{"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "c"}],
    [{"role": "function", "name": "f", "content": "x"}], [{"role": "function", "name": "f", "content": None}],
    [{"role": "function", "content": "x"}], [ASK, ASK], [ASK, {"role": "assistant", "content": "x"}],
    [{**ASK, "name": "n"}], [{**ASK, "name": None}], [{**ASK, "name": 1}], [{**ASK, "name": []}],
    [{"role": "system", "content": "x", "name": 1}], [{"role": "assistant", "content": "x", "name": 1}],
    [{**ASK, "other": 1}], [{**ASK, "tool_calls": [CALL]}], [{**ASK, "reasoning": "x"}],
    *[[{"role": role, "content": "x"}] * 2 for role in ("assistant", "tool")],
]  # fmt: skip

#: What an assistant's message may be after a question.
ASSISTANT: list[dict[str, Any]] = [
    {}, {"content": None}, {"content": ""}, {"content": "x"}, {"content": 1}, {"content": []}, {"content": ["x"]},
    {"content": [{"type": "text", "text": "x"}]}, {"content": [{"type": "refusal", "refusal": "x"}]}, {"refusal": "x"},
    {"content": None, "refusal": None}, {"content": "x", "refusal": 1}, {"reasoning": "x"}, {"reasoning": 1},
    {"reasoning": None, "content": "x"}, {"reasoning_content": "x"}, {"reasoning_content": 1}, {"reasoning": ["x"]},
    {"tool_calls": [CALL]}, {"tool_calls": [CALL], "content": None}, {"tool_calls": []}, {"tool_calls": None},
    {"tool_calls": "x"}, {"tool_calls": {}}, {"tool_calls": 1}, {"tool_calls": ["x"]}, {"tool_calls": [None]},
    {"tool_calls": [{}]}, {"tool_calls": [{**CALL, "id": None}]}, {"tool_calls": [{**CALL, "id": 1}]},
    {"tool_calls": [{key: CALL[key] for key in ("type", "function")}]},
    {"tool_calls": [{key: CALL[key] for key in ("id", "function")}]}, {"tool_calls": [{**CALL, "type": "nope"}]},
    {"tool_calls": [{**CALL, "type": None}]}, {"tool_calls": [{"id": "c", "type": "function"}]},
    {"tool_calls": [{**CALL, "function": None}]}, {"tool_calls": [{**CALL, "function": "x"}]},
    {"tool_calls": [{**CALL, "function": {"arguments": "{}"}}]}, {"tool_calls": [{**CALL, "function": {"name": "f"}}]},
    {"tool_calls": [{**CALL, "function": {"name": 1, "arguments": "{}"}}]},
    {"tool_calls": [{**CALL, "function": {"name": "", "arguments": "{}"}}]},
    *[
        {"tool_calls": [{**CALL, "function": {"name": "f", "arguments": arguments}}]}
        for arguments in any_of("", "{", "1", "[]", "null", '"x"', '{"a": 1}', '{"a": NaN}', None, {}, {"a": 1}, [], 1)
    ],
    {"tool_calls": [{**CALL, "other": 1}]}, {"function_call": {"name": "f", "arguments": "{}"}}, {"audio": {"id": "x"}},
    {"content": "x", "prefix": True},
]  # fmt: skip

TOOLS: list[Any] = [
    None, [], {}, "x", 1, [1], [None], [{}], [TOOL], [TOOL, TOOL], [{"type": "nope"}], [{"type": "function"}],
    [{"function": TOOL["function"]}], [{**TOOL, "type": None}], [{**TOOL, "function": None}],
    [{**TOOL, "function": {}}], [{**TOOL, "other": 1}], [{**TOOL, "defer_loading": "x"}],
    *[
        [{**TOOL, "function": {**TOOL["function"], **change}}]  # type: ignore[dict-item]
        for change in any_of(
            {"name": None}, {"name": ""}, {"name": 1}, {"name": "a b"}, {"description": None}, {"description": 1},
            {"parameters": None}, {"parameters": {}}, {"parameters": "x"}, {"parameters": []},
            {"parameters": {"type": "bogus"}}, {"strict": None}, {"strict": True}, {"strict": "x"}, {"other": 1},
        )
    ],
]  # fmt: skip

CHAT: dict[str, list[Any]] = {
    "messages": [
        *MESSAGES,
        *[
            [{"role": "user"} if content is ABSENT else {"role": "user", "content": content}] for content in CONTENTS
        ],
        *[[ASK, {"role": "assistant", **fields}, ASK] for fields in ASSISTANT],
    ],
    "logprobs": BOOLEAN,
    "top_logprobs": [*INTEGER, 1, 20, 21, -2],
    "max_completion_tokens": [*INTEGER, 1, MODEL_LEN, MODEL_LEN + 1],
    "tools": TOOLS,
    "tool_choice": [*STRING, "none", "auto", "required", NAMED],
    "parallel_tool_calls": BOOLEAN,
    "reasoning_effort": [*STRING, "none", "minimal", "low", "medium", "high", "xhigh", "max", "HIGH"],
    "include_reasoning": BOOLEAN,
    "echo": BOOLEAN,
    "add_generation_prompt": BOOLEAN,
    "continue_final_message": BOOLEAN,
    "add_special_tokens": BOOLEAN,
    "documents": [None, [], [{}], [{"text": "x"}], [{"text": 1}], [{"text": None}], ["x"], {}, "x", 1],
    "chat_template": [*STRING, "{{ bad", "{{ messages[0].content }}"],
    "chat_template_kwargs": [
        *OBJECT, {"enable_thinking": False}, {"enable_thinking": "x"}, {"messages": []}, {"messages": 1},
        {"tools": [1]},
        {"chat_template": "x"}, {"chat_template": None}, {"add_generation_prompt": False},
        {"continue_final_message": True},
        {"tokenize": True}, {"tokenize": False}, {"return_dict": True}, {"conversation": []}, {"a": {"b": [None]}},
        {"padding": True}, {"self": 1}, {"template": "x"}, {"a b": 1}, {"": 1}, {"reasoning_effort": "x"},
        {"documents": 1},
    ],
    "media_io_kwargs": [*OBJECT, {"image": {}}, {"image": {"a": 1}}],
    "mm_processor_kwargs": OBJECT,
    "return_prompt_text": BOOLEAN,
    "service_tier": ["auto", 1],
    "store": [True, "x"],
    "metadata": [{"a": "b"}, 1],
    "modalities": [["text"], ["audio"]],
    "functions": [[], [{"name": "f"}], 1],
    "function_call": ["auto", 1],
    "verbosity": ["low"],
    "web_search_options": [{}],
    "prediction": [{"type": "content", "content": "x"}],
}  # fmt: skip

COMPLETION: dict[str, list[Any]] = {
    "prompt": [
        *STRING, ABSENT, "hi", [], ["hi"], ["hi", "ho"], [""], ["hi", ""], [1], [1, 2, 3], [[1]], [[1], [2, 3]], [[]],
        [[1], []],
        [1, "x"], ["x", 1], [[1], "x"], ["x", [1]], [[1], 2], [None], ["x", None], [1.0], [1.5], [True], ["1"], [-1],
        [[-1]],
        [VOCAB - 1], [VOCAB], [[VOCAB]], [2**63], [[["x"]]], [{}], 1.5, "x" * 20_000, [1] * MODEL_LEN,
        [1] * (MODEL_LEN - 1),
        [1] * (MODEL_LEN - 2), ["a"] * 1025,
    ],
    "echo": BOOLEAN,
    "logprobs": [*INTEGER, 1, 20, 21, -2],
    "suffix": STRING,
    "prompt_embeds": [None, "", "AA==", "x", [], ["AA=="], 1, {}],
    "add_special_tokens": BOOLEAN,
}  # fmt: skip

#: Several fields together.
BOTH_TOGETHER: list[dict[str, Any]] = [
    {"stream": True, "stream_options": options}
    for options in any_of(
        None, {}, {"include_usage": True}, {"include_usage": None}, {"include_usage": "yes"}, {"include_usage": 3},
        {"continuous_usage_stats": True}, {"include_usage": True, "continuous_usage_stats": True}, {"other": 1}, "x",
        [], 1,
    )
]  # fmt: skip
BOTH_TOGETHER += [
    {"stream": False, "stream_options": {"include_usage": False}},
    {"stream": None, "stream_options": {"include_usage": True}},
    {"stream": True, "prompt_logprobs": 0},
    {"stream": True, "prompt_logprobs": 1},
    {"stream": True, "prompt_logprobs": -1},
    {"stream": True, "n": 2},
    {"stream": True, "temperature": 3},
    {"stream": True, "stop": [""]},
    {"temperature": 0, "n": 2},
    {"temperature": 1e-6, "n": 2},
    {"min_tokens": 5, "max_tokens": 2},
    {"logprob_token_ids": [1], "use_beam_search": True},
    {"use_beam_search": True, "n": 2},
    {"use_beam_search": True, "n": 2, "temperature": 0},
    {"use_beam_search": True, "n": 0},
    {"use_beam_search": True, "n": 2, "stream": True},
    {"use_beam_search": True, "length_penalty": 0.5},
    {"use_beam_search": True, "stop": ["a"]},
    {"use_beam_search": True, "min_tokens": 1},
    {"use_beam_search": True, "temperature": 3},
    {"use_beam_search": True, "max_tokens": 0},
    {"use_beam_search": True, "structured_outputs": {"regex": "a"}},
    {"logprobs": 1, "logprob_token_ids": [1, 2]},
    {"logprobs": 1, "logprob_token_ids": [VOCAB]},
    {"logprobs": 1, "logprob_token_ids": [-1]},
    {"logprobs": 1, "logprob_token_ids": list(range(128))},
    {"logprobs": 1, "logprob_token_ids": list(range(129))},
    {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
    {"structured_outputs": {"regex": "a"}, "response_format": {"type": "text"}},
    {"structured_outputs": {"whitespace_pattern": " "}, "response_format": {"type": "json_object"}},
    {"bad_words": ["a"] * 200},
    {"truncate_prompt_tokens": 1, "truncation_side": "right"},
    {"allowed_token_ids": [1], "logit_bias": {"1": -100}},
    {"kv_transfer_params": {"prompt_token_ids": [1, 2]}, "echo": True},
    {"kv_transfer_params": {"prompt_token_ids": [VOCAB]}},
]
CHAT_TOGETHER: list[dict[str, Any]] = [
    {"logprobs": True, "top_logprobs": top} for top in (None, 0, 2, 20, 21, -1, "2", 1.5)
]
CHAT_TOGETHER += [{"tools": [TOOL], "tool_choice": choice} for choice in any_of(
    None, "none", "auto", "required", "nope", 1, [], {}, NAMED, {"type": "nope", "function": {"name": "f"}},
    {"function": {"name": "f"}}, {"type": "function"}, {"type": "function", "function": None},
    {"type": "function", "function": {}}, {"type": "function", "function": {"name": ""}},
    {"type": "function", "function": {"name": 1}}, {"type": "function", "function": {"name": "g"}},
    {"type": "function", "name": "f"}, {**NAMED, "other": 1},
    {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}},
)]  # fmt: skip
CHAT_TOGETHER += [
    {"tools": [TOOL], "stream": True},
    {"tools": [TOOL], "parallel_tool_calls": False},
    {"tools": [TOOL], "tool_choice": "required", "structured_outputs": {"regex": "a"}},
    {"tools": [TOOL], "tool_choice": NAMED, "structured_outputs": {"regex": "a"}},
    {"tools": [TOOL], "tool_choice": "auto", "response_format": {"type": "json_object"}},
    {"tools": [TOOL], "tool_choice": "required", "response_format": {"type": "json_object"}},
    {"add_generation_prompt": True, "continue_final_message": True},
    {"add_generation_prompt": False, "continue_final_message": True},
    {
        "messages": [ASK, {"role": "assistant", "content": "O"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    {"messages": [ASK, {"role": "assistant", "content": "O"}], "add_generation_prompt": False, "echo": True},
    {"echo": True, "prompt_logprobs": 1},
    {"echo": True, "logprobs": True, "top_logprobs": 1},
    {"echo": True, "logprobs": True, "top_logprobs": 1, "stream": True},
    {"max_tokens": 0, "max_completion_tokens": 1},
    {"max_tokens": 1, "max_completion_tokens": 0},
    {"max_tokens": ABSENT, "min_tokens": 3},
    {"max_tokens": ABSENT, "max_completion_tokens": None},
    {"messages": [{"role": "user", "content": "x " * 3000}]},
    {"messages": [{"role": "user", "content": "x " * 3000}], "truncate_prompt_tokens": -1},
    {"messages": [{"role": "user", "content": "x " * 3000}], "truncate_prompt_tokens": 10},
    {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
    {"include_reasoning": False, "stream": True},
    {"logprobs": True, "top_logprobs": 1, "use_beam_search": True},
    {"tools": [TOOL], "use_beam_search": True},
]
COMPLETION_TOGETHER: list[dict[str, Any]] = [
    {"echo": True, "logprobs": 1},
    {"echo": True, "logprobs": 1, "stream": True},
    {"echo": True, "logprobs": 1, "use_beam_search": True},
    {"echo": True, "use_beam_search": True},
    {"logprobs": 1, "use_beam_search": True},
    {"echo": True, "logprobs": 0},
    {"echo": True, "logprobs": None, "prompt_logprobs": 1},
    {"echo": True, "max_tokens": 0},
    {"echo": True, "max_tokens": 0, "stream": True},
    {"echo": True, "max_tokens": 0, "logprobs": 1},
    {"echo": True, "max_tokens": -1},
    {"echo": False, "max_tokens": 0},
    {"echo": True, "max_tokens": 0, "logprobs": 1, "logprob_token_ids": [1]},
    {"echo": True, "prompt": [1, 2]},
    {"echo": True, "prompt": [[1], [2]]},
    {"echo": True, "n": 2},
    {"logprobs": 1, "stream": True},
    {"prompt": "hi", "suffix": "x", "echo": True},
    {"prompt": None, "prompt_embeds": "AA=="},
    {"prompt": "", "prompt_embeds": []},
    {"prompt": ["a", "b"], "n": 2},
    {"prompt": ["a", "b"], "stream": True},
    {"prompt": "x " * 3000, "truncate_prompt_tokens": -1},
    {"prompt": "x " * 3000, "truncate_prompt_tokens": 10},
    {"prompt": [1] * 3000, "truncate_prompt_tokens": 10},
    {"min_tokens": 3, "max_tokens": None},
    {"model": ABSENT, "prompt": ABSENT},
]
#: Bodies that are no such object at all: their bytes.
RAW = (b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b'{"a": 1,}', b"\xff\xfe", b"[" * 50)

ENDPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": MODEL, "messages": [ASK], "max_tokens": 2}),
    "completion": ("/v1/completions", {"model": MODEL, "prompt": "hi", "max_tokens": 2}),
}


class Probe(NamedTuple):
    """One request; `name` says what is in it beside the plain body, and is its own."""

    name: str
    path: str
    body: bytes


class Answer(NamedTuple):
    """What a server made of it: the status and, where it is an error, what its body says."""

    status: int
    type: str | None = None
    param: str | None = None
    code: int | str | None = None
    message: str | None = None


def probes() -> Iterator[Probe]:
    """All of them; names are different."""
    seen: set[tuple[str, bytes]] = set()
    for name, (path, plain) in ENDPOINTS.items():
        for fields in _changes(name):
            whole = {**plain, **fields}
            body = json.dumps({key: value for key, value in whole.items() if value is not ABSENT}).encode()
            if (path, body) not in seen:
                seen.add((path, body))
                yield Probe(f"{name} {_shown(fields)}", path, body)
        for raw in RAW:
            yield Probe(f"{name} bytes {raw!r}", path, raw)


def _changes(name: str) -> Iterator[dict[str, Any]]:
    own, together = (CHAT, CHAT_TOGETHER) if name == "chat" else (COMPLETION, COMPLETION_TOGETHER)
    for field, values in {**SHARED, **own}.items():
        for value in values:
            yield {field: value}
    yield from BOTH_TOGETHER
    yield from together


def _shown(fields: dict[str, Any]) -> str:
    """The fields as JSON; what is long is cut, and its length told."""
    parts = []
    for name, value in fields.items():
        text = "(absent)" if value is ABSENT else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name}={text if len(text) <= _SHOWN else f'{text[:60]}... ({len(text)})'}")
    return " ".join(parts)


def ask(connection: http.client.HTTPConnection, probe: Probe) -> Answer:
    """Sends a probe and reads the answer."""
    connection.request("POST", probe.path, probe.body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status == 200:
        return Answer(200)
    if answer.status >= 500:
        connection.close()  # vLLM does, without saying so
    try:
        error = json.loads(data)["error"]
        return Answer(answer.status, error["type"], error["param"], error["code"], error["message"][:_MESSAGE])
    except (ValueError, KeyError, TypeError):
        return Answer(answer.status, message=data.decode(errors="replace")[:_MESSAGE])
