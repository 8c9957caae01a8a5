"""A chat's stream with parsers says what its whole answer does, however the tokens come and whatever else is asked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fastfront.parse.registry import choose
from tests.api.fakes import Answer
from tests.test_pipeline import LENGTH, OPTIONS, STOP, Engine, ask, splits

CHAT = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"for": {"type": "string"}}}},
}
JSON_CALL = '<tool_call>\n{"name": "look", "arguments": {"for": "“é” }", "n": [1, {}]}}\n</tool_call>'
XML_CALL = '<tool_call>\n<function=look>\n<parameter=for>\n“é” "}\n\n</parameter>\n</function>\n</tool_call>'
TEXTS = {
    "hermes": f"<think>\nlet me <see\n\n</think>\n\nI look.\n{JSON_CALL}\n{JSON_CALL}\n",
    "qwen3_coder": f"so\n</think>\nI <look> 🫠. {XML_CALL} and\n\n\n{XML_CALL}",
}
ASKED: list[dict[str, Any]] = [
    {},
    {"n": 2},
    {"stream_interval": 3},
    {"include_reasoning": False},
    {"parallel_tool_calls": False},
    {"logprobs": True, "top_logprobs": 1},
    {"return_token_ids": True},
    {"stop": ["see", "é"], "min_tokens": 9},
    {"stop": ["}}"], "include_stop_str_in_output": True},
    {"stop": ["</think>", "\n\n"], "min_tokens": 18, "n": 2},
]


def made_of_events(answer: Answer) -> list[dict[str, Any]]:
    """The choices that a stream's events make, in the shape of a whole answer's; none of the events is empty."""
    choices: dict[int, dict[str, Any]] = {}
    for event in answer.events:
        for part in event["choices"]:
            choice = choices.setdefault(
                part["index"], {"reasoning": "", "content": "", "calls": [], "ids": [], "logprobs": []}
            )
            delta = part["delta"]
            shown = delta.get("reasoning") or delta.get("content") or delta.get("tool_calls")
            assert shown or part["finish_reason"] or "role" in delta or part["token_ids"] or part["logprobs"], event
            choice["reasoning"] += delta.get("reasoning") or ""
            choice["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    assert call["index"] == len(choice["calls"])
                    choice["calls"].append([call["function"]["name"], ""])
                choice["calls"][call["index"]][1] += call["function"]["arguments"]
            choice["ids"] += part.get("token_ids") or []
            choice["logprobs"] += (part["logprobs"] or {}).get("content", [])
            choice["end"] = part["finish_reason"], part.get("stop_reason")
    return [choices[index] for index in sorted(choices)]


def made_whole(answer: Answer) -> list[dict[str, Any]]:
    """The same of a whole answer."""
    return [
        {
            "reasoning": choice["message"]["reasoning"] or "",
            "content": choice["message"]["content"] or "",
            "calls": [
                [call["function"]["name"], call["function"]["arguments"]]
                for call in choice["message"].get("tool_calls", ())
            ],
            "ids": choice["token_ids"] or [],
            "logprobs": (choice["logprobs"] or {}).get("content", []),
            "end": (choice["finish_reason"], choice["stop_reason"]),
        }
        for choice in answer.json["choices"]
    ]


def check(name: str, ids: Sequence[int], asked: dict[str, Any], finish: int, kind: type[Engine] = Engine) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [TOOL], **asked}
    format = choose(name, "qwen3")
    want = made_whole(ask(CHAT, body, [list(ids)], finish, format=format, kind=kind)[0])
    streamed = {**body, "stream": True, "stream_options": OPTIONS}
    for parts in splits(list(ids), random.Random(len(ids))):
        answer, _ = ask(CHAT, streamed, parts, finish, format=format, kind=kind)
        assert made_of_events(answer) == want, parts
        *events, last = answer.events
        counts = [event["usage"]["completion_tokens"] for event in events]
        if len(want) == 1:
            assert counts == sorted(counts)
            assert counts[-1] == last["usage"]["completion_tokens"]


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("name", sorted(TEXTS))
@pytest.mark.parametrize("finish", [STOP, LENGTH])
def test_a_stream_says_what_the_whole_answer_does(name: str, asked: dict[str, Any], finish: int) -> None:
    check(name, TEXTS[name].encode(), asked, finish)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_cut_anywhere(name: str) -> None:
    data = TEXTS[name].encode()
    for end in range(1, len(data), 5):
        check(name, data[:end], {}, LENGTH)


class TwoOutputs(Engine):
    """Sends each step's ids as two outputs of one message."""

    def _play(self, request: Any) -> None:
        feed = self.router.feed

        class Doubling:
            """Stands for the router."""

            def feed(self, message: bytes, now: float) -> Any:
                index, (row,), *rest = msgspec.msgpack.decode(message)
                cut = len(row[1]) // 2
                rows = [[row[0], row[1][:cut]], [row[0], row[1][cut:], *row[2:]]]
                return feed(msgspec.msgpack.encode([index, rows, *rest]), now)

        router, self.router = self.router, Doubling()  # type: ignore[assignment]
        super()._play(request)
        self.router = router


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_two_outputs_of_one_message_stay_in_order(name: str) -> None:
    check(name, TEXTS[name].encode(), {}, LENGTH, TwoOutputs)
