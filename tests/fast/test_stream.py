"""The per-token path: from an output message to text and to events."""

from __future__ import annotations

import json
import random
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.fast.test_sse import Owner as OutboxOwner
from tests.fast.vocabs import rows, vocab

encode = msgspec.msgpack.encode
ABC = [bytes([n]) for n in range(256)]
STOP, LENGTH = 0, 1


def output(request_id: str, ids: list[int], finish: int | None = None, stop: Any = None) -> list[Any]:
    return [request_id, ids, None, None, None, finish, stop]


class Owner:
    """Keeps its steps."""

    def __init__(self) -> None:
        self.steps: list[Any] = []


def feed(router: Any, *outputs: list[Any]) -> Any:
    parsed = router.feed(encode([0, list(outputs), None, 1.0]), 5.0)
    assert parsed.error is None
    return parsed


def collect(router: Any, stream: Any, steps: list[list[int]], finish: int, stop: Any = None) -> Any:
    """The last Step of a stream that gets `steps` and then ends."""
    request_id = router.open(stream, "cmpl")
    for n, ids in enumerate(steps):
        last = n == len(steps) - 1
        parsed = feed(router, output(request_id, ids, finish if last else None, stop if last else None))
        for step in parsed.steps:
            if step.finish_reason >= 0:
                return step
    raise AssertionError("the stream did not end")


def test_reference_stop_cases(
    fast: SimpleNamespace, shared: Path, peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in rows(shared, "stop_cases.jsonl"):
        words = vocab(fast, peers, case["model"], monkeypatch)
        stop = fast.Patterns(case["stop"]) if case["stop"] else None
        stream = fast.Stream(
            Owner(),
            words,
            skip_special=case["skip_special_tokens"],
            prompt=case["prompt_ids"],
            stop=stop,
            include_stop=case["include_stop_str_in_output"],
            min_tokens=case["min_tokens"],
        )
        end = STOP if case["ends_on_stop_token"] else LENGTH
        step = collect(fast.Router(), stream, case["chunks"], end)
        assert step.text == case["text"], case
        assert step.stop_reason == case["stop_reason"], case
        assert stream.tokens == case["output_tokens"], case
        assert step.finish_reason == (STOP if case["stop_reason"] is not None else end)


def events(fast: SimpleNamespace, tail: list[bytes], interval: int = 1, stop: Any = None) -> tuple[Any, Any, Any, Any]:
    flusher, owner = fast.Flusher(), OutboxOwner()
    outbox = fast.Outbox(flusher, owner, -1, 1 << 20, False)
    stream = fast.Stream(Owner(), fast.Vocab(ABC), interval=interval, stop=stop)
    stream.to_outbox(outbox, b"<open>", b'data: "', tail, 10)
    return stream, flusher, owner, outbox


def written(flusher: Any, owner: Any) -> bytes:
    flusher.flush()
    data = b"".join(owner.blocked)
    owner.blocked.clear()
    return data


def test_events(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream, flusher, owner, _ = events(fast, [b'"\n\n'])
    request_id = router.open(stream, "cmpl-x")
    assert request_id.startswith("cmpl-x-")
    assert len(request_id) == len("cmpl-x-") + 12
    assert feed(router, output(request_id, [65])).steps == []
    assert written(flusher, owner) == b'<open>data: "A"\n\n'
    assert feed(router, output(request_id, [])).steps == []
    assert feed(router, output(request_id, [0xC3])).steps == []
    assert written(flusher, owner) == b""  # no event without text
    assert feed(router, output(request_id, [0xA9, 34, 10])).steps == []
    assert written(flusher, owner) == 'data: "é\\"\\n"\n\n'.encode()
    (step,) = feed(router, output(request_id, [66, 67], LENGTH)).steps
    assert (step.stream, step.text, step.finish_reason, step.stop_reason) == (stream, "BC", LENGTH, None)
    assert step.engine_done
    assert written(flusher, owner) == b""  # the last event is the API's
    assert (stream.tokens, router.tokens, len(router)) == (7, 7, 0)
    assert (stream.first_at, stream.last_at) == (5.0, 5.0)


def test_the_opening_goes_out_with_the_engines_first_output_even_without_text(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream, flusher, owner, _ = events(fast, [b'"\n\n'])
    request_id = router.open(stream, "r")
    feed(router, output(request_id, [0xC3]))
    assert written(flusher, owner) == b"<open>"


def test_usage_in_every_event(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream, flusher, owner, _ = events(fast, [b'","total":', b',"completion":', b"}\n\n"])
    request_id = router.open(stream, "r")
    feed(router, output(request_id, [65, 66]))
    feed(router, output(request_id, [67]))
    assert written(flusher, owner) == (
        b'<open>data: "AB","total":12,"completion":2}\n\ndata: "C","total":13,"completion":3}\n\n'
    )


def test_an_interval_joins_tokens(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream, flusher, owner, _ = events(fast, [b'"|'], interval=3)
    request_id = router.open(stream, "r")
    for n in range(7):
        feed(router, output(request_id, [65 + n]))
    assert written(flusher, owner) == b'<open>data: "A"|data: "BCD"|data: "EFG"|'
    (step,) = feed(router, output(request_id, [72], LENGTH)).steps
    assert step.text == "H"


def test_stop_strings_end_a_stream_here(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream, flusher, owner, _ = events(fast, [b'"|'], stop=fast.Patterns(["BCD"]))
    request_id = router.open(stream, "r")
    feed(router, output(request_id, [65, 66]))
    feed(router, output(request_id, [67]))
    assert written(flusher, owner) == b'<open>data: "A"|'
    (step,) = feed(router, output(request_id, [68, 69])).steps
    assert (step.text, step.finish_reason, step.stop_reason, step.engine_done) == ("", STOP, "BCD", False)
    assert stream.tokens == 4
    assert feed(router, output(request_id, [70])).steps == []
    assert router.dropped == 1


def test_a_stop_string_in_the_engines_own_last_step(fast: SimpleNamespace) -> None:
    stream = fast.Stream(Owner(), fast.Vocab(ABC), stop=fast.Patterns(["B"]))
    step = collect(fast.Router(), stream, [[65, 66, 67]], LENGTH)
    assert (step.text, step.finish_reason, step.stop_reason, step.engine_done) == ("A", STOP, "B", True)


@pytest.mark.parametrize(
    ("finish", "stop_reason", "include", "text"),
    [
        (STOP, None, False, "A"),
        (STOP, 66, False, "A"),
        (STOP, None, True, "AB"),
        (LENGTH, None, False, "AB"),
        (4, "repetition_detected", False, "AB"),
    ],
)
def test_the_stop_tokens_text_is_hidden(
    fast: SimpleNamespace, finish: int, stop_reason: Any, include: bool, text: str
) -> None:
    stream = fast.Stream(Owner(), fast.Vocab(ABC), include_stop=include, keep_ids=True)
    step = collect(fast.Router(), stream, [[65], [66]], finish, stop_reason)
    assert (step.text, step.stop_reason, stream.token_ids) == (text, stop_reason, [65, 66])


def test_rare_fields_reach_python(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream = fast.Stream(Owner(), fast.Vocab(ABC))
    request_id = router.open(stream, "r")
    row = [request_id, [65], *[None] * 9, {"num_cached_tokens": 16}]
    (step,) = feed(router, row).steps
    assert (step.text, step.finish_reason) == ("", -1)
    assert msgspec.msgpack.decode(step.raw) == row


def test_unknown_and_closed_requests_are_dropped(fast: SimpleNamespace) -> None:
    router = fast.Router()
    kept, gone = (fast.Stream(Owner(), fast.Vocab(ABC)) for _ in range(2))
    kept_id, gone_id = router.open(kept, "a"), router.open(gone, "a")
    router.close(gone_id)
    router.close(gone_id)
    router.close("never-there")
    names = [gone_id, "", "x", "r-00000000000", kept_id + "0", "b" + kept_id[1:], kept_id[:-1] + "g", "é" * 12]
    feed(router, *(output(name, [65]) for name in names))
    assert router.dropped == len(names)
    assert (kept.tokens, gone.tokens, len(router)) == (0, 0, 1)
    again = fast.Stream(Owner(), fast.Vocab(ABC))
    again_id = router.open(again, "a")
    assert again_id != gone_id  # a late output of the old request finds nobody
    feed(router, output(gone_id, [65]), output(again_id, [66]))
    assert again.tokens == 1
    assert set(router.streams()) == {kept, again}


def framed(*messages: list[Any], long: bool = False) -> bytes:
    """Output messages as they come over ZMTP, one frame each."""
    data = b""
    for outputs in messages:
        message = encode([0, outputs, None, 1.0])
        short = len(message) < 256 and not long
        data += (b"\0" + bytes([len(message)])) if short else b"\2" + len(message).to_bytes(8, "big")
        data += message
    return data


def test_a_read_is_fed_up_to_what_python_must_see(fast: SimpleNamespace) -> None:
    for long in (False, True):
        router = fast.Router()
        first, second = (fast.Stream(Owner(), fast.Vocab(ABC)) for _ in range(2))
        one, two = router.open(first, "a"), router.open(second, "b")
        plain = framed([output(one, [72]), output(two, [73])], [output(one, [74])], long=long)
        ending = framed([output(two, [75], LENGTH)], long=long)
        data = plain + ending + framed([output(one, [76])], long=long)
        at, parsed = router.feed_read(data + b"\0", 0, 5.0)
        assert at == len(plain) + len(ending)
        assert [(step.stream, step.text, step.finish_reason) for step in parsed.steps] == [(second, "IK", LENGTH)]
        assert (parsed.engine_index, parsed.error, first.tokens, router.tokens) == (0, None, 2, 4)
        assert router.feed_read(data + b"\0", at, 6.0) == (len(data), None)
        assert (first.tokens, first.last_at, len(router)) == (3, 6.0, 1)
        assert router.feed_read(data + b"\0", len(data), 7.0) == (len(data), None)


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"\0",
        b"\0\5\x94",
        b"\0\0",
        b"\2" + bytes(7),
        b"\2" + b"\xff" * 8 + b"\x94",
        b"\1\1\x94",
        b"\3" + bytes(7) + b"\1\x94",
        b"\4\1\x94",
        b"\x10\1\x94",
        b"\0\x10ENGINE_CORE_DEAD",
    ],
)
def test_a_read_leaves_to_the_codec_what_is_no_whole_message(fast: SimpleNamespace, other: bytes) -> None:
    router = fast.Router()
    stream = fast.Stream(Owner(), fast.Vocab(ABC))
    data = framed([output(router.open(stream, "a"), [72])])
    assert router.feed_read(data + other, 0, 5.0) == (len(data), None)
    assert stream.tokens == 1


def test_a_read_stops_at_every_field_that_says_something(fast: SimpleNamespace) -> None:
    router = fast.Router()
    for place in range(2, 9):
        fields: list[Any] = [7, [], None, None, None, None, None, None, None]
        fields[place] = {2: {"waiting": 1}, 3: 9.5, 4: [1, None, None], 5: ["x"], 6: 3, 7: 4, 8: "v"}[place]
        message = encode(fields)
        at, parsed = router.feed_read(b"\0" + bytes([len(message)]) + message, 0, 5.0)
        assert at == len(message) + 2
        quiet = place in (3, 8)  # the engine's clock, the weights' version
        assert (parsed is None) == quiet, place
        if not quiet:
            assert parsed == router.feed(message, 5.0)
            assert parsed.engine_index == 7


def test_a_read_stops_at_a_malformed_message(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream = fast.Stream(Owner(), fast.Vocab(ABC))
    name = router.open(stream, "a")
    for wrong in (b"\x91\0", encode([0, [[name, ["x"]]], None]), encode([0, [], None, 1.0]) + b"\0"):
        data = framed([output(name, [72])]) + b"\0" + bytes([len(wrong)]) + wrong
        at, parsed = router.feed_read(data + data, 0, 5.0)
        assert at == len(data)
        assert parsed.error is not None
    assert stream.tokens == 3


def test_a_malformed_message_keeps_what_came_before(fast: SimpleNamespace) -> None:
    router = fast.Router()
    first, second = (fast.Stream(Owner(), fast.Vocab(ABC)) for _ in range(2))
    ids = [router.open(first, "a"), router.open(second, "b")]
    parsed = router.feed(encode([0, [output(ids[0], [65], LENGTH), [ids[1], "no list"]]]), 1.0)
    assert parsed.error is not None
    assert [step.text for step in parsed.steps] == ["A"]
    assert (second.tokens, len(router)) == (0, 1)


def test_a_full_outbox_stops_growing(fast: SimpleNamespace) -> None:
    router, flusher, owner = fast.Router(), fast.Flusher(), OutboxOwner()
    outbox = fast.Outbox(flusher, owner, -1, 100, False)
    stream = fast.Stream(Owner(), fast.Vocab(ABC))
    stream.to_outbox(outbox, b"", b"data: ", [b"\n\n"], 1)
    request_id = router.open(stream, "r")
    for _ in range(50):
        feed(router, output(request_id, [65]))
    assert outbox.pending() <= 100
    flusher.flush()
    assert owner.overflows == 1


def test_many_streams_and_slots(fast: SimpleNamespace) -> None:
    rng = random.Random(4)
    router = fast.Router()
    alive: dict[str, Any] = {}
    want: dict[str, str] = {}
    for _ in range(3000):
        if len(alive) < 50 and rng.random() < 0.3:
            stream = fast.Stream(Owner(), fast.Vocab(ABC))
            request_id = router.open(stream, f"r{rng.randrange(5)}")
            assert request_id not in alive
            alive[request_id], want[request_id] = stream, ""
        elif alive:
            request_id = rng.choice(list(alive))
            char = rng.randrange(65, 90)
            done = rng.random() < 0.1
            want[request_id] += chr(char)
            steps = feed(router, output(request_id, [char], LENGTH if done else None)).steps
            if done:
                assert steps[0].text == want.pop(request_id)
                del alive[request_id]
        assert len(router) == len(alive)


def test_events_are_json_for_any_text(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream, flusher, owner, _ = events(fast, [b'"|'])
    request_id = router.open(stream, "r")
    rng = random.Random(6)
    data = bytes(rng.randrange(256) for _ in range(3000))
    for byte in data:
        feed(router, output(request_id, [byte]))
    parts = written(flusher, owner).removeprefix(b"<open>").split(b'"|data: "')
    text = "".join(json.loads(b'"' + part.removeprefix(b'data: "').removesuffix(b'"|') + b'"') for part in parts)
    text += feed(router, output(request_id, [], LENGTH)).steps[0].text
    assert text == data.decode("utf-8", "replace")


def test_tails_have_one_or_three_pieces(fast: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="1 or 3"):
        events(fast, [b"a", b"b"])


def stepped(fast: SimpleNamespace, steps: list[list[int]], finish: int, **options: Any) -> tuple[list[Any], Any]:
    """The Steps of a stream that gives one for each output, and the stream."""
    router = fast.Router()
    stream = fast.Stream(Owner(), fast.Vocab(ABC, special=[0]), steps=True, **{"keep_ids": True, **options})
    request_id = router.open(stream, "r")
    got: list[Any] = []
    for n, ids in enumerate(steps):
        got += feed(router, output(request_id, ids, finish if n == len(steps) - 1 else None)).steps
        if got and got[-1].finish_reason >= 0:
            break
    return got, stream


def test_steps(fast: SimpleNamespace) -> None:
    got, _ = stepped(fast, [[65, 0xC3], [], [0xA9, 66], [0xE4], [0xBD], [67]], LENGTH, stop=fast.Patterns(["BX"]))
    assert [(step.text, list(step.token_ids), step.finish_reason) for step in got] == [
        ("A", [65, 0xC3], -1),
        ("é", [0xA9, 66], -1),
        ("", [0xE4], -1),  # tokens without text
        ("", [0xBD], -1),
        ("B\ufffdC", [67], LENGTH),
    ]
    assert [step.engine_done for step in got] == [False] * 4 + [True]
    assert all(step.due for step in got)


def test_steps_have_no_ids_that_nobody_wants(fast: SimpleNamespace) -> None:
    got, stream = stepped(fast, [[65], [66]], LENGTH, keep_ids=False)
    assert [(step.text, list(step.token_ids)) for step in got] == [("A", []), ("B", [])]
    assert stream.tokens == 2


def test_steps_end_at_a_stop_string(fast: SimpleNamespace) -> None:
    got, stream = stepped(fast, [[65, 66], [67, 68, 69, 70]], LENGTH, stop=fast.Patterns(["CD"]))
    assert [(step.text, list(step.token_ids), step.stop_reason) for step in got] == [
        ("AB", [65, 66], None),
        ("", [67, 68], "CD"),
    ]
    assert stream.tokens == 4


def test_steps_write_the_opening_and_no_event(fast: SimpleNamespace) -> None:
    router, flusher, owner = fast.Router(), fast.Flusher(), OutboxOwner()
    outbox = fast.Outbox(flusher, owner, -1, 1 << 20, False)
    stream = fast.Stream(Owner(), fast.Vocab(ABC), steps=True)
    stream.to_outbox(outbox, b"<open>", b"", [b""], 1)
    request_id = router.open(stream, "r")
    for _ in range(2):
        assert len(feed(router, output(request_id, [65])).steps) == 1
    assert written(flusher, owner) == b"<open>"


def test_steps_keep_to_the_interval_but_for_rare_fields(fast: SimpleNamespace) -> None:
    router = fast.Router()
    stream = fast.Stream(Owner(), fast.Vocab(ABC), steps=True, interval=3, keep_ids=True)
    request_id = router.open(stream, "r")
    rare: list[Any] = [[], None, None, None, None, None, None, None, None, {"num_cached_tokens": 16}]
    counts = []
    for n in range(8):
        row = [request_id, [65 + n], *rare[1:]] if n == 4 else output(request_id, [65 + n])
        counts += [(n, step.text, len(step.token_ids), step.due) for step in feed(router, row).steps]
    assert counts == [(0, "A", 1, True), (3, "BCD", 3, True), (4, "E", 1, False), (6, "FG", 2, True)]
    (step,) = feed(router, output(request_id, [], LENGTH)).steps
    assert (step.text, list(step.token_ids)) == ("H", [72])


def test_plain_streams_give_no_ids(fast: SimpleNamespace) -> None:
    step = collect(fast.Router(), fast.Stream(Owner(), fast.Vocab(ABC), keep_ids=True), [[65], [66]], LENGTH)
    assert list(step.token_ids) == []


def test_steps_join_to_what_a_plain_stream_gives(fast: SimpleNamespace) -> None:
    rng = random.Random(8)
    for _ in range(300):
        data = rng.choices([0, 65, 66, 67, 0xC3, 0xA9, 0xF0, 0x9F, 0xAB, 0xA0], k=rng.randrange(1, 20))
        options: dict[str, Any] = {
            "include_stop": rng.random() < 0.5,
            "min_tokens": rng.randrange(4),
            "skip_special": rng.random() < 0.5,
            "prompt": rng.choice([(), (0xC3,), (0xF0, 0x9F)]),
        }
        stop = rng.choice([None, ["AB"], ["BA", "CC"], ["é"], ["A🫠"]])
        finish = rng.choice([STOP, LENGTH])

        def patterns(stop: list[str] | None = stop) -> Any:
            return fast.Patterns(stop) if stop else None

        splits = [[token] for token in data], cut(rng, data), [data]
        plain = fast.Stream(Owner(), fast.Vocab(ABC, special=[0]), keep_ids=True, stop=patterns(), **options)
        want = collect(fast.Router(), plain, splits[0], finish)
        for parts in splits:
            for interval in (1, 3):
                got, stream = stepped(fast, parts, finish, stop=patterns(), interval=interval, **options)
                assert "".join(step.text for step in got) == want.text
                assert [token for step in got for token in step.token_ids] == plain.token_ids
                assert stream.tokens == plain.tokens
                assert got[-1][2:4] == want[2:4]


def cut(rng: random.Random, data: list[int]) -> list[list[int]]:
    """The same ids in random groups, some of them empty, but not the last."""
    at = sorted(rng.choices(range(len(data)), k=rng.randrange(5)))
    return [data[low:high] for low, high in zip([0, *at], [*at, len(data)], strict=True)]


def test_a_released_stream_holds_nobody(fast: SimpleNamespace) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    stream = fast.Stream(owner, fast.Vocab(ABC))
    owner.stream = stream  # type: ignore[attr-defined]
    stream.release()
    del owner
    assert gone() is None  # without the collector
