"""What the log says of requests, and that it is silent unless asked."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fastfront.config import ApiConfig
from fastfront.errors import EngineRequestError
from tests.api.fakes import Client, Script

KINDS = ("completion", "chat")


def lines(
    caplog: pytest.LogCaptureFixture, kind: str, settings: ApiConfig, level: int = logging.INFO, **body: Any
) -> list[str]:
    """The log of one request; ids are those that the client sends."""
    client = Client(settings=settings)
    client.pipeline.script = Script(pieces=["ab", "cd", "e"])
    with caplog.at_level(level, "fastfront.requests"):
        ask = client.chat if kind == "chat" else client.complete
        assert ask(request_id="r", temperature=0.5, **body).status == 200
    return [record.getMessage() for record in caplog.records if record.name == "fastfront.requests"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_line_when_it_comes_and_one_when_it_ends(caplog: pytest.LogCaptureFixture, kind: str, stream: bool) -> None:
    told = lines(caplog, kind, ApiConfig(log_requests=True), stream=stream)
    name = "chatcmpl-r" if kind == "chat" else "cmpl-r"
    assert len(told) == 2
    assert told[0].startswith(f"received {name}: 1 prompts of ")
    assert "n=1, temperature=0.5" in told[0]
    assert told[1].startswith(f"finished {name}: choice 0: ")
    assert told[1].endswith(" 3 tokens")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("most", "text"), [(None, "abcde"), (3, "abc"), (0, "")])
def test_answers_whole_and_cut(
    caplog: pytest.LogCaptureFixture, kind: str, stream: bool, most: int | None, text: str
) -> None:
    settings = ApiConfig(log_requests=True, log_outputs=True, max_log_len=most)
    told = lines(caplog, kind, settings, stream=stream, n=2)
    assert [line.rpartition(", text ")[2] for line in told[1:]] == [repr(text)] * 2


def test_prompts_only_for_those_who_look_closely(caplog: pytest.LogCaptureFixture) -> None:
    told = lines(caplog, "completion", ApiConfig(log_requests=True, max_log_len=2), logging.DEBUG, prompt="xyz")
    assert told[1] == "request cmpl-r: prompt 'xy', ids [120, 121]"


def test_what_a_stream_says_is_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """Listening changes no byte of it."""

    def body(settings: ApiConfig) -> bytes:
        client = Client(settings=settings)
        client.pipeline.script = Script(pieces=["ab", "cd", "e"])
        answer = client.complete(stream=True, request_id="r")
        return answer.body

    def without_time(data: bytes) -> list[bytes]:
        return [line.partition(b'"choices"')[2] for line in data.splitlines()]

    assert without_time(body(ApiConfig(log_requests=True, log_outputs=True))) == without_time(body(ApiConfig()))


@pytest.mark.parametrize("stream", [False, True])
def test_failures(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    client = Client(settings=ApiConfig(log_requests=True))
    client.pipeline.script = Script(pieces=["a", "b"], error=EngineRequestError("lost"), error_after=1)
    with caplog.at_level(logging.INFO, "fastfront.requests"):
        client.complete(stream=stream, request_id="r")
    assert "ended cmpl-r: lost" in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("stream", [False, True])
def test_silent_by_default(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    assert lines(caplog, "chat", ApiConfig(), stream=stream) == []
