"""The reference cases of tokenizers through /tokenize and /detokenize, six models."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.fast.vocabs import MODELS, rows

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("model", MODELS)
def test_cases(
    start: Start, fastfront: list[str], shared: Path, peers: Path, free_port: Callable[[], int], model: str
) -> None:
    port = free_port()
    server = start([*fastfront, "render", peers / "models" / model, "--port", str(port)])
    server.wait_http(f"http://127.0.0.1:{port}/health")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(path: str, body: dict[str, Any]) -> Any:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        return json.loads(answer.read())

    asked = 0
    for case in rows(shared, "encode_cases.jsonl"):
        if case["model"] == model:
            body = {"prompt": case["text"], "add_special_tokens": case["add_special_tokens"]}
            assert ask("/tokenize", body)["tokens"] == case["ids"], case
            asked += 1
    for case in rows(shared, "detok_cases.jsonl"):
        if case["model"] == model:
            body = {"tokens": case["ids"], "skip_special_tokens": case["skip_special_tokens"]}
            assert ask("/detokenize", body)["prompt"] == case["text"], case
            asked += 1
    assert asked > 50
    connection.close()
