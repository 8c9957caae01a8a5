"""Every field of the generating endpoints, with values of all kinds: the status is that of vLLM's Python frontend.

Where it says no, the error names the same field, if vLLM's names one. Differences are listed with their reason, and one
that is none any more fails.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Start
from tests.e2e.serving import add_engine, serve
from tests.parity.field_probes import MODEL, MODEL_LEN, VOCAB, Answer, ask, probes

pytestmark = pytest.mark.peer


class Difference(NamedTuple):
    """What fastfront answers to some probes (names without their endpoint) instead, and why."""

    status: int
    why: str
    probes: tuple[str, ...]


def history(message: str) -> str:
    """The probe with this message of the assistant, or what it holds, between two questions."""
    question = '{"role": "user", "content": "hi"}'
    return f'messages=[{question}, {{"role": "assistant", {message}}}, {question}]'


def call(*parts: str) -> str:
    """The probe with a call in the history."""
    return history(f'"tool_calls": [{{{", ".join(parts)}}}]')


DIFFERENCES = (
    Difference(
        400,
        "vLLM fails with 500 or lets its engine fail",
        (
            *(f"structured_outputs={value}" for value in ("[]", '"x"', "1", "true")),
            'response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"$ref": "#"}}}',
        ),
    ),
    Difference(
        400,
        "vLLM's beam search passes over them in silence",
        (
            *(f"use_beam_search=true {more}" for more in ('stop=["a"]', "min_tokens=1", "max_tokens=0")),
            'use_beam_search=true structured_outputs={"regex": "a"}',
        ),
    ),
    Difference(400, "NaN spoils the logits of the engine", ('logit_bias={"1": NaN}',)),
    Difference(200, "what is unknown changes nothing, with or without a stream", ('stream_options={"a": 1}',)),
    Difference(
        200,
        "an option beside response_format is no second constraint",
        ('structured_outputs={"whitespace_pattern": " "} response_format={"type": "json_object"}',),
    ),
    Difference(
        200,
        "null is the same as nothing, as elsewhere",
        ('messages=[{"role": "user", "content": "hi", "name": null}]',),
    ),
    Difference(400, "an object is no content", ('messages=[{"role": "user", "content": {}}]',)),
    Difference(
        200,
        "text is text: vLLM takes these parts in longer lists, or on its other routes",
        (
            'messages=[{"role": "user", "content": ["x"]}]',
            'messages=[{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]',
            'messages=[{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]',
            history('"content": ["x"]'),
        ),
    ),
    Difference(
        400,
        "reasoning is text; anything else would stand in the prompt as Python writes it",
        (history('"reasoning": 1'), history('"reasoning_content": 1'), history('"reasoning": ["x"]')),
    ),
    Difference(
        200,
        "a history must not end a conversation: what a call lacks is not needed, arguments that are no JSON are none",
        (
            call('"id": null', '"type": "function"', '"function": {"name": "f", "arguments": "{}"}'),
            call('"type": "function"', '"function": {"name": "f", "arguments": "{}"}'),
            call('"id": "c1"', '"function": {"name": "f", "arguments": "{}"}'),
            call('"id": "c1"', '"type": "function"', '"function": {"name": "f"}'),
            *(
                call('"id": "c1"', '"type": "function"', f'"function": {{"name": "f", "arguments": {arguments}}}')
                for arguments in ("null", "{}", '{"a": 1}', "[]", "1")
            ),
        ),
    ),
)
#: Probes whose error names another field than vLLM's, and why.
OTHER_FIELDS = dict.fromkeys(
    (
        "max_tokens=1 max_completion_tokens=0",
        *(f"max_completion_tokens={value}" for value in ("-1", "0", "-9223372036854775809")),
    ),
    "vLLM says max_tokens, which is not the one that is wrong",
) | dict.fromkeys(
    (
        'kv_transfer_params={"a": 18446744073709551616}',
        'vllm_xargs={"a": 18446744073709551616}',
        'vllm_xargs={"a": -9223372036854775809}',
    ),
    "vLLM says extra_args, which no request has",
)


@pytest.fixture(scope="module")
def golden(root: Path) -> dict[str, Answer]:
    """What vLLM answered."""
    lines = (root / "tests" / "golden" / "field_probes.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row.pop("probe"): Answer(**row) for row in rows}


def answers(address: str) -> Iterator[tuple[str, Answer]]:
    """What a server answers."""
    connection = http.client.HTTPConnection(address, timeout=60)
    for probe in probes():
        yield probe.name, ask(connection, probe)
    connection.close()


def plain(name: str) -> str:
    """A probe's name without its endpoint."""
    return name.partition(" ")[2]


def field(param: str | None) -> str | None:
    """The request's field that an error's `param` is about; None where it is lost (`body.0.…`)."""
    name = (param or "").removeprefix("body.").partition(".")[0]
    return None if not name or name.isdigit() else name


def test_statuses(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int], golden: dict[str, Answer]
) -> None:
    words = ["--served-model-name", MODEL, "--tool-call-parser", "hermes"]
    serving = serve(start, fastfront, peers, free_port, *words, engine=None, model="smollm2")
    add_engine(start, fastfront, serving, "--max-model-len", str(MODEL_LEN), "--vocab", str(VOCAB))
    serving.front.wait_http(f"{serving.base}/health")
    expected = {name: one.status for one in DIFFERENCES for name in one.probes}
    used: set[str] = set()
    wrong = []
    asked = 0
    for name, got in answers(f"127.0.0.1:{serving.port}"):
        want = golden[name]
        asked += 1
        status = expected.get(plain(name), want.status)
        if status != want.status:
            used.add(plain(name))
        if got.status != status:
            wrong.append((name, f"vLLM {want.status} {want.message}", f"here {got.status} {got.message}"))
        elif got.status >= 400 and want.status == got.status and field(want.param) is not None:
            if plain(name) in OTHER_FIELDS:
                used.add(plain(name))
                assert field(want.param) != field(got.param)
            elif field(want.param) != field(got.param):
                wrong.append((name, f"vLLM names {want.param}", f"here {got.param}"))
    assert wrong == []
    assert asked == len(golden) > 2000
    assert {*expected, *OTHER_FIELDS} - used == set(), "these differences are none any more"
