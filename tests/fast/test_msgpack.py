"""Walking an engine's output message."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

decode, encode = msgspec.msgpack.decode, msgspec.msgpack.encode


def goldens(shared: Path) -> list[tuple[str, bytes]]:
    found = []
    for path in sorted((shared / "wire" / "golden").glob("*_out_*.json")):
        found.append((path.stem, bytes.fromhex(json.loads(path.read_text())["frames_hex"][0])))
    assert len(found) == 13
    return found


def test_golden_outputs(fast: SimpleNamespace, shared: Path) -> None:
    for name, message in goldens(shared):
        whole = decode(message)
        walked = fast.walk_outputs(message)
        assert walked.error is None, name
        assert walked.engine_index == whole[0]
        assert [output.request_id for output in walked.outputs] == [output[0] for output in whole[1]]
        for output, want in zip(walked.outputs, whole[1], strict=True):
            assert output.token_ids == want[1]
            assert output.finish_reason == (-1 if want[5] is None else want[5])
            assert output.stop_reason == want[6]
            rare = [want[n] for n in range(2, len(want)) if n not in (5, 6, 13)]
            assert (output.raw is not None) == any(value is not None for value in rare), name
            if output.raw is not None:
                assert decode(output.raw) == want
        for field, place in ((walked.stats, 2), (walked.utility, 4), (walked.finished_requests, 5)):
            assert (None if field is None else decode(field)) == whole[place], name


def test_every_cut_of_a_message_is_an_error(fast: SimpleNamespace, shared: Path) -> None:
    for _, message in goldens(shared)[:6]:
        for size in range(len(message)):
            assert fast.walk_outputs(message[:size]).error is not None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        encode([0]),
        encode({"a": 1}),
        encode(["0", []]),
        encode([0, None]),
        encode([0, [1]]),
        encode([0, [[]]]),
        encode([0, [[1, [2]]]]),
        encode([0, [["a", 5]]]),
        encode([0, [["a", ["b"]]]]),
        encode([0, [["a", [1.5]]]]),
        encode([0, [["a", [], None, None, None, 9]]]),
        encode([0, [["a", [], None, None, None, "stop"]]]),
        encode([0, [["a", [], None, None, None, 0, 1.5]]]),
        encode([0, [], None, 1.0, None, None, "wave"]),
        encode([0, []]) + b"\x00",
        b"\x92\x00\x91\x92\xa1a\xdd\x00\xff\xff\xff\x01",
        b"\x93\x00\x90\xdf\xff\xff\xff\xff",
    ],
)
def test_malformed_messages(fast: SimpleNamespace, message: bytes) -> None:
    assert fast.walk_outputs(message).error is not None


def test_what_came_before_the_fault_is_kept(fast: SimpleNamespace) -> None:
    walked = fast.walk_outputs(encode([3, [["a", [1]], ["b", 5], ["c", [2]]]]))
    assert walked.engine_index == 3
    assert [output.request_id for output in walked.outputs] == ["a"]


def test_short_and_long_arrays(fast: SimpleNamespace) -> None:
    outputs = [["a", [1, -2, 2**31]], ["b", [], *[None] * 16, "newer"]]
    walked = fast.walk_outputs(encode([0, outputs, *[None] * 7, "newer"]))
    assert walked.error is None
    assert walked.outputs[0] == ("a", [1, -2, 2**31], -1, None, None)
    assert decode(walked.outputs[1].raw)[-1] == "newer"


def test_random_bytes_never_hurt(fast: SimpleNamespace, shared: Path) -> None:
    rng = random.Random(8)
    messages = [bytearray(message) for _, message in goldens(shared)]
    for _ in range(3000):
        message = bytearray(rng.choice(messages))
        for _ in range(rng.randrange(1, 4)):
            message[rng.randrange(len(message))] = rng.randrange(256)
        fast.walk_outputs(bytes(message))
