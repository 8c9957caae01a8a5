"""Whole runs against a scripted server: when requests go out, how many at once, what they say, conversations."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from fastfront.errors import StartError
from fastfront.load import run as run_module
from fastfront.load.bench import Point, measure
from fastfront.load.body import Bodies
from fastfront.load.client import Client
from fastfront.load.options import Asking, Data, Load, Target, Traffic, Turns, Wanted
from fastfront.load.progress import Progress
from fastfront.load.run import Run, Runner
from fastfront.load.sample import Conversation, Sample
from tests.load.scripted import DONE, Piece, Scripted, delta, event, scripted, sized, stream, usage
from tests.load.vocabulary import tokenizer

GOOD = stream(event("a"), event("b"), usage(7, 2), DONE)
SMALL = Data(random_input_len=6, random_output_len=2)


def load(target: Target = Target(), **fields: Any) -> Load:  # noqa: B008  (frozen)
    return Load(target=target, **{"data": SMALL, "num_prompts": 6, **fields})


def at(server: Scripted, **fields: Any) -> Target:
    return Target(**{"base_url": server.url, "names": ("m",), **fields})


def point(*scripts: Sequence[Piece], again: Sequence[Piece] = GOOD, **fields: Any) -> tuple[Point, Scripted, list[str]]:
    """One measurement; what the server was asked, and what was said meanwhile."""
    said: list[str] = []
    target = fields.pop("target", {})

    async def go() -> tuple[Point, Scripted]:
        async with scripted(*scripts, again=again) as server:
            return await measure(load(at(server, **target), **fields), tokenizer(), said.append, None), server

    return *asyncio.run(go()), said


def test_a_run() -> None:
    found, server, said = point()
    assert (found.summary.completed, found.summary.failed) == (6, 0)
    assert (found.summary.input_tokens, found.summary.output_tokens) == (42, 12)
    assert len(server.bodies) == 6
    assert not said
    assert found.steady is None
    assert found.result["completed"] == 6
    assert "itls" not in found.result


def test_no_more_at_once_than_allowed() -> None:
    _, server, _ = point(traffic=Traffic(max_concurrency=2), num_prompts=12)
    assert server.most == 2
    assert server.connections == 2


def test_failures_are_counted_and_told() -> None:
    bad = [sized("400 Bad Request", b"why")]
    found, _, _ = point(bad, bad, traffic=Traffic(max_concurrency=1))
    assert (found.summary.completed, found.summary.failed, found.summary.output_tokens) == (4, 2, 8)
    assert "Error 0: HTTP 400 Bad Request: why (2x)\n" in found.text


def test_details() -> None:
    found, _, _ = point(
        [sized("400 Bad Request", b"why")], wanted=Wanted(detailed=True), traffic=Traffic(max_concurrency=1)
    )
    assert found.result["output_lens"] == [0, 2, 2, 2, 2, 2]
    assert found.result["generated_texts"] == ["", "ab", "ab", "ab", "ab", "ab"]
    assert [bool(error) for error in found.result["errors"]] == [True, False, False, False, False, False]
    assert [len(gaps) for gaps in found.result["itls"]] == [0, 1, 1, 1, 1, 1]
    assert all(queue >= 0 for queue in found.result["queue_times"])
    json.dumps(found.result)


def test_warmups_do_not_count() -> None:
    found, server, said = point(traffic=Traffic(warmups=3))
    assert found.summary.completed == 6
    assert len(server.bodies) == 9
    assert said == ["Warming up with 3 requests..."]


def test_waiting_until_the_server_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "RETRY", 0.001)
    loading = [sized("503 Loading", b"")]
    found, server, said = point(loading, loading, traffic=Traffic(ready_timeout=60.0))
    assert found.summary.completed == 6
    assert len(server.bodies) == 2 + 1 + 6
    assert said[0].startswith("Waiting for http://127.0.0.1:")
    with pytest.raises(StartError, match="is not ready: HTTP 503 Loading"):
        point(loading, traffic=Traffic(ready_timeout=0.0005))


def test_the_profiler_and_the_prefix_cache() -> None:
    fine = [sized("200 OK", b"")]
    found, server, said = point(
        fine, fine, GOOD, fine, num_prompts=1, traffic=Traffic(profile=True, reset_prefix_cache=True)
    )
    assert [head.split(" ")[1] for head in server.heads] == [
        "/reset_prefix_cache", "/start_profile", "/v1/completions", "/stop_profile"
    ]  # fmt: skip
    assert said == ["Profiler started", "Profiler stopped"]
    assert found.summary.completed == 1


def test_names_take_turns() -> None:
    adapters = {"names": ("x", "y"), "pick_names": "round-robin", "request_id_prefix": "id-"}
    _, server, _ = point(target=adapters, traffic=Traffic(max_concurrency=1))
    assert [body["model"] for body in server.bodies] == ["x", "y"] * 3
    assert "x-request-id: id-4\r\n" in server.heads[4]
    _, server, _ = point(target={"names": ("x", "y")}, num_prompts=30)
    assert {body["model"] for body in server.bodies} == {"x", "y"}


def test_requests_go_out_when_they_are_due() -> None:
    """Not before; and a request that waits for another's end counts from when it was due."""

    async def go(self_timed: bool) -> Run:
        async with scripted(again=GOOD) as server:
            traffic = Traffic(rate=50.0, burstiness=float("inf"), self_timed=self_timed, max_concurrency=1)
            one = load(at(server), traffic=traffic)
            client = Client(one.target)
            samples = [Sample([1], 1, 2, due) for due in (0.0, 0.03, 0.03)]
            found = await Runner(one, client, Progress(3, None), lambda _: None).samples(samples)
            client.close()
            return found

    for self_timed, dues in ((False, [0.02, 0.04, 0.06]), (True, [0.0, 0.03, 0.03])):
        found = asyncio.run(go(self_timed))
        assert [record.due - found.began for record in found.records] == pytest.approx(dues)
        assert all(record.start >= record.due for record in found.records)
        assert found.records[2].start > found.records[1].times[-1]
        assert found.duration >= dues[-1]


def talk(chat: bool, *scripts: Sequence[Piece], again: Sequence[Piece], **turns: Any) -> tuple[Run, Scripted]:
    async def go() -> tuple[Run, Scripted]:
        async with scripted(*scripts, again=again) as server:
            one = load(at(server, chat=chat), traffic=Traffic(max_concurrency=1))
            client = Client(one.target)
            talks = [Conversation(["Q1", "Q2", "Q3"], [5, 6, 7])] * 2
            found = await Runner(one, client, Progress(6, None), lambda _: None).conversations(talks, Turns(**turns))
            client.close()
            return found, server

    return asyncio.run(go())


def test_each_turn_of_a_chat_brings_what_went_before() -> None:
    found, server = talk(True, again=stream(delta("An"), delta("s"), usage(1, 2)), delay=0.001)
    assert [record.turn for record in found.records] == [0, 1, 2, 0, 1, 2]
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "Q1"}]
    assert server.bodies[2]["messages"] == [
        {"role": "user", "content": "Q1"}, {"role": "assistant", "content": "Ans"},
        {"role": "user", "content": "Q2"}, {"role": "assistant", "content": "Ans"}, {"role": "user", "content": "Q3"},
    ]  # fmt: skip
    assert [body["max_completion_tokens"] for body in server.bodies] == [5, 6, 7] * 2
    assert found.records[1].start > found.records[0].times[-1]


def test_turns_of_completions() -> None:
    _, server = talk(False, again=GOOD)
    assert [body["prompt"] for body in server.bodies[:3]] == ["Q1", "Q1abQ2", "Q1abQ2abQ3"]


def test_a_conversation_ends_with_its_first_error() -> None:
    found, server = talk(False, GOOD, [sized("500 Oh", b"")], again=GOOD)
    assert [(record.turn, bool(record.error)) for record in found.records] == [
        (0, False), (1, True), (0, False), (1, False), (2, False)
    ]  # fmt: skip
    assert server.most == 1


def test_conversations_in_figures() -> None:
    found, server, _ = point(GOOD, [sized("500 Oh", b"")], turns=Turns(count=2, concurrency=1), num_prompts=3)
    assert len(server.bodies) == 6
    assert (found.summary.completed, found.summary.failed) == (5, 1)
    assert found.result["conversations_completed"] == 2
    assert found.result["avg_turns_completed"] == 5 / 3
    assert [turn["completed"] for turn in found.result["per_turn_metrics"]] == [3, 2]
    assert "Conversations completed/total:                2/3\n" in found.text
    assert f"\n{' Turn 2 (3 samples) ':-^60}\n" in found.text


COMPLETIONS = {"model": "m", "prompt": "p", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
CHAT = {
    "model": "m", "messages": [{"role": "user", "content": "p"}], "max_completion_tokens": 3, "stream": True,
    "stream_options": {"include_usage": True},
}  # fmt: skip


@pytest.mark.parametrize(
    "chat, asking, body",
    [
        (False, Asking(), COMPLETIONS),
        (True, Asking(), CHAT),
        (False, Asking(ignore_eos=True, logprobs=2), {**COMPLETIONS, "ignore_eos": True, "logprobs": 2}),
        (True, Asking(logprobs=2), {**CHAT, "logprobs": True, "top_logprobs": 2}),
        (False, Asking(fields={"top_k": 5, "max_tokens": 9}), {**COMPLETIONS, "top_k": 5, "max_tokens": 9}),
    ],
)
def test_bodies(chat: bool, asking: Asking, body: dict[str, Any]) -> None:
    assert json.loads(Bodies(Target(chat=chat), asking).write(Sample("p", 1, 3), "m")) == body


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_and_none_in_a_log() -> None:
    async def go(out: io.StringIO) -> str:
        async with Progress(4, out) as progress:
            progress.count("")
            progress.count("broken")
            await asyncio.sleep(0)
        return out.getvalue()

    assert asyncio.run(go(io.StringIO())) == ""
    drawn = asyncio.run(go(Terminal()))
    assert drawn.startswith("\r[")
    assert drawn.endswith("\n")
    assert "] 2/4 in 0 s" in drawn
    assert ", 1 failed" in drawn


def test_the_bars_line() -> None:
    progress = Progress(200, None)
    progress.done = 50
    assert progress.line(10.0).rstrip() == "[########......................] 50/200 in 10 s, 30 s left, 5.0/s"
