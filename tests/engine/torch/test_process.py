"""The engine's process against a frontend that speaks the wire by hand: everything but the model is real."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start, Started
from tests.engine.front import DEAD, Front
from tests.engine.torch.fake import greedy

Own = Callable[..., tuple[Front, Started]]
GREEDY: Any = {"temperature": 0.0}
ENGINE = ("-m", "tests.engine.torch.fake_process")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared engine writes its profiles."""
    return tmp_path_factory.mktemp("profiles") / "traces"


@pytest.fixture(scope="module")
def front(root: Path, traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A frontend for one client, with an engine that all tests here share."""
    folder = tmp_path_factory.mktemp("engine")
    with Front() as opened, (folder / "log").open("wb") as log:
        words = [sys.executable, *ENGINE, opened.address, "100", "96", str(traces)]
        process = subprocess.Popen(words, cwd=root, stdout=log, stderr=log, start_new_session=True)
        opened.join()
        yield opened
        assert Started(process, folder / "log").end() == 0, (folder / "log").read_text()


@pytest.fixture
def own(start: Start, root: Path) -> Iterator[Own]:
    """own(*words): a frontend and an engine of its own, for a test that ends it."""
    with ExitStack() as stack:

        def begin(*words: object) -> tuple[Front, Started]:
            front = stack.enter_context(Front())
            started = start([sys.executable, *ENGINE, front.address, *words], cwd=root)
            front.join()
            return front, started

        yield begin


def tokens(outputs: list[list[Any]]) -> list[int]:
    """All ids of one request's outputs."""
    return [token for output in outputs for token in output[1]]


def silent(front: Front) -> bool:
    """Whether nothing comes any more but statistics."""
    while not front.quiet():
        if front.message()[0][1]:
            return False
    return True


def test_it_joins_as_a_real_engine_does(own: Own, shared: Path) -> None:
    front, _ = own(777)
    golden = json.loads((shared / "wire/golden/06_engine_ready_response.json").read_text())["decoded"][0]
    got = front.registered[0]
    assert set(got) == set(golden)
    assert {key: type(value) for key, value in got.items()} == {key: type(value) for key, value in golden.items()}
    assert (got["max_model_len"], got["num_gpu_blocks"], got["block_size"]) == (777, 4 * 777 - 1, 4)
    assert got["kv_cache_size_tokens"] == 4 * (4 * 777 - 1)


def test_32_at_once_all_finish(front: Front) -> None:
    prompts = {f"r{n}": [n, 1, 2, 3, 4, 5, 6, 7] for n in range(32)}
    for name, prompt in prompts.items():
        front.add(name, prompt=prompt, max_tokens=20, **GREEDY)
    got = front.drain(*prompts)
    assert {name: tokens(outputs) for name, outputs in got.items()} == {
        name: greedy(prompt, 20) for name, prompt in prompts.items()
    }


def test_what_a_real_frontend_sends_is_taken(own: Own, shared: Path) -> None:
    front, _ = own(40960, 200_000)
    told = {}
    for file in sorted((shared / "wire/golden").glob("*_add_*.json")):
        golden = json.loads(file.read_text())
        fields = golden["decoded"][1]
        front.inputs[0].send_multipart([b"\x00\x00", *(bytes.fromhex(frame) for frame in golden["frames_hex"])])
        told[file.stem] = (front.drain(fields[0])[fields[0]][-1][5], fields)
    for name, (finish, fields) in told.items():
        # No model folder: no grammars; and no images, no budget for thinking.
        refused = fields[2] or fields[3].get("structured_outputs") or "thinking_token_budget" in fields[3]
        assert (finish == 3) == bool(refused), name
    assert len(told) > 20


def test_soak(front: Front) -> None:
    """Arrivals and aborts at random; nothing stays behind."""
    draw = random.Random(3)
    open_requests: dict[str, list[int]] = {}
    gone = set()
    for n in range(150):
        name = f"r{n}"
        open_requests[name] = [draw.randrange(60) for _ in range(draw.randrange(1, 60))]
        front.add(name, prompt=open_requests[name], max_tokens=draw.randrange(1, 60), **GREEDY)
        if draw.random() < 0.4:
            gone.add(draw.choice(list(open_requests)))
            front.abort(*gone)
        if draw.random() < 0.2:
            front.message()
    front.add("last", prompt=[7], max_tokens=60, **GREEDY)
    assert tokens(front.drain("last")["last"]) == greedy([7], 60)
    front.abort(*open_requests)
    # It says so only where no block is held.
    assert front.call("reset_prefix_cache", False, False)[2] == [None, True]
    assert silent(front)


def test_nothing_comes_for_an_aborted_request(front: Front) -> None:
    front.add("a", prompt=[65], max_tokens=80, **GREEDY)
    front.message()
    front.abort("a", "never heard of")
    front.call("is_sleeping")
    assert silent(front)


def test_bad_messages_hurt_nobody(own: Own) -> None:
    front, started = own()
    front.add("good", prompt=[65, 1], max_tokens=30, **GREEDY)
    front.send(0, b"\xc1")
    front.send(9, [])
    front.send(3, [0, 1])
    front.send(1, {"a": 1})
    front.add("far", client=0, max_tokens=1, temperature=99.0)
    front.add("long", prompt=[1] * 200, max_tokens=1)
    got = front.drain("good", "far", "long")
    assert got["far"][-1][1:6] == [[], None, None, None, 3] and got["long"][-1][5] == 3
    assert tokens(got["good"]) == greedy([65, 1], 30)
    output = started.output()
    assert output.count("cannot read a message") == 5 and "temperature is out of range" in output
    assert "prompt_token_ids cannot be 200 tokens (allowed: 1 to 99)" in output


# --- utility calls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "args", "want"),
    [
        ("get_supported_tasks", [], ["generate"]),
        ("reset_prefix_cache", [True, False], True),
        ("reset_mm_cache", [], None),
        ("reset_encoder_cache", [], None),
        ("is_sleeping", [], False),
        ("is_scheduler_paused", [], False),
        ("get_weight_version", [], "default"),
        ("list_loras", [], []),
        ("execute_dummy_batch", [], None),
    ],
)
def test_utility_calls(front: Front, method: str, args: list[Any], want: Any) -> None:
    assert front.call(method, *args, call_id=2**63 + 5) == [2**63 + 5, None, [None, want]]


def test_failing_utility_calls_say_why(front: Front) -> None:
    _, failure, result = front.call("no_such", 1, call_id=-77)
    assert failure == "Call to no_such method failed: 'EngineCoreProc' object has no attribute 'no_such'"
    assert result is None
    for method, args, why in (
        ("_forget", [], "no attribute"),
        ("sleep", [1, "soon"], "Invalid pause mode: soon"),
        ("sleep", [7], "level must be 0, 1 or 2"),
        ("wake_up", [["all"]], "tags must be of"),
        ("add_lora", [[]], "LoRA is not enabled"),
        ("collective_rpc", ["echo"], "no workers"),
        ("release_kv_cache_memory", [], "sleep"),
        ("reset_mm_cache", [1, 2], "positional argument"),
    ):
        assert why in front.call(method, *args)[1], method
    assert front.call("is_sleeping")[2] == [None, False]


def test_sleep_aborts_and_wake_up_goes_on(front: Front) -> None:
    front.add("a", prompt=[65], max_tokens=80, **GREEDY)
    front.message()
    front.send(3, [0, 5, "sleep", [1, "abort"]])
    last = front.drain("a")["a"][-1]
    assert (last[1], last[5]) == ([], 2)
    while (answer := front.message()[0][4]) is None:
        pass
    assert answer == [5, None, [None, None]]
    assert front.call("is_sleeping")[2][1] is True
    assert "call wake_up" in front.call("resume_scheduler")[1]
    front.add("b", prompt=[3], max_tokens=2, **GREEDY)
    assert silent(front)
    assert front.call("wake_up", ["weights"])[2][1] is False
    assert front.call("wake_up", None)[2][1] is True
    assert tokens(front.drain("b")["b"]) == greedy([3], 2)


@pytest.mark.parametrize("clear", [False, True])
def test_pause_keep_stands_still(front: Front, clear: bool) -> None:
    front.add("a", prompt=[65, 4], max_tokens=60, **GREEDY)
    front.message()
    front.send(3, [0, 1, "pause_scheduler", ["keep", clear]])
    got = []
    while (message := front.message()[0])[4] is None:
        got += message[1]
    assert silent(front)
    assert front.call("is_scheduler_paused")[2][1] is True
    front.send(3, [0, 2, "resume_scheduler", []])
    rest = front.drain("a")["a"]
    assert rest[-1][5] == 1
    # One token came before the pause, and was taken off the queue above.
    assert (tokens(got) + tokens(rest))[-50:] == greedy([65, 4], 60)[-50:]


def test_a_pause_does_not_wake_who_sleeps(front: Front) -> None:
    front.add("a", prompt=[65, 4], max_tokens=60, **GREEDY)
    front.message()
    front.send(3, [0, 1, "sleep", [1, "keep"]])
    got = []
    while (message := front.message()[0])[4] is None:
        got += message[1]
    front.send(3, [0, 2, "pause_scheduler", ["wait", False]])
    assert silent(front)
    front.send(3, [0, 3, "wake_up", [None]])
    rest = []
    while (message := front.message()[0])[4] is None or message[4][0] != 2:
        rest += message[1]
    assert rest[-1][5] == 1
    assert (tokens(got) + tokens(rest))[-50:] == greedy([65, 4], 60)[-50:]


def test_pause_wait_answers_when_all_have_ended(front: Front) -> None:
    front.add("a", prompt=[65], max_tokens=20, **GREEDY)
    front.message()
    front.send(3, [0, 9, "pause_scheduler", ["wait", True]])
    front.add("b", prompt=[6], max_tokens=1, **GREEDY)
    seen: list[str] = []
    answer = None
    while answer is None:
        message, _ = front.message()
        answer = message[4]
        seen += [output[0] for output in message[1] if output[5] is not None]
    assert seen == ["a"] and answer[0] == 9
    front.send(3, [0, 2, "resume_scheduler", []])
    front.drain("b")
    assert silent(front)


def test_a_profile_is_written(front: Front, traces: Path) -> None:
    assert front.call("profile", True, "mine", None, None)[1] is None
    assert "already" in front.call("profile", True)[1]
    front.add("a", max_tokens=3)
    front.drain("a")
    assert front.call("profile", False, None)[1] is None
    assert front.call("profile", True, "some", 1, 2)[1] is None
    front.add("b", max_tokens=8)
    front.drain("b")
    front.call("is_sleeping")
    assert sorted(file.name.split(".")[0] for file in traces.iterdir()) == ["mine", "some"]


# --- endings -------------------------------------------------------------------------------------------------------


def test_sigterm_aborts_and_ends_well(own: Own) -> None:
    front, started = own()
    front.add("a", prompt=[65], max_tokens=80)
    front.message()
    started.process.send_signal(signal.SIGTERM)
    assert front.drain("a")["a"][-1][5] == 2
    assert started.process.wait(20) == 0


def test_death_is_told(own: Own) -> None:
    front, started = own()
    front.add("a", prompt=[66, 1], max_tokens=80)
    while (frames := front.receive(front.outputs[0])) != [DEAD]:
        assert frames
    assert started.process.wait(20) == 1
    assert "CUDA error: as told" in started.output()
