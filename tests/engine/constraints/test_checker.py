"""Constraints are taken and refused as vLLM's Python frontend takes and refuses them; nothing gets the checker down."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fastfront.api.openai.constraint import constraint
from fastfront.api.openai.fields import StructuredOutputs
from fastfront.engine.constraints import checker as module
from fastfront.engine.constraints.checker import Checker, with_backend
from fastfront.engine.constraints.child import Child
from fastfront.errors import ConfigError, RequestError
from fastfront.parse.prepare import Preparation

#: Recorded from vLLM 0.32.0 with SmolLM2 and --tool-call-parser hermes. A 500 is an engine that has decided for
#: another backend; its frontend took those.
REQUESTS = [json.loads(line) for line in Path(__file__).with_name("requests.jsonl").read_text("utf-8").splitlines()]
#: What only xgrammar itself knows to be wrong: without it these go to the engine, which fails them.
XGRAMMAR_ALONE = {
    "schema.min_string", "schema.false", "grammar.ebnf_class_bad", "grammar.ebnf_repeat_bad", "grammar.ebnf_star_first",
    "tag.grammar_bad", "tag.token_text", "tag.token_unknown",
}  # fmt: skip
HAS_XGRAMMAR = importlib.util.find_spec("xgrammar") is not None
with_xgrammar = pytest.mark.skipif(not HAS_XGRAMMAR, reason="xgrammar is not installed")

Use = Callable[[Checker], Coroutine[Any, Any, Any]]


def use(work: Use, isolated: bool = True, backend: str = "auto") -> Any:
    """Runs `work` with a checker, and ends it."""

    async def run() -> Any:
        checker = Checker(30.0, isolated, backend)
        try:
            return await work(checker)
        finally:
            await checker.close()

    return asyncio.run(run())


def asked(body: dict[str, Any]) -> dict[str, Any] | None:
    """The constraint that a request's body comes to; RequestError as the frontend's own checks say."""
    structured = body.get("structured_outputs")
    fields = None if structured is None else msgspec.convert(structured, StructuredOutputs)
    if "tools" in body:
        ready = Preparation("hermes", None, lambda text: None)
        held = ready.held_calls(body["tools"], body["tool_choice"], False, None)
        fields = StructuredOutputs(**held) if held is not None else None
    return constraint(fields, body.get("response_format"))


@pytest.mark.parametrize("isolated", [True, pytest.param(False, marks=with_xgrammar)])
def test_as_recorded(isolated: bool) -> None:
    async def work(checker: Checker) -> dict[str, bool]:
        taken = {}
        for request in REQUESTS:
            try:
                wanted = asked(request["body"])
                if wanted is not None:
                    await checker.check(wanted, "structured_outputs")
                taken[request["name"]] = True
            except RequestError:
                taken[request["name"]] = False
        return taken

    taken = use(work, isolated=isolated)
    assert len(taken) == len(REQUESTS) == 197
    different = {request["name"] for request in REQUESTS if taken[request["name"]] == (request["status"] == 400)}
    assert different == (XGRAMMAR_ALONE if isolated else set())


BACKENDS: list[tuple[dict[str, Any], str]] = [
    ({"regex": "[0-9]+"}, "xgrammar"),
    ({"regex": r"\p{L}+"}, "guidance"),
    ({"regex": "(?i)a"}, "guidance"),
    ({"json": {"type": "integer"}}, "xgrammar"),
    ({"json": '{"type": "integer"}'}, "xgrammar"),
    ({"json": {"type": "integer", "multipleOf": 2}}, "guidance"),
    ({"json": {"type": "object", "properties": {"b": {}}, "patternProperties": {"a": {}}}}, "outlines"),
    ({"grammar": 'root ::= "a"'}, "xgrammar"),
    ({"structural_tag": '{"type": "structural_tag", "format": {"type": "any_text"}}'}, "xgrammar"),
    ({"json_object": True}, "xgrammar"),
]


@pytest.mark.parametrize("isolated", [True, pytest.param(False, marks=with_xgrammar)])
def test_backend(isolated: bool) -> None:
    async def work(checker: Checker) -> list[dict[str, Any]]:
        return [await checker.check(wanted, "f") for wanted, _ in BACKENDS]

    made = use(work, isolated=isolated)
    assert made == [{**wanted, "_backend": backend, "_backend_was_auto": True} for wanted, backend in BACKENDS]


OLD_TAG = '{"structures": [{"begin": "<a>", "schema": {}, "end": ""}], "triggers": ["<"]}'


@pytest.mark.parametrize(
    ("backend", "wanted", "taken"),
    [
        ("xgrammar", {"regex": r"\p{L}+"}, False),
        ("xgrammar", {"json": {"type": "integer", "multipleOf": 2}}, False),
        ("guidance", {"regex": r"\p{L}+"}, True),
        ("guidance", {"json": {"type": "foo"}}, False),
        ("guidance", {"structural_tag": '{"format": {"type": "any_text"}}'}, False),
        ("guidance", {"structural_tag": OLD_TAG}, True),
        ("guidance", {"choice": ["a"]}, True),
        ("outlines", {"regex": "a"}, True),
        ("outlines", {"grammar": 'root ::= "a"'}, False),
    ],
)
def test_a_backend_that_the_engine_is_set_to(backend: str, wanted: dict[str, Any], taken: bool) -> None:
    async def work(checker: Checker) -> Any:
        try:
            return await checker.check(wanted, "f")
        except RequestError:
            return None

    made = use(work, backend=backend)
    assert made == ({**wanted, "_backend": backend, "_backend_was_auto": False} if taken else None)


def test_no_such_backend() -> None:
    with pytest.raises(ConfigError, match="backend 'x'"):
        Checker(1.0, backend="x")


def test_choices_become_a_grammar() -> None:
    made = with_backend({"choice": ['say "a"', "b\\", "c\nd\x00\x7f", "é🫠"], "disable_any_whitespace": True})
    assert made == {
        "grammar": r'root ::= "say \"a\"" | "b\\" | "c\nd\u0000\u007f" | "é🫠"',
        "disable_any_whitespace": True,
        "_backend": "xgrammar",
        "_backend_was_auto": True,
    }


def test_the_error_names_the_field_and_the_reason() -> None:
    with pytest.raises(RequestError, match=r"(?s)Invalid regex in response_format: .*unclosed") as refused:
        use(lambda checker: checker.check({"regex": "(["}, "response_format"))
    assert refused.value.param == "response_format"
    long = "([" + "a" * 10_000
    with pytest.raises(RequestError) as refused:
        use(lambda checker: checker.check({"regex": long}, "f"))
    assert len(refused.value.message) < 600


def test_what_is_known_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[dict[str, Any]] = []
    ask = Child.ask

    async def noted(self: Child, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        jobs.append(job)
        return await ask(self, job, seconds)

    monkeypatch.setattr(Child, "ask", noted)
    monkeypatch.setattr(module, "_KEPT", 2)

    async def work(checker: Checker) -> None:
        for regex in ("a", "a", "b", "c", "a", "a"):  # the third forgets the first
            await checker.check({"regex": regex}, "f")

    use(work)
    assert [job["text"] for job in jobs] == ["a", "b", "c", "a"]


DEEP = (
    {"grammar": "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000},
    {"grammar": "start: " + "(" * 100_000 + '"a"' + ")" * 100_000},
    {"regex": "(" * 50_000 + "a" + ")" * 50_000},
)


@pytest.mark.parametrize("isolated", [True, pytest.param(False, marks=with_xgrammar)])
def test_what_nests_too_deeply(isolated: bool) -> None:
    async def work(checker: Checker) -> None:
        for wanted in DEEP:
            with pytest.raises(RequestError):
                await checker.check(wanted, "f")
            await checker.check({"regex": "a"}, "f")

    use(work, isolated=isolated)


def test_what_takes_too_long_is_ended() -> None:
    slow = "root ::= " + " | ".join(f'"a{number}"' for number in range(300_000))

    async def work(checker: Checker) -> None:
        # the process is there, so that only the work counts
        await checker.check({"regex": "a"}, "f")
        checker._seconds = 0.001
        with pytest.raises(RequestError, match="longer than"):
            await checker.check({"grammar": slow}, "f")
        checker._seconds = 30.0
        for child in checker._children:
            await child.close()
        with pytest.raises(RequestError, match="longer than"):  # which no process was asked
            await checker.check({"grammar": slow}, "f")
        assert all(child._process is None for child in checker._children)
        assert (await checker.check({"regex": "b"}, "f"))["_backend"] == "xgrammar"

    use(work)


async def stopped(checker: Checker) -> list[int]:
    """Processes of a checker that has some, which answer no more."""
    await checker.check({"regex": "a"}, "f")
    found = [child._process.pid for child in checker._children if child._process is not None]
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found


def test_a_process_that_dies_is_replaced() -> None:
    async def work(checker: Checker) -> None:
        pids = await stopped(checker)
        waiting = asyncio.ensure_future(checker.check({"regex": "b"}, "f"))
        await asyncio.sleep(0)  # it is being asked
        for pid in pids:
            os.kill(pid, signal.SIGABRT)
            os.kill(pid, signal.SIGCONT)
        with pytest.raises(RequestError, match="memory"):
            await waiting
        assert (await checker.check({"regex": "c"}, "f"))["_backend"] == "xgrammar"

    use(work)


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_process_that_somebody_kills_says_nothing_of_the_constraint(asked_before: bool) -> None:
    async def work(checker: Checker) -> None:
        pids = await stopped(checker)
        waiting = asyncio.ensure_future(checker.check({"regex": "b"}, "f"))
        if asked_before:
            await asyncio.sleep(0)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert (await waiting)["_backend"] == "xgrammar"

    use(work)


def test_a_client_that_leaves_leaves_no_answer_behind() -> None:
    async def work(checker: Checker) -> None:
        waiting = [asyncio.ensure_future(checker.check({"regex": f"a{n}"}, "f")) for n in range(8)]
        await asyncio.sleep(0)
        for task in waiting[::2]:
            task.cancel()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in done] == [asyncio.CancelledError, dict] * 4
        with pytest.raises(RequestError):
            await checker.check({"regex": "("}, "f")

    use(work)


def test_where_no_process_starts_the_engine_sees_for_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent")
    made = use(lambda checker: checker.check({"regex": "("}, "f"))
    assert made["_backend"] == "xgrammar"
    assert "not checked" in caplog.text


CHAIN = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
TREE = {"type": "object", "properties": {"next": {"$ref": "#"}, "$ref": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "#"}, "only to itself"),
        ({"$defs": CHAIN, "properties": {"x": {"$ref": "#/$defs/a"}}}, "only to itself"),
        ({"$ref": "#/$defs/none"}, "does not exist"),
        (TREE, None),
        ({"const": {"$ref": "#/nowhere"}}, None),
    ],
)
def test_a_schema_that_only_names_itself(schema: dict[str, Any], says: str | None) -> None:
    """vLLM's frontend takes the first two, and its engine fails them."""

    async def work(checker: Checker) -> dict[str, Any] | None:
        return await checker.check({"json": schema}, "response_format")

    if says is None:
        assert use(work)
        return
    with pytest.raises(RequestError, match=says) as caught:
        use(work)
    assert caught.value.param == "response_format"
