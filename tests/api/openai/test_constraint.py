"""Guided decoding: exactly one constraint, and the field that it is from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront.api.openai.constraint import constraint
from fastfront.errors import RequestError
from tests.api.fakes import Client

SCHEMA = {"type": "object"}


def nested(levels: int) -> dict[str, Any]:
    """Objects in each other."""
    document: dict[str, Any] = {}
    for _ in range(levels - 1):
        document = {"a": document}
    return document


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    """A response_format."""
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


@pytest.mark.parametrize(
    "structured, wire",
    [
        ({"json": SCHEMA}, {"json": SCHEMA}),
        ({"json": json.dumps(SCHEMA)}, {"json": json.dumps(SCHEMA)}),
        ({"regex": "a+"}, {"regex": "a+"}),
        ({"choice": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"grammar": "root ::= x"}, {"grammar": "root ::= x"}),
        ({"json_object": True}, {"json_object": True}),
        ({"structural_tag": "{}"}, {"structural_tag": "{}"}),
        (
            {"regex": "", "disable_any_whitespace": True, "whitespace_pattern": " "},
            {"regex": "", "disable_any_whitespace": True, "whitespace_pattern": " "},
        ),
    ],
)
def test_structured_outputs(client: Client, structured: dict[str, Any], wire: dict[str, Any]) -> None:
    assert client.complete(structured_outputs=structured).status == 200
    assert client.generation.sampling.structured_outputs == wire


@pytest.mark.parametrize(
    "response_format, wire",
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"json_object": True}),
        (
            {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}},
            {"json": SCHEMA},
        ),
    ],
)
def test_response_format(client: Client, response_format: dict[str, Any], wire: dict[str, Any] | None) -> None:
    assert client.chat(response_format=response_format).status == 200
    assert client.generation.sampling.structured_outputs == wire


@pytest.mark.parametrize(
    "tag",
    [
        {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a"]},
    ],
)
def test_structural_tag(client: Client, tag: dict[str, Any]) -> None:
    assert client.chat(response_format=tag).status == 200
    wire = client.generation.sampling.structured_outputs
    assert wire is not None
    assert json.loads(wire["structural_tag"]) == tag


@pytest.mark.parametrize(
    "body, param",
    [
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": " "}}, "structured_outputs"),
        ({"structured_outputs": {"json": ""}}, "structured_outputs"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs"),
        ({"structured_outputs": {"json": nested(66)}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"maximum": 2**64}}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a\0"}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": ""}}, "structured_outputs"),
        ({"structured_outputs": {"choice": [1]}}, "body.structured_outputs.choice.0"),
        ({"structured_outputs": "x"}, "body.structured_outputs"),
        ({"response_format": "json"}, "body.response_format"),
        ({"response_format": {}}, "body.response_format.type"),
        ({"response_format": {"type": "xml"}}, "body.response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "body.response_format.json_schema.name"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "response_format"),
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "response_format"),
        ({"response_format": schema_format(nested(66))}, "response_format"),
        ({"response_format": schema_format({"maximum": 2**64})}, "response_format"),
    ],
)
def test_refused(client: Client, body: dict[str, Any], param: str) -> None:
    answer = client.complete(**body)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert not client.pipeline.asked


def test_deep_enough(client: Client) -> None:
    assert client.complete(structured_outputs={"json": nested(64)}).status == 200


def test_a_tag_that_nests_further_than_python_can_follow() -> None:
    with pytest.raises(RequestError, match="structural_tag is nested too deeply") as caught:
        constraint(None, {"type": "structural_tag", "format": nested(5000)})
    assert caught.value.param == "response_format"
