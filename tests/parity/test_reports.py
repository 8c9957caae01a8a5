"""Public reports about frontends (cases/reports.md), each with its right value: `TABLE` says which test shows which.

A report stands for its whole kind; what has tests of its own beside the code is only named here.
"""

from __future__ import annotations

import ast
import functools
import http.client
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastfront.flow import ChatInput
from fastfront.prompt.formats.jinja import JinjaFormat
from fastfront.prompt.template import ChatTemplate
from tests.conftest import Start
from tests.e2e.serving import Serving, add_engine, serve

#: Every report marked A or B(det): the test that shows its right value, here or in another file, or why there is none.
TABLE = {
    "D1": "test_d1_a_prompt_that_ends_inside_a_character",
    "D2": "test_d2_stop_strings_hold_back_characters",
    "D3": "test_d3_ids_that_the_tokenizer_does_not_define",
    "D4": "test_d4_such_an_id_in_the_prompt",
    "D6": "fast/test_detok.py::test_memory_and_work_stay_bounded_on_undecodable_bytes",
    "D7": "test_d7_d8_d11_text_is_decoded_over_tokens",
    "D8": "test_d7_d8_d11_text_is_decoded_over_tokens",
    "D11": "test_d7_d8_d11_text_is_decoded_over_tokens",
    "D12": "test_d12_an_answer_cut_inside_a_character",
    "D13": "prompt/test_tokenizer.py::test_encode_cases",
    "S1": "test_s1_s2_s7_s8_stop_strings_in_the_text",
    "S2": "test_s1_s2_s7_s8_stop_strings_in_the_text",
    "S3": "test_s3_empty_stop_strings",
    "S4": "test_s4_stop_strings_within_reasoning",
    "S5": "none: the token routes are not served, and derender has no stop strings (docs/differences.md)",
    "S7": "test_s1_s2_s7_s8_stop_strings_in_the_text",
    "S8": "test_s1_s2_s7_s8_stop_strings_in_the_text",
    "T1": "test_t1_what_looks_like_a_marker_at_the_end",
    "T2": "test_t2_a_call_that_is_cut",
    "T3": "test_t3_t6_t7_a_call_in_steps_of_any_size",
    "T4": "test_t4_arguments_flow",
    "T5": "test_t5_white_space_beside_a_call",
    "T6": "test_t3_t6_t7_a_call_in_steps_of_any_size",
    "T7": "test_t3_t6_t7_a_call_in_steps_of_any_size",
    "T10": "test_t10_finish_reasons",
    "T12": "test_t12_tags_spelt_by_ordinary_tokens",
    "R1": "test_r1_r3_markers_and_text_in_any_steps",
    "R2": "test_r2_thinking_that_the_prompt_has_closed",
    "R3": "test_r1_r3_markers_and_text_in_any_steps",
    "R4": "test_r4_a_stream_interval_loses_nothing",
    "P1": "test_p1_the_language_of_templates",
    "P2": "prompt/test_template.py::test_qwen3",
    "P3": "prompt/test_template.py::test_text_parts_in_a_template_that_adds_strings",
    "P4": "prompt/test_template.py::test_qwen3",
    "P5": "test_p5_thinking_of_an_answer_that_goes_on",
    "P6": "prompt/test_messages.py::test_arguments_that_are_no_object_become_an_empty_one",
    "P8": "prompt/test_safe_text.py::test_hostile_texts_make_no_control_tokens",
    "V1": "test_v1_prompts_that_cannot_be",
    "V2": "none: /inference/v1/generate is not served (404)",
    "V3": "test_v3_chat_fields_reach_the_engine",
    "V6": "test_v6_ids_outside_the_vocabulary",
    "V9": "http/test_protocol.py::test_a_body_above_the_limit_is_refused_from_its_length",
    "V13": "api/test_body.py::test_unknown_fields_may_be_refused",
    "U1": "test_u1_usage_in_a_stream",
    "U2": "test_u2_offsets_are_of_characters",
    "U3": "test_u3_u7_u8_tokens_and_their_bytes",
    "U4": "test_u4_so_many_rivals_as_were_asked_for",
    "U6": "test_u6_an_entry_for_every_token",
    "U7": "test_u3_u7_u8_tokens_and_their_bytes",
    "U8": "test_u3_u7_u8_tokens_and_their_bytes",
    "W2": "test_w2_silence",
    "W3": "test_w3_w5_what_every_chunk_has",
    "W5": "test_w3_w5_what_every_chunk_has",
    "C1": "e2e/test_serve.py::test_a_client_that_leaves_ends_its_request_in_the_engine",
    "K1": "http/test_server.py::test_keys",
    "O1": "test_metrics.py::test_families_are_vllms",
    "O5": "none: one process serves, and counts in its memory",
}

WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
#: `<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 🫠"}}</tool_call>`
CALL = [151657, 198, 4913, 606, 788, 330, 455, 69364, 497, 330, 16370, 788, 5212, 8926, 788, 330, 57, 5186, 713]
CALL += [11162, 104, 254, 95642, 151658]
END = 151645
THOUGHT = [151667, 198, 13683, 198, 151668, 271, 13048]
SEA = [11622, 104811, 61443, 104383, 101888, 107910, 100363]
LETTERS = [19360, 1150, 12001, 23913, 34070, 43]  # " ABC", "DE", "FG", "HI", "JK", "L"


def cut(ids: Sequence[int], size: int) -> list[list[int]]:
    """Steps of `size` ids."""
    return [list(ids[at : at + size]) for at in range(0, len(ids), size)]


def splits(ids: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to cut ids into steps."""
    for cuts in itertools.product((False, True), repeat=len(ids) - 1):
        steps = [[ids[0]]]
        for token, new in zip(ids[1:], cuts, strict=True):
            if new:
                steps.append([token])
            else:
                steps[-1].append(token)
        yield steps


@functools.cache
def scripts() -> dict[str, dict[str, Any]]:
    """What the engine plays, by name."""
    table = {
        "d1": (cut([104, 254, 835], 1), "length"),
        "sea": (cut(SEA, 1), "length"),
        "hole": (cut([64, 151669, 65], 1), "length"),
        "joined": (cut([8508, 43720, 50292], 1), "length"),
        "flag": (cut([147233, 30543, 378, 235, 145354], 1), "length"),
        "bad byte": (cut([172, 1879], 1), "length"),
        "cut": (cut([562, 11162, 104], 1), "length"),
        "letters": (cut(LETTERS, 1), "length"),
        "alice": (cut([29405, 0], 1), "length"),
        "question": (cut([87, 15846, 25, 379, 151668, 271, 19, 17], 1), "stop"),
        "held": (cut([20772, 366, 14172, 49604], 1), "stop"),
        "call cut": (cut(CALL[:14], 1), "length"),
        "around": ([[13048, 715], CALL, [2814, 13]], "stop"),
        "spelt": (cut([27, 14172, 13429, 29, *CALL[1:-1], 522, 14172, 13429, 29], 1), "stop"),
        "hi": ([[13048]], "stop"),
        "hi and call": ([[13048], *cut(CALL, 2)], "stop"),
        "thought and call": ([*cut(THOUGHT, 1), *cut(CALL, 1)], "stop"),
        "silent": ([[64]], None),
        "是": (cut([20412, 9284, 104, 254], 1), "length"),
        "é": (cut([963, 87], 1), "length"),
    }
    table |= {f"call {size}": (cut(CALL, size), "stop") for size in (1, 2, 3, len(CALL))}
    table |= {f"thought {at}": (steps, "stop") for at, steps in enumerate(splits(THOUGHT))}
    played = {}
    for name, (steps, finish) in table.items():
        steps = [*steps, [END]] if finish == "stop" else steps
        played[name] = {"steps": steps, "finish": finish, "stop_reason": None}
    return played


def seed(name: str) -> int:
    """The seed that makes the engine play a script."""
    return 1000 + list(scripts()).index(name)


class Server:
    """A server with parsers, in front of the scripted engine."""

    def __init__(self, serving: Serving, record: Path) -> None:
        self.serving = serving
        self.record = record

    def whole(self, path: str, script: str | None, **fields: Any) -> Any:
        """A whole answer."""
        status, answer = self.serving.ask(path, self._body(path, script, fields))
        assert status == 200, answer
        return answer

    def error(self, path: str, **fields: Any) -> tuple[int, Any]:
        """Status and error."""
        status, answer = self.serving.ask(path, self._body(path, None, fields))
        return status, answer.get("error")

    def events(self, path: str, script: str, **fields: Any) -> list[Any]:
        """The events of a stream, which must end with [DONE]; comments are left out."""
        lines = list(self.lines(path, script, **fields))
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line[6:]) for line in lines[:-1] if line.startswith("data: ")]

    def lines(self, path: str, script: str, **fields: Any) -> Iterator[str]:
        """The lines of a stream that are not empty, as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.serving.port, timeout=60)
        body = self._body(path, script, {"stream": True, **fields})
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        try:
            answer = connection.getresponse()
            assert answer.status == 200
            while line := answer.readline():
                if line.strip():
                    yield line.decode().rstrip("\n")
        finally:
            connection.close()

    def _body(self, path: str, script: str | None, fields: dict[str, Any]) -> dict[str, Any]:
        ask = {"prompt": "Hi"} if path == TEXT else {"messages": [{"role": "user", "content": "Hi"}], **NO_THOUGHT}
        start = {} if script is None else {"seed": seed(script)}
        return {"model": "m", "max_tokens": 200, **start, **ask, **fields}


TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
NO_THOUGHT = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def server(
    start_for_all: Start,
    fastfront: list[str],
    peers: Path,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Server:
    """One for all tests here."""
    folder = tmp_path_factory.mktemp("engine")
    played, record = folder / "scripts.json", folder / "record"
    played.write_text(json.dumps({str(seed(name)): script for name, script in scripts().items()}))
    words = ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3", "--sse-keep-alive-interval", "1"]
    serving = serve(start_for_all, fastfront, peers, free_port, *words, engine=None)
    add_engine(start_for_all, fastfront, serving, "--scripts", str(played), "--record", str(record))
    serving.front.wait_http(f"{serving.base}/health")
    return Server(serving, record)


def said(events: Sequence[Any], key: str = "content") -> str:
    """A field of a chat stream's pieces, or the text of a completion's, joined."""
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get(key) or "" for choice in choices)


def finish_reasons(events: Sequence[Any]) -> list[str]:
    """Those of a stream's events that have one."""
    return [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]


def calls(events: Sequence[Any]) -> list[tuple[str, str]]:
    """Name and arguments of a stream's calls."""
    made: dict[int, list[str]] = {}
    for event in events:
        for piece in event["choices"][0]["delta"].get("tool_calls") or ():
            call = made.setdefault(piece["index"], ["", ""])
            call[0] += piece["function"].get("name") or ""
            call[1] += piece["function"]["arguments"]
    return [(name, arguments) for name, arguments in made.values()]


def message_calls(answer: Any) -> list[tuple[str, str]]:
    """Those of a whole answer."""
    found = answer["choices"][0]["message"]["tool_calls"]
    return [(call["function"]["name"], call["function"]["arguments"]) for call in found]


ZURICH = [("get_weather", '{"city": "Zürich 🫠"}')]

# --- the table itself


def test_the_table_is_whole(shared: Path, root: Path) -> None:
    text = (shared / "cases" / "reports.md").read_text()
    marked = set(re.findall(r"^\*\*([A-Z]\d+) \((?:A\b|B\(det\))", text, re.MULTILINE))
    assert len(marked) > 50
    assert marked == set(TABLE)
    for where in TABLE.values():
        if where.startswith("none: "):
            continue
        path, _, name = where.rpartition("::")
        source = (root / "tests" / path if path else Path(__file__)).read_text()
        functions = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
        assert name in functions, where


# --- detokenization


@pytest.mark.peer
def test_d1_a_prompt_that_ends_inside_a_character(server: Server) -> None:
    ask: dict[str, Any] = {"prompt": [9707, 1879, 11162]}
    assert said(server.events(TEXT, "d1", **ask)) == "🫠 end"
    assert server.whole(TEXT, "d1", **ask)["choices"][0]["text"] == "🫠 end"


@pytest.mark.peer
def test_d2_stop_strings_hold_back_characters(server: Server) -> None:
    assert said(server.events(CHAT, "sea", stop=["ZZZ"])) == "用中文写一段关于大海的话"
    assert server.whole(CHAT, "hi")["choices"][0]["message"]["content"] == "Hi"


@pytest.mark.peer
def test_d3_ids_that_the_tokenizer_does_not_define(server: Server) -> None:
    events = server.events(TEXT, "hole", stream_options={"include_usage": True}, logprobs=0)
    assert said(events) == "ab"
    assert [choice["text"] for event in events for choice in event["choices"]] == ["a", "", "b"]
    assert events[-1]["usage"]["completion_tokens"] == 3
    entries = server.whole(CHAT, "hole", logprobs=True)["choices"][0]["logprobs"]["content"]
    assert [(entry["token"], entry["bytes"]) for entry in entries] == [("a", [97]), ("", []), ("b", [98])]


@pytest.mark.peer
def test_d4_such_an_id_in_the_prompt(server: Server) -> None:
    assert said(server.events(TEXT, "é", prompt=[9707, 151669])) == "éx"


@pytest.mark.peer
@pytest.mark.parametrize(("script", "text"), [("joined", "客单价"), ("flag", "🏳️‍🌈"), ("bad byte", "\ufffd world")])
def test_d7_d8_d11_text_is_decoded_over_tokens(server: Server, script: str, text: str) -> None:
    assert said(server.events(TEXT, script)) == text
    assert server.whole(TEXT, script)["choices"][0]["text"] == text


@pytest.mark.peer
def test_d12_an_answer_cut_inside_a_character(server: Server) -> None:
    choice = server.whole(TEXT, "cut")["choices"][0]
    events = server.events(TEXT, "cut")
    assert (choice["text"], choice["finish_reason"]) == ("ok \ufffd", "length")
    assert (said(events), finish_reasons(events)) == ("ok \ufffd", ["length"])


# --- stop strings


@pytest.mark.peer
@pytest.mark.parametrize(
    ("script", "stop", "text", "reason"),
    [
        ("letters", ["DEFGHIJ"], " ABC", "DEFGHIJ"),
        ("letters", ["DE"], " ABC", "DE"),
        ("letters", ["FGH"], " ABCDE", "FGH"),
        ("alice", ["\n", "Alice:"], " Alice!", None),
    ],
)
def test_s1_s2_s7_s8_stop_strings_in_the_text(
    server: Server, script: str, stop: list[str], text: str, reason: str | None
) -> None:
    choice = server.whole(TEXT, script, stop=stop)["choices"][0]
    assert (choice["text"], choice["stop_reason"]) == (text, reason)
    assert choice["finish_reason"] == ("stop" if reason else "length")
    events = server.events(TEXT, script, stop=stop)
    assert said(events) == text
    assert events[-1]["choices"][0]["stop_reason"] == reason


@pytest.mark.peer
@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_s3_empty_stop_strings(server: Server, path: str) -> None:
    for stop in ("", [""], ["a", ""]):
        assert server.error(path, stop=stop)[0] == 400
        assert server.error(path + "/render", stop=stop)[0] == 400
    nones: tuple[Any, ...] = ([], None)
    for none in nones:
        assert server.whole(path, "hi", stop=none)["choices"][0]["finish_reason"] == "stop"


@pytest.mark.peer
def test_s4_stop_strings_within_reasoning(server: Server) -> None:
    """They count there too, as in vLLM, and in both modes."""
    ask: dict[str, Any] = {"stop": ["Question:"], "chat_template_kwargs": {}}
    choice = server.whole(CHAT, "question", **ask)["choices"][0]
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == ("x ", None)
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "Question:")
    events = server.events(CHAT, "question", **ask)
    assert (said(events, "reasoning"), said(events), finish_reasons(events)) == ("x ", "", ["stop"])


# --- calls


@pytest.mark.peer
def test_t1_what_looks_like_a_marker_at_the_end(server: Server) -> None:
    events = server.events(CHAT, "held", tools=[WEATHER])
    assert said(events) == "plain <tool_ca"
    whole = server.whole(CHAT, "held", tools=[WEATHER])["choices"][0]
    assert (whole["message"]["content"], whole["finish_reason"]) == ("plain <tool_ca", "stop")


@pytest.mark.peer
def test_t2_a_call_that_is_cut(server: Server) -> None:
    assert finish_reasons(server.events(CHAT, "call cut", tools=[WEATHER])) == ["length"]
    assert server.whole(CHAT, "call cut", tools=[WEATHER])["choices"][0]["finish_reason"] == "length"


@pytest.mark.peer
@pytest.mark.parametrize("size", [1, 2, 3, len(CALL)])
def test_t3_t6_t7_a_call_in_steps_of_any_size(server: Server, size: int) -> None:
    whole = server.whole(CHAT, f"call {size}", tools=[WEATHER])
    assert message_calls(whole) == ZURICH
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    events = server.events(CHAT, f"call {size}", tools=[WEATHER])
    assert calls(events) == ZURICH
    assert finish_reasons(events) == ["tool_calls"]
    pieces = [p for event in events for p in event["choices"][0]["delta"].get("tool_calls") or ()]
    first, *later = pieces
    assert (first["index"], first["type"], first["function"]["name"]) == (0, "function", "get_weather")
    assert first["id"]
    assert all(set(piece) == {"index", "function"} for piece in later)
    assert all(set(piece["function"]) == {"arguments"} for piece in later)


@pytest.mark.peer
def test_t4_arguments_flow(server: Server) -> None:
    events = server.events(CHAT, "call 1", tools=[WEATHER])
    pieces = [
        piece["function"]["arguments"]
        for event in events
        for piece in event["choices"][0]["delta"].get("tool_calls") or ()
    ]
    assert len([piece for piece in pieces if piece]) > 4


@pytest.mark.peer
def test_t5_white_space_beside_a_call(server: Server) -> None:
    whole = server.whole(CHAT, "around", tools=[WEATHER])
    events = server.events(CHAT, "around", tools=[WEATHER])
    assert message_calls(whole) == calls(events) == ZURICH
    content = whole["choices"][0]["message"]["content"]
    assert said(events) == content
    assert content.split() == ["Hi", "done."]


@pytest.mark.peer
@pytest.mark.parametrize(("choice", "reason"), [("auto", "tool_calls"), ("required", "tool_calls"), (NAMED, "stop")])
def test_t10_finish_reasons(server: Server, choice: Any, reason: str) -> None:
    ask = {"tools": [WEATHER], "tool_choice": choice}
    assert server.whole(CHAT, "call 2", **ask)["choices"][0]["finish_reason"] == reason
    events = server.events(CHAT, "call 2", **ask)
    assert (finish_reasons(events), calls(events)) == ([reason], ZURICH)


@pytest.mark.peer
def test_t12_tags_spelt_by_ordinary_tokens(server: Server) -> None:
    assert message_calls(server.whole(CHAT, "spelt", tools=[WEATHER])) == ZURICH
    assert calls(server.events(CHAT, "spelt", tools=[WEATHER])) == ZURICH


# --- reasoning


@pytest.mark.peer
def test_r1_r3_markers_and_text_in_any_steps(server: Server) -> None:
    for at, _ in enumerate(splits(THOUGHT)):
        events = server.events(CHAT, f"thought {at}", chat_template_kwargs={})
        assert (said(events, "reasoning"), said(events)) == ("abc", "Hi")
        for event in events:
            delta = event["choices"][0]["delta"]
            assert not (delta.get("reasoning") and delta.get("content"))
        assert finish_reasons(events) == ["stop"]
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
    message = server.whole(CHAT, "thought 0", chat_template_kwargs={})["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("abc", "Hi")


@pytest.mark.peer
def test_r2_thinking_that_the_prompt_has_closed(server: Server) -> None:
    whole = server.whole(CHAT, "hi and call", tools=[WEATHER])
    message = whole["choices"][0]["message"]
    assert (message["content"], message["reasoning"], message_calls(whole)) == ("Hi", None, ZURICH)
    events = server.events(CHAT, "hi and call", tools=[WEATHER])
    assert (said(events), said(events, "reasoning"), calls(events)) == ("Hi", "", ZURICH)
    assert finish_reasons(events) == [whole["choices"][0]["finish_reason"]] == ["tool_calls"]


@pytest.mark.peer
@pytest.mark.parametrize("interval", [2, 4, 50])
def test_r4_a_stream_interval_loses_nothing(server: Server, interval: int) -> None:
    def meaning(**fields: Any) -> tuple[Any, ...]:
        events = server.events(CHAT, "thought and call", tools=[WEATHER], chat_template_kwargs={}, **fields)
        return said(events, "reasoning"), said(events), calls(events)

    assert meaning(stream_interval=interval) == meaning() == ("abc", "Hi", ZURICH)


# --- prompts


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ messages.0.content }}", "hi"),
        ("{% set x = none %}{% set s = namespace(name=x if x else 'd') %}{{ s.name }}", "d"),
        ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", "hi"),
    ],
)
def test_p1_the_language_of_templates(template: str, text: str) -> None:
    format = JinjaFormat({"default": ChatTemplate(template)})
    assert str(format.render(ChatInput([{"role": "user", "content": "hi"}]))) == text


@pytest.mark.peer
def test_p5_thinking_of_an_answer_that_goes_on(server: Server) -> None:
    """The template's own way with an answer that is there already; the switch is about one that begins."""
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "OK!\n"}]
    ask = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
    prompts = [
        server.whole(CHAT, "hi", **ask, return_prompt_text=True, chat_template_kwargs={"enable_thinking": thinking})
        for thinking in (False, True)
    ]
    assert prompts[0]["prompt_text"] == prompts[1]["prompt_text"]
    assert prompts[0]["prompt_text"].endswith("<think>\n\n</think>\n\nOK!\n")


# --- validation


@pytest.mark.peer
def test_v1_prompts_that_cannot_be(server: Server) -> None:
    for prompt in ([], "", [1] * 50_000, "a " * 50_000):
        status, error = server.error(TEXT, prompt=prompt)
        assert status == 400
        assert error["param"] in ("prompt", "input_tokens", "input_text")
    assert server.whole(TEXT, "hi", prompt=[1])["choices"][0]["text"] == "Hi"


@pytest.mark.peer
def test_v3_chat_fields_reach_the_engine(server: Server) -> None:
    repeats = {"max_pattern_size": 4, "min_pattern_size": 0, "min_count": 2}
    ask = {"min_tokens": 1, "logit_bias": {"64": 3}, "allowed_token_ids": [64, 65], "repetition_detection": repeats}
    answer = server.whole(CHAT, "hi", **ask, request_id="v3", truncate_prompt_tokens=2, return_token_ids=True)
    assert len(answer["prompt_token_ids"]) == 2
    [sent] = [
        message["body"]
        for message in map(json.loads, server.record.read_text().splitlines())
        if message["kind"] == 0 and message["body"][0].startswith("chatcmpl-v3")
    ]
    text = json.dumps(next(part for part in sent if isinstance(part, dict)))
    for told in ('"min_tokens": 1', '"allowed_token_ids": [64, 65]', '"max_pattern_size": 4', '"logit_bias"'):
        assert told in text
    assert server.whole(CHAT, "letters", stop=["DE"], include_stop_str_in_output=True)["choices"][0]["message"][
        "content"
    ] == " ABCDE"  # fmt: skip
    beams = server.whole(CHAT, None, use_beam_search=True, n=2, length_penalty=0.5, max_tokens=2, temperature=0)
    assert len(beams["choices"]) == 2


@pytest.mark.peer
@pytest.mark.parametrize("path", [TEXT, CHAT])
@pytest.mark.parametrize(
    "wrong",
    [
        {"stop_token_ids": [9999999]}, {"stop_token_ids": [-1]},
        {"logit_bias": {"9999999": 1}}, {"logit_bias": {"AI": 1}},
        {"allowed_token_ids": [9999999]}, {"logprobs": 1, "logprob_token_ids": [9999999]},
    ],
)  # fmt: skip
def test_v6_ids_outside_the_vocabulary(server: Server, path: str, wrong: dict[str, Any]) -> None:
    status, error = server.error(path, **wrong)
    assert status == 400
    assert error["param"] in wrong


# --- usage and log-probabilities


@pytest.mark.peer
@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_u1_usage_in_a_stream(server: Server, path: str) -> None:
    nones: tuple[Any, ...] = ({}, None)
    for none in nones:
        assert not any("usage" in event for event in server.events(path, "letters", stream_options=none))
    *events, last = server.events(path, "letters", stream_options={"include_usage": True})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6
    assert not any(event.get("usage") for event in events)
    both = {"include_usage": True, "continuous_usage_stats": True}
    assert all(event["usage"] for event in server.events(path, "letters", stream_options=both))


@pytest.mark.peer
def test_u2_offsets_are_of_characters(server: Server) -> None:
    assert server.whole(TEXT, "é", logprobs=0)["choices"][0]["logprobs"]["text_offset"] == [0, 1]
    streamed = server.events(TEXT, "é", logprobs=0)
    assert [at for e in streamed for c in e["choices"] for at in c["logprobs"]["text_offset"]] == [0, 1]
    echoed = server.whole(TEXT, "é", logprobs=0, echo=True, prompt="é é")["choices"][0]["logprobs"]
    assert echoed["text_offset"] == [0, 1, 3, 4]


@pytest.mark.peer
def test_u3_u7_u8_tokens_and_their_bytes(server: Server) -> None:
    whole = server.whole(CHAT, "是", logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    events = server.events(CHAT, "是", logprobs=True, top_logprobs=2)
    streamed = [
        entry for e in events for c in e["choices"] if c.get("logprobs") for entry in c["logprobs"]["content"]
    ]
    assert streamed == whole
    assert [entry["token"] for entry in whole] == ["是", "", "", "🫠"]
    pieces = [bytes(entry["bytes"]) for entry in whole]
    assert pieces == ["是".encode(), b"\xf0\x9f", b"\xab", b"\xa0"]
    for entry in whole:
        assert all(rival["bytes"] is not None for rival in entry["top_logprobs"])


@pytest.mark.peer
@pytest.mark.parametrize(("top", "count"), [({}, 0), ({"top_logprobs": 0}, 0), ({"top_logprobs": 3}, 3)])
def test_u4_so_many_rivals_as_were_asked_for(server: Server, top: dict[str, int], count: int) -> None:
    content = server.whole(CHAT, "letters", logprobs=True, **top)["choices"][0]["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [count] * 6


@pytest.mark.peer
@pytest.mark.parametrize("script", ["thought and call", "call 3", "held"])
def test_u6_an_entry_for_every_token(server: Server, script: str) -> None:
    count = sum(map(len, scripts()[script]["steps"]))
    ask: dict[str, Any] = {"tools": [WEATHER], "logprobs": True, "chat_template_kwargs": {}}
    whole = server.whole(CHAT, script, **ask)["choices"][0]["logprobs"]["content"]
    events = server.events(CHAT, script, **ask)
    streamed = [
        entry for e in events for c in e["choices"] if c.get("logprobs") for entry in c["logprobs"]["content"]
    ]
    assert len(whole) == count
    assert streamed == whole


# --- streams


@pytest.mark.peer
@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_w2_silence(server: Server, path: str) -> None:
    """An engine that says one thing and no more: comments come, between events."""
    seen = []
    for line in server.lines(path, "silent"):
        seen.append(line)
        if seen.count(": keep-alive") == 2:
            break
    assert seen[-2:] == [": keep-alive"] * 2
    assert all(line == ": keep-alive" or json.loads(line.removeprefix("data: ")) for line in seen)
    assert said([json.loads(line[6:]) for line in seen if line.startswith("data: ")]) == "a"


@pytest.mark.peer
@pytest.mark.parametrize("n", [1, 2])
def test_w3_w5_what_every_chunk_has(server: Server, n: int) -> None:
    for path, kind in ((TEXT, "text_completion"), (CHAT, "chat.completion.chunk")):
        events = server.events(path, "letters", n=n, temperature=1, stream_options={"include_usage": True})
        assert {event["object"] for event in events} == {kind}
        assert len({event["id"] for event in events}) == 1
        if path == CHAT:
            roles = [c["index"] for e in events for c in e["choices"] if c["delta"].get("role")]
            assert sorted(roles) == list(range(n))
            assert all("role" in e["choices"][0]["delta"] for e in events[:1])
