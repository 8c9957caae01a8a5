"""Streams of events into records: times, counts, texts and errors, however the bytes are cut."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront.load.events import MAX_EVENT, Events
from fastfront.load.record import Record
from tests.load.scripted import DONE, delta, event, usage


def read(*pieces: bytes, text: bool = False) -> Record:
    """The pieces come at 1, 2, 3 ... s."""
    record = Record(keep_text=text)
    events = Events(record)
    for now, piece in enumerate(pieces, 1):
        events.feed(piece, float(now))
    events.finish()
    return record


def facts(record: Record) -> tuple[Any, ...]:
    return list(record.times), record.prompt_tokens, record.output_tokens, record.error


WHOLE = event("a") + event(' "choices":[{ \n\n \u00e9') + b": ping\n\n" + event("c") + usage(7, 5) + DONE


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("returns", [False, True])
def test_cut_anywhere(text: bool, returns: bool) -> None:
    wire = WHOLE.replace(b"\n", b"\r\n") if returns else WHOLE
    for cut in range(1, len(wire)):
        record = read(wire[:cut], wire[cut:], text=text)
        times, *rest = facts(record)
        assert len(times) == 3
        assert times == sorted(times)
        assert rest == [7, 5, ""]
        assert record.text == ('a "choices":[{ \n\n \u00e9c' if text else "")
    assert facts(read(*(wire[i : i + 1] for i in range(len(wire)))))[1:] == (7, 5, "")


def test_each_event_has_the_time_of_its_last_byte() -> None:
    assert facts(read(event("a"), event("b")[:-1], b"\n" + event("c"))) == ([1.0, 3.0, 3.0], 0, 3, "")


def test_many_events_in_one_packet() -> None:
    assert facts(read(event("a"), event("b") * 9 + usage(2, 10) + DONE)) == ([1.0, *[2.0] * 9], 2, 10, "")


def test_an_event_with_several_tokens_counts_once_in_time() -> None:
    assert facts(read(event("a b c"), event("d e"), usage(3, 5))) == ([1.0, 2.0], 3, 5, "")


def test_spaces_in_the_json_make_no_difference() -> None:
    spaced = b'data: {"choices": [{"text": "a"}]}\n\n'
    assert facts(read(spaced, spaced + event("b"))) == ([1.0, 2.0, 2.0], 0, 3, "")


def test_chat_texts() -> None:
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}\n\n'
    record = read(role, delta("Hel"), delta("lo"), usage(1, 2), text=True)
    assert record.text == "Hello"
    assert len(record.times) == 3


def test_usage_that_comes_with_choices() -> None:
    counts = {"usage": {"prompt_tokens": 4, "completion_tokens": 2}}
    earlier = {"usage": {"prompt_tokens": 4, "completion_tokens": 1}}
    assert facts(read(event("a", **earlier), event("b", **counts), DONE)) == ([1.0, 2.0], 4, 2, "")
    # Decoded, too, where the last packet holds more than events with choices.
    assert facts(read(event("a", **earlier), event("b", **counts) + DONE)) == ([1.0, 2.0], 4, 2, "")


def test_no_usage_and_no_done() -> None:
    assert facts(read(event("a"), event("b"))) == ([1.0, 2.0], 0, 2, "")
    assert facts(read(event("a"), event("b").rstrip())) == ([1.0, 1.0], 0, 2, "")


@pytest.mark.parametrize(
    "wire, says",
    [
        (b'data: {"error": {"message": "engine died", "code": 500}}\n\n', "engine died"),
        (b'data: {"error": "busy"}\n\n', "busy"),
        (b"data: {nonsense\n\n", "an event that is no JSON object: {nonsense"),
        (b"data: [1]\n\n", "an event that is no JSON object: [1]"),
    ],
)
def test_an_error_in_the_stream(wire: bytes, says: str) -> None:
    record = read(event("a") + wire + b'data: {"error": "a later one"}\n\n' + DONE)
    assert record.error == says
    assert list(record.times) == [1.0]


def test_nothing_generated_is_an_error() -> None:
    assert read(usage(3, 0), DONE).error == "the answer had no event with a choice"
    assert read(b'{"choices":[{"text":"not a stream"}]}').error == "the answer had no event with a choice"


def test_odd_values_do_no_harm() -> None:
    odd = b'data: {"choices": 5, "usage": {"prompt_tokens": "x"}}\n\ndata: {"usage": []}\n\ndata: {"choices": [1]}\n\n'
    assert facts(read(odd, text=True)) == ([1.0], 0, 1, "")


def test_an_event_without_an_end_is_given_up() -> None:
    record = read(b"data: " + b"x" * MAX_EVENT)
    assert record.error == f"an event of more than {MAX_EVENT} bytes"
