"""The mock engine against a frontend that speaks the wire by hand, and against the reference mock."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Started
from tests.engine.front import DEAD, Front

Join = Callable[..., Started]


@pytest.fixture
def front() -> Iterator[Front]:
    """A frontend for one client."""
    with Front() as opened:
        yield opened


@pytest.fixture
def join(start: Callable[..., Started], front: Front) -> Join:
    """join(*flags, ranks=1, front=front): starts our mock engine and shakes hands with it."""

    def begin(*flags: str, ranks: int = 1, to: Front = front) -> Started:
        words = [sys.executable, "-m", "fastfront.cli.mock_engine", "--handshake", to.address, *flags]
        if ranks > 1:
            words += ["--data-parallel-size", str(ranks)]
        started = start(words)
        to.join(ranks)
        return started

    return begin


def tokens(outputs: list[list[Any]]) -> list[int]:
    """All ids of one request's outputs."""
    return [token for output in outputs for token in output[1]]


def end(outputs: list[list[Any]]) -> tuple[Any, Any]:
    """How a request ended: finish and stop reason."""
    return outputs[-1][5], outputs[-1][6]


def shape(value: Any) -> Any:
    """A message's keys, lengths and types."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value)


# --- the handshake -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags, local", [((), False), (("--headless",), False), (("--local",), True)])
def test_handshake_says_where_it_runs(
    start: Callable[..., Started], front: Front, flags: tuple[str, ...], local: bool
) -> None:
    start([sys.executable, "-m", "fastfront.cli.mock_engine", "--handshake", front.address, "--index", "3", *flags])
    rank, hello = front.greet()
    assert (rank, hello) == (3, {"local": local, "headless": not local})
    assert front.settle() == [hello]


def test_registration_has_the_keys_of_a_real_engine(join: Join, front: Front, shared: Path) -> None:
    join("--max-model-len", "777", "--max-num-seqs", "5")
    golden = json.loads((shared / "wire/golden/06_engine_ready_response.json").read_text())["decoded"][0]
    got = front.registered[0]
    assert set(got) == set(golden)
    assert {key: type(value) for key, value in got.items()} == {key: type(value) for key, value in golden.items()}
    assert (got["max_model_len"], got["max_num_seqs"], got["data_parallel_size"]) == (777, 5, 1)


def test_ranks_of_one_process_have_their_own_names(join: Join, front: Front) -> None:
    join("--index", "2", ranks=3)
    assert {rank: info["data_parallel_rank"] for rank, info in front.registered.items()} == {2: 2, 3: 3, 4: 4}
    for rank in (2, 3, 4):
        front.add(f"r{rank}", rank=rank, max_tokens=2)
    seen: dict[str, int] = {}
    while len(seen) < 3:
        message, _ = front.message()
        for output in message[1]:
            if len(output) > 5:
                assert message[5] == [output[0]], "ranks of several name what has finished"
                seen[output[0]] = message[0]
    assert seen == {"r2": 2, "r3": 3, "r4": 4}


# --- tokens --------------------------------------------------------------------------------------------------------


def test_random_tokens_up_to_the_limit(join: Join, front: Front) -> None:
    join("--vocab", "500", "--max-model-len", "40")
    front.add("a", max_tokens=5)
    front.add("default")
    front.add("none", max_tokens=None)
    front.add("long", prompt=[7] * 30, max_tokens=500)
    got = front.drain("a", "default", "none", "long")
    assert {name: len(tokens(outs)) for name, outs in got.items()} == {"a": 5, "default": 16, "none": 37, "long": 10}
    assert {end(outs) for outs in got.values()} == {(1, None)}
    assert all(100 <= token < 500 for outs in got.values() for token in tokens(outs))


def test_stop_ids_end_a_request(join: Join, front: Front) -> None:
    join("--vocab", "102")
    front.add("eos", max_tokens=500, _eos_token_id=100)
    front.add("stop", max_tokens=500, stop_token_ids=[101], ignore_eos=True)
    front.add("late", max_tokens=500, _eos_token_id=100, _all_stop_token_ids=[100], min_tokens=40)
    got = front.drain("eos", "stop", "late")
    assert tokens(got["eos"])[-1] == 100 and end(got["eos"]) == (0, None)
    assert tokens(got["stop"])[-1] == 101 and end(got["stop"]) == (0, 101)
    assert 100 not in tokens(got["late"])[:40] and tokens(got["late"])[-1] == 100


def test_full_arrays_are_those_of_a_real_engine(join: Join, front: Front, shared: Path) -> None:
    join("--full-arrays", "--stats")
    front.add("x", prompt=[5], max_tokens=2)
    first, last = front.message()[0], front.message()[0]
    for name, got in (("36_out_first_token", first), ("38_out_finish_length", last)):
        want = json.loads((shared / f"wire/golden/{name}.json").read_text())["decoded"][0]
        assert shape(got) == shape(want)


def test_each_client_gets_its_own(start: Callable[..., Started]) -> None:
    with Front(clients=2) as front:
        start([sys.executable, "-m", "fastfront.cli.mock_engine", "--handshake", front.address])
        front.join()
        front.add("a", client=0, max_tokens=3)
        front.add("b", client=1, max_tokens=4)
        assert [len(tokens(outs)) for outs in front.drain("a", client=0).values()] == [3]
        assert [len(tokens(outs)) for outs in front.drain("b", client=1).values()] == [4]


def test_more_than_max_num_seqs_wait(join: Join, front: Front) -> None:
    join("--max-num-seqs", "2", "--stats")
    for name in "abcde":
        front.add(name, max_tokens=20)
    most, left = 0, set("abcde")
    while left:
        message, _ = front.message()
        most = max(most, len(message[1]))
        assert message[2]["num_running_reqs"] <= 2
        left -= {output[0] for output in message[1] if output[5:6] not in ([], [None])}
    assert most == 2


# --- against the reference mock ------------------------------------------------------------------------------------


def made_cases(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Scripts and requests that use them, drawn from a seed; every request ends."""
    draw = random.Random(seed)
    scripts, requests = {}, []
    for number in range(60):
        steps = [
            [draw.randrange(300) for _ in range(draw.choice((0, 1, 1, 1, 2, 5)))] for _ in range(draw.randrange(1, 9))
        ]
        finish = draw.choice(("stop", "length", "abort", "error"))
        scripts[str(number)] = {"steps": steps, "finish": finish, "stop_reason": draw.choice((None, 7, "text"))}
        params: dict[str, Any] = {"seed": number, "max_tokens": draw.choice((1, 3, 100))}
        if draw.random() < 0.4:
            params["_eos_token_id"] = draw.randrange(300)
        if draw.random() < 0.4:
            params["stop_token_ids"] = [draw.randrange(300) for _ in range(20)]
        if draw.random() < 0.4:
            params["logprobs"] = draw.randrange(30)
        if draw.random() < 0.3:
            params["prompt_logprobs"] = draw.randrange(3)
        requests.append({"prompt": [draw.randrange(300) for _ in range(draw.randrange(1, 40))], **params})
    return scripts, requests


@pytest.mark.parametrize("flags", [(), ("--full-arrays", "--inline-below", "0")])
def test_scripts_play_as_in_the_reference_mock(
    start: Callable[..., Started], tmp_path: Path, shared: Path, flags: tuple[str, ...]
) -> None:
    scripts, requests = made_cases(11)
    file = tmp_path / "scripts.json"
    file.write_text(json.dumps(scripts))
    got = []
    for program in ([shared / "tools/mock_engine.py"], ["-m", "fastfront.cli.mock_engine", *flags]):
        with Front() as front:
            start([sys.executable, *program, "--handshake", front.address, "--scripts", file])
            front.join()
            for number, request in enumerate(requests):
                front.add(f"r{number}", **request)
            got.append(front.drain(*(f"r{number}" for number in range(len(requests)))))
    reference, ours = got
    for outputs in ours.values():
        for output in outputs:
            output[13] = None  # the short form leaves the count of NaNs out
    assert ours == reference


def test_random_tokens_are_those_of_the_reference_mock(start: Callable[..., Started], shared: Path) -> None:
    got = []
    for program in ([shared / "tools/mock_engine.py"], ["-m", "fastfront.cli.mock_engine"]):
        with Front() as front:
            start([sys.executable, *program, "--handshake", front.address, "--seed", "3", "--vocab", "9000"])
            front.join()
            front.add("alone", max_tokens=9000)
            got.append([tokens(front.drain("alone")["alone"])])
    assert got[0] == got[1]


def test_records_as_the_reference_mock_does(start: Callable[..., Started], tmp_path: Path, shared: Path) -> None:
    lines = []
    for name, program in (("theirs", [shared / "tools/mock_engine.py"]), ("ours", ["-m", "fastfront.cli.mock_engine"])):
        with Front() as front:
            file = tmp_path / name
            start([sys.executable, *program, "--handshake", front.address, "--record", file])
            front.join()
            front.send(0, ["a", [1, 2], None, {"max_tokens": 2, "seed": 5}, None, 1.5, None, None, None])
            front.drain("a")
            front.abort("a", "b")
            front.call("reset_mm_cache")
            lines.append(file.read_text())
    assert lines[0] == lines[1]


# --- log-probabilities, statistics ---------------------------------------------------------------------------------


def test_random_tokens_can_have_logprobs(join: Join, front: Front) -> None:
    join("--vocab", "300")
    front.add("some", prompt=[4, 5, 6], max_tokens=2, logprobs=2, prompt_logprobs=1)
    front.add("all", max_tokens=1, logprobs=-1)
    front.add("asked", max_tokens=1, logprob_token_ids=[7, 5])
    got = front.drain("some", "all", "asked")
    first, second = got["some"]
    [token] = first[1]
    assert first[2] == [[token, token + 1, token + 2], [-0.5, -1.5, -2.5], [1]]
    assert first[3] == [[5, 6, 6, 7], [-0.5, -1.5] * 2, [1, 1]]
    assert second[3] is None
    [token] = got["all"][0][1]
    assert got["all"][0][2][0] == [token, *range(300)]
    [token] = got["asked"][0][1]
    assert got["asked"][0][2][0] == [token, 7, 5]


def test_large_arrays_travel_in_frames_of_their_own(join: Join, front: Front) -> None:
    join()
    front.add("x", prompt=list(range(100)), max_tokens=1, prompt_logprobs=0, logprobs=1)
    message, frames = front.message()
    inline, apart = message[1][0][2], message[1][0][3]
    assert [len(frame) for frame in frames[1:]] == [99 * 4] * 3
    assert [part[2] for part in apart[:3]] == [1, 2, 3]
    assert inline[0][2].code == 3 and inline[3] is None and apart[3:] == [None, None]


def test_first_output_tells_of_the_prefill(join: Join, front: Front) -> None:
    join("--stats", "--cached-tokens", "4")
    front.add("plain", prompt=[9] * 10, max_tokens=2)
    front.add("play", prompt=[9] * 3, max_tokens=2, logprobs=0)
    got = front.drain("plain", "play")
    for name, prompt, cached in (("plain", 10, 4), ("play", 3, 2)):
        first, second = got[name]
        assert [event["type"] for event in first[7]] == [1, 2]
        assert first[7][0]["timestamp"] <= first[7][1]["timestamp"]
        assert first[11]["num_prompt_tokens"] == prompt and first[11]["num_cached_tokens"] == cached
        assert first[11]["num_computed_tokens"] == prompt - cached
        assert second[7] is None and second[11] is None


def test_statistics_follow_the_requests(join: Join, front: Front) -> None:
    join("--stats", "--max-num-seqs", "1", "--step-ms", "5")
    front.add("a", prompt=[1] * 100, max_tokens=10_000)
    front.add("b", prompt=[1] * 50, max_tokens=10_000)
    message, _ = front.message()
    while message[2] is None or message[2]["num_waiting_reqs"] != 1:
        message, _ = front.message()
    assert message[2]["num_running_reqs"] == 1 and message[2]["kv_cache_usage"] > 0
    front.abort("a", "b")
    while message[2] is None or message[2]["num_running_reqs"]:
        message, _ = front.message()
    assert message[1] == [] and message[2]["num_waiting_reqs"] == 0 and message[2]["kv_cache_usage"] == 0
    assert front.quiet()


def test_no_statistics_unless_asked(join: Join, front: Front) -> None:
    join()
    front.add("a", max_tokens=1)
    message, _ = front.message()
    assert message[2] is None and len(message[1][0]) == 6


# --- abort and utility calls ---------------------------------------------------------------------------------------


def test_nothing_comes_for_an_aborted_request(join: Join, front: Front) -> None:
    join("--step-ms", "2")
    front.add("a", max_tokens=100_000)
    front.add("play", max_tokens=100_000, logprobs=1)
    front.message()
    front.abort("a", "play", "never heard of")
    assert front.call("is_sleeping") == [1, None, [None, False]]
    assert front.quiet()
    front.add("a", max_tokens=2)
    assert len(tokens(front.drain("a")["a"])) == 2


def test_late_outputs(join: Join, front: Front) -> None:
    join("--step-ms", "2", "--late-outputs", "3")
    front.add("a", max_tokens=100_000)
    front.message()
    front.abort("a")
    front.add("after", max_tokens=50)
    got = front.drain("after")
    assert got["a"][-1][5] is None
    last = [output[0] for outs in got.values() for output in outs].count("a")
    assert last >= 3


@pytest.mark.parametrize(
    "method, args, want",
    [
        ("get_supported_tasks", [], ["generate"]),
        ("reset_prefix_cache", [True, False], True),
        ("reset_mm_cache", [], None),
        ("reset_encoder_cache", [], None),
        ("is_sleeping", [], False),
        ("is_scheduler_paused", [], False),
        ("profile", [True, None, None, None], None),
        ("get_weight_version", [], "default"),
        ("list_loras", [], []),
        (
            "collective_rpc",
            ["echo", 1.5, [1, "x"], {"k": None}],
            [{"method": "echo", "timeout": 1.5, "args": [1, "x"], "kwargs": {"k": None}}],
        ),
    ],
)
def test_utility_calls(join: Join, front: Front, method: str, args: list[Any], want: Any) -> None:
    join()
    assert front.call(method, *args, call_id=2**63 + 5) == [2**63 + 5, None, [None, want]]


def test_failing_utility_calls_say_why(join: Join, front: Front, shared: Path) -> None:
    join("--full-arrays")
    call_id, failure, result = front.call("no_such", 1, call_id=-77)
    assert (call_id, result) == (-77, None)
    assert failure == "Call to no_such method failed: 'EngineCoreProc' object has no attribute 'no_such'"
    for method, args in (("_settle", []), ("sleep", [1, "soon"]), ("reset_mm_cache", [1, 2, 3]), ("add_lora", [[]])):
        assert front.call(method, *args)[1].startswith(f"Call to {method} method failed: ")
    assert front.call("is_sleeping")[2] == [None, False]


def test_sleep_aborts_and_wake_up_goes_on(join: Join, front: Front) -> None:
    join("--step-ms", "2")
    front.add("a", max_tokens=100_000)
    front.message()
    front.send(3, [0, 5, "sleep", [1, "abort"]])
    assert end(front.drain("a")["a"]) == (2, None)
    assert front.message()[0][4] == [5, None, [None, None]]
    assert front.call("is_sleeping")[2][1] is True
    front.add("b", max_tokens=2)
    assert front.quiet()
    assert front.call("wake_up", ["weights"])[2][1] is False
    assert front.call("wake_up", None)[2][1] is True
    front.drain("b")


def test_pause_keep_stands_still(join: Join, front: Front) -> None:
    join("--step-ms", "2")
    front.add("a", max_tokens=60)
    front.message()
    front.call("pause_scheduler", "keep", False)
    assert front.quiet()
    assert front.call("is_scheduler_paused")[2][1] is True
    front.call("resume_scheduler")
    assert end(front.drain("a")["a"]) == (1, None)


def test_pause_wait_answers_when_all_have_ended(join: Join, front: Front) -> None:
    join("--step-ms", "2")
    front.add("a", max_tokens=30)
    front.message()
    front.send(3, [0, 9, "pause_scheduler", ["wait", True]])
    front.add("b", max_tokens=1)
    seen: list[str] = []
    answer = None
    while answer is None:
        message, _ = front.message()
        answer = message[4]
        seen += [output[0] for output in message[1] if output[5:6] not in ([], [None])]
    assert seen == ["a"] and answer[0] == 9
    assert front.quiet()


# --- endings and faults --------------------------------------------------------------------------------------------


def test_sigterm_aborts_and_ends_well(join: Join, front: Front) -> None:
    started = join("--step-ms", "5")
    front.add("a", max_tokens=100_000)
    front.message()
    started.process.send_signal(signal.SIGTERM)
    assert end(front.drain("a")["a"]) == (2, None)
    assert started.process.wait(20) == 0


def test_sigterm_ends_it_while_it_waits_for_a_frontend(start: Callable[..., Started], front: Front) -> None:
    started = start([sys.executable, "-m", "fastfront.cli.mock_engine", "--handshake", front.address])
    front.receive(front.handshake)
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(20) == 0


def frames_until_end(front: Front, started: Started) -> list[list[bytes]]:
    """Every output message up to the end of the process."""
    frames = []
    while started.process.poll() is None or not front.quiet(ms=300):
        if front.outputs[0].poll(100):
            frames.append(front.outputs[0].recv_multipart())
    return frames


@pytest.mark.parametrize("flag, code", [("--die-after", 1), ("--crash-after", -signal.SIGKILL)])
def test_death(join: Join, front: Front, flag: str, code: int) -> None:
    started = join(flag, "3")
    front.add("a", max_tokens=1000)
    frames = frames_until_end(front, started)
    assert started.process.returncode == code
    assert len([frame for frame in frames if frame != [DEAD]]) == 3
    assert [DEAD] in frames if code == 1 else [DEAD] not in frames
    if code == 1:
        assert frames[-1] == [DEAD]


def test_malformed_message(join: Join, front: Front) -> None:
    join("--malformed-after", "2")
    front.add("a", max_tokens=5)
    frames = [front.receive(front.outputs[0]) for _ in range(6)]
    assert [frame == [b"\x94\x00\x91\xc1\xc0"] for frame in frames] == [False, False, True, False, False, False]


def test_stall(join: Join, front: Front) -> None:
    join("--stall-after", "2")
    front.add("a", max_tokens=5)
    front.message()
    front.message()
    assert front.quiet()
    assert front.call("is_sleeping")[1] is None


# --- what breaks an engine -----------------------------------------------------------------------------------------

BAD = [
    {"n": 3, "temperature": 0.0},
    {"temperature": 2.5},
    {"top_p": 0.0},
    {"max_tokens": 0},
    {"min_tokens": 9, "max_tokens": 2},
    {"presence_penalty": "much"},
    {"stop_token_ids": ["a"]},
    {"structured_outputs": {"json": "{}", "regex": "a"}},
    {"structured_outputs": {}},
    {"repetition_detection": {"max_pattern_size": 3, "min_count": 1}},
    {"logprobs": -2},
    {"seed": 2**64 - 1.5},
]


@pytest.mark.parametrize("params", BAD)
def test_strict_goes_deaf_on_bad_parameters(join: Join, front: Front, params: dict[str, Any]) -> None:
    started = join("--strict", "--step-ms", "2")
    front.add("before", max_tokens=20)
    front.message()
    front.add("bad", **params)
    got = front.drain("before")
    assert "bad" not in got and end(got["before"]) == (1, None)
    front.add("after", max_tokens=1)
    front.send(3, [0, 1, "is_sleeping", []])
    assert front.quiet()
    assert started.process.poll() is None and "cannot read a message" in started.output()


def test_strict_goes_deaf_on_garbage_and_on_the_wrong_adapter(join: Join, front: Front) -> None:
    join("--strict")
    lora = ["name", 1, "/path", None, None, False, False]
    front.send(0, ["x", [1], None, {}, None, 1.0, lora, None, None])
    front.add("after", max_tokens=1)
    assert front.quiet()


@pytest.mark.parametrize("request_fields", [{"prompt": [5] * 64}, {"prompt": [90]}, {"prompt": [-1]}])
def test_strict_dies_of_a_bad_prompt(join: Join, front: Front, request_fields: dict[str, Any]) -> None:
    started = join("--strict", "--max-model-len", "64", "--vocab", "90")
    front.add("x", **request_fields)
    assert front.receive(front.outputs[0]) == [DEAD]
    assert started.process.wait(20) == 1


def test_strict_dies_of_a_duplicate(join: Join, front: Front) -> None:
    started = join("--strict", "--step-ms", "2")
    front.add("x", max_tokens=1)
    front.drain("x")
    front.add("x", max_tokens=10_000)
    front.message()
    front.add("x", max_tokens=10_000)
    while (frames := front.receive(front.outputs[0])) != [DEAD]:
        assert frames
    assert started.process.wait(20) == 1


def test_strict_takes_what_real_frontends_send(join: Join, front: Front, shared: Path) -> None:
    join("--strict", "--max-model-len", "40960", "--stats")
    names = []
    for file in sorted((shared / "wire/golden").glob("*_add_*.json")):
        golden = json.loads(file.read_text())
        frames = [bytes.fromhex(frame) for frame in golden["frames_hex"]]
        front.inputs[0].send_multipart([b"\x00\x00", *frames])
        names.append(golden["decoded"][1][0])
        front.drain(names[-1])
    assert len(names) > 20


def test_lenient_says_what_is_wrong_and_goes_on(join: Join, front: Front) -> None:
    started = join()
    front.send(0, b"\xc1")
    front.send(9, [])
    front.send(3, [0, 1])
    front.send(1, {"a": 1})
    front.add("x", client=0, max_tokens=1, temperature=99.0)
    front.drain("x")
    assert started.output().count("cannot read a message") == 4
