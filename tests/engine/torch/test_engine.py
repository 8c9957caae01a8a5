"""What an engine says of its requests: ends, log-probabilities, statistics, and errors that stay with one request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from fastfront.engine.extras import read_extras, read_rows
from fastfront.engine.torch.batch import Batch
from fastfront.errors import StartError
from fastfront.fast import walk_outputs
from tests.engine.test_mock import shape
from tests.engine.torch.fake import VOCAB, Bench, FakeRunner, adding, greedy, logits_after

PROMPT = [5, 6, 7, 8, 9, 10]


def logprobs_after(tokens: list[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Log-probabilities of all tokens."""
    values = logits_after(tokens).astype(np.float64)
    values = values - values.max()
    shifted: np.ndarray[Any, np.dtype[np.float64]] = values - np.log(np.exp(values).sum())
    return shifted


# --- ends ----------------------------------------------------------------------------------------------------------


def test_how_requests_end() -> None:
    answer = greedy(PROMPT, 20)
    bench = Bench(FakeRunner(num_blocks=200, max_model_len=30))
    bench.add("eos", PROMPT, _eos_token_id=answer[3], stop_token_ids=[answer[3]])
    bench.add("stop", PROMPT, stop_token_ids=[answer[5], 10_000])
    bench.add("length", PROMPT, max_tokens=4)
    bench.add("default", PROMPT)
    bench.add("model", PROMPT, max_tokens=None)
    bench.add("none", PROMPT, ignore_eos=True, max_tokens=6)
    bench.run()
    assert {name: (len(bench.tokens(name)), *bench.finish(name)) for name in bench.outputs} == {
        "eos": (4, 0, None),
        "stop": (6, 0, answer[5]),
        "length": (4, 1, None),
        "default": (16, 1, None),
        "model": (24, 1, None),
        "none": (6, 1, None),
    }
    assert bench.tokens("stop") == answer[:6]
    bench.check_empty()


def test_min_tokens_holds_the_end_back() -> None:
    answer = greedy(PROMPT, 2)
    bench = Bench()
    bench.add("a", PROMPT, _eos_token_id=answer[1], _all_stop_token_ids=[answer[1]], min_tokens=9, max_tokens=40)
    bench.run()
    tokens = bench.tokens("a")
    assert len(tokens) > 9 and answer[1] not in tokens[:9]


def test_an_answer_that_repeats_itself_ends() -> None:
    pattern = {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 3}
    bench = Bench()
    bench.add("a", PROMPT, allowed_token_ids=[7], max_tokens=40, repetition_detection=pattern)
    bench.add("b", PROMPT, allowed_token_ids=[7], max_tokens=40, min_tokens=6, repetition_detection=pattern)
    bench.run()
    assert (len(bench.tokens("a")), bench.finish("a")) == (3, (4, "repetition_detected"))
    assert (len(bench.tokens("b")), bench.finish("b")) == (6, (4, "repetition_detected"))


def test_seeds_repeat_whatever_else_runs() -> None:
    def answers(*names: str, blocks: int = 400) -> dict[str, list[int]]:
        bench = Bench(FakeRunner(num_blocks=blocks), max_num_seqs=32)
        for name in names:
            bench.add(name, PROMPT, seed=int(name), temperature=1.0, top_p=0.9, max_tokens=20)
        bench.run()
        return {name: bench.tokens(name) for name in names}

    names = [str(n) for n in range(32)]
    together = answers(*names)
    assert together == answers(*reversed(names))
    assert together["7"] == answers("7")["7"] and together["7"] != together["8"]
    assert together == answers(*names, blocks=45), "preemption changes a token"


def test_answers_without_a_seed_differ_but_for_the_engines_own() -> None:
    def answers(seed: int) -> list[list[int]]:
        bench = Bench(seed=seed)
        for name in ("a", "b"):
            bench.add(name, PROMPT, temperature=1.0, max_tokens=10)
        bench.run()
        return [bench.tokens("a"), bench.tokens("b")]

    assert answers(1) == answers(1) != answers(2)
    assert answers(1)[0] != answers(1)[1]


# --- log-probabilities ---------------------------------------------------------------------------------------------


def rows(output: list[Any], place: int, frames: list[bytes]) -> Any:
    """An output's rows as fastfront's own frontend reads them."""
    return read_rows(output[place], frames)


def test_logprobs_of_an_answer() -> None:
    bench = Bench()
    bench.add("top", PROMPT, max_tokens=3, logprobs=2)
    bench.add("asked", PROMPT, max_tokens=1, logprob_token_ids=[7, 3])
    bench.add("all", PROMPT, max_tokens=1, logprobs=-1)
    bench.add("own", PROMPT, max_tokens=1, logprobs=0, temperature=0.5, seed=3, allowed_token_ids=[40])
    bench.run()
    history = list(PROMPT)
    outputs = bench.outputs["top"]
    for output in outputs:
        want = logprobs_after(history)
        order = np.argsort(-want)
        got = rows(output, 2, bench.frames[0])
        assert list(got.ids) == [output[1][0], *order[:2]] and list(got.ranks) == [1]
        assert list(got.logprobs) == pytest.approx([want[output[1][0]], *want[order[:2]]], abs=1e-5)
        history.append(output[1][0])
    want = logprobs_after(PROMPT)
    got = rows(bench.outputs["asked"][0], 2, bench.frames[0])
    assert list(got.ids) == [greedy(PROMPT, 1)[0], 7, 3]
    assert list(got.logprobs)[1:] == pytest.approx([want[7], want[3]], abs=1e-5)
    full = next(frames for frames in bench.frames if len(frames) > 1)
    got = rows(bench.outputs["all"][0], 2, full)
    assert got.width == VOCAB + 1 and sorted(got.ids[1:]) == list(range(VOCAB))
    assert list(got.logprobs)[1:] == pytest.approx(sorted(want, reverse=True), abs=1e-5)
    # They are those before any parameter was applied.
    got = rows(bench.outputs["own"][0], 2, bench.frames[0])
    assert (list(got.ids), list(got.ranks)) == ([40], [int((want >= want[40]).sum())])
    assert list(got.logprobs) == pytest.approx([want[40]], abs=1e-5)


@pytest.mark.parametrize("budget", [4, 9, 100])
def test_logprobs_of_a_prompt(budget: int) -> None:
    prompt = [n * 7 % 90 for n in range(30)]
    bench = Bench(max_num_seqs=3, max_num_batched_tokens=budget)
    bench.add("other", [1, 2, 3], max_tokens=20)
    bench.add("a", prompt, max_tokens=2, prompt_logprobs=2, logprobs=1)
    bench.run()
    first, second = bench.outputs["a"]
    frames = next(frames for frames in bench.frames if len(frames) > 1)
    assert len(first[3]) == 5 and first[3][3:] == [None, None] and second[3] is None
    assert [part[0] for part in first[3][:3]] == ["int32", "float32", "int32"]
    assert [part[0] for part in first[2][:3]] == ["<i4", "<f4", "<i8"]
    got = rows(first, 3, frames)
    assert got.width == 3 and len(got.ranks) == 29
    for n in range(29):
        want = logprobs_after(prompt[: n + 1])
        assert list(got.ids[3 * n : 3 * n + 3]) == [prompt[n + 1], *np.argsort(-want)[:2]]
        assert got.logprobs[3 * n] == pytest.approx(want[prompt[n + 1]], abs=1e-5)
        assert got.ranks[n] == (want >= want[prompt[n + 1]]).sum()
    assert bench.tokens("a") == greedy(prompt, 2)


def test_a_prompt_of_one_token_has_no_logprobs_of_its_own() -> None:
    bench = Bench()
    bench.add("a", [5], max_tokens=1, prompt_logprobs=1)
    bench.run()
    assert bench.outputs["a"][0][3] is None


def test_prompt_logprobs_take_small_steps() -> None:
    bench = Bench(FakeRunner(num_blocks=400, max_model_len=1000), max_num_batched_tokens=2000)
    bench.add("a", [n % 90 for n in range(700)], max_tokens=1, prompt_logprobs=0)
    bench.run()
    assert [batch.query_lens for batch in bench.runner.batches] == [[256], [256], [188]]
    assert bench.outputs["a"][0][3][0][1] == [699, 1]


# --- as a real engine writes it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("golden", "params"),
    [("36_out_first_token", {"max_tokens": 2}), ("43_out_logprobs_inline", {"max_tokens": 2, "logprobs": 2})],
)
def test_messages_are_those_of_a_real_engine(shared: Path, golden: str, params: dict[str, Any]) -> None:
    want = json.loads((shared / f"wire/golden/{golden}.json").read_text())["frames_hex"][0]
    bench = Bench()
    bench.add("cmpl-1", PROMPT, **params)
    bench.step()
    got = msgspec.msgpack.decode(bench.frames[0][0])
    assert shape(got) == shape(msgspec.msgpack.decode(bytes.fromhex(want)))
    assert list(got[1][0][11]) == list(msgspec.msgpack.decode(bytes.fromhex(want))[1][0][11])


def test_plain_outputs_are_written_as_all_others() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=4)
    bench.add("traced", PROMPT, max_tokens=4)
    bench.engine._requests["traced"].trace_headers = {"traceparent": "x"}
    bench.run()
    for plain, traced in zip(bench.outputs["a"][1:], bench.outputs["traced"][1:], strict=True):
        assert len(plain) == len(traced) == 18 and traced[10] == {"traceparent": "x"}
        assert [field for at, field in enumerate(plain) if at not in (0, 10)] == [
            field for at, field in enumerate(traced) if at not in (0, 10)
        ]


def test_the_frontend_reads_what_is_written(fast: Any) -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=3, logprobs=1)
    bench.run()
    for frames in bench.frames:
        read = fast.walk_outputs(frames[0])
        assert read.error is None and read.engine_index == 0
    (output,) = walk_outputs(bench.frames[0][0]).outputs
    extras = read_extras(output.raw or b"")
    assert extras.prefill is not None and extras.prefill.num_cached_tokens == 0


def test_each_client_has_its_own_message() -> None:
    bench = Bench()
    for name, client in (("a", 0), ("b", 1)):
        add = adding(name, PROMPT, max_tokens=1)
        add.client_index = client
        bench.engine.add(add)
    messages = bench.engine.step() + bench.engine.step()
    told = {client: msgspec.msgpack.decode(frames[0]) for client, frames in messages}
    assert {client: [output[0] for output in message[1]] for client, message in told.items()} == {0: ["a"], 1: ["b"]}


def test_statistics_follow_the_requests() -> None:
    bench = Bench(max_num_seqs=1)
    bench.add("a", PROMPT, max_tokens=5)
    bench.add("b", PROMPT, max_tokens=1)
    bench.step()
    first = bench.stats[0]
    assert (first["num_running_reqs"], first["num_waiting_reqs"]) == (1, 1)
    assert first["kv_cache_usage"] == pytest.approx(2 / 39)
    bench.engine.abort(["a", "b"])
    assert bench.engine.runnable
    bench.run()
    assert (bench.stats[-1]["num_running_reqs"], bench.stats[-1]["kv_cache_usage"]) == (0, 0.0)
    assert msgspec.msgpack.decode(bench.frames[-1][0])[1] == []


def test_no_statistics_unless_asked() -> None:
    bench = Bench(log_stats=False)
    bench.add("a", PROMPT, max_tokens=2)
    bench.run()
    assert not bench.stats and bench.outputs["a"][0][7] is None and bench.outputs["a"][0][11] is not None


def test_the_version_of_the_weights() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=2)
    bench.step()
    bench.engine.set_weight_version("v2")
    bench.step()
    assert [msgspec.msgpack.decode(frames[0])[8] for frames in bench.frames] == ["default", "v2"]


# --- errors --------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("prompt_token_ids", {"prompt": [1] * 100}),
    ("prompt_token_ids", {"prompt": [VOCAB]}),
    ("prompt_token_ids", {"prompt": [-1]}),
    ("allowed_token_ids", {"allowed_token_ids": []}),
    ("allowed_token_ids", {"allowed_token_ids": [1, VOCAB]}),
    ("logit_bias", {"logit_bias": {-1: 1.0}}),
    ("bad_words", {"_bad_words_token_ids": [[]]}),
    ("bad_words", {"_bad_words_token_ids": [[1, 4000]]}),
    ("logprobs", {"logprobs": VOCAB + 1}),
    ("logprob_token_ids", {"logprob_token_ids": [VOCAB]}),
    ("thinking_token_budget", {"thinking_token_budget": 3}),
    ("prompt_logprob_start", {"prompt_logprob_start": 3}),
]


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_what_is_refused_is_named(name: str, options: dict[str, Any]) -> None:
    bench = Bench()
    bench.add("good", PROMPT, max_tokens=2)
    bench.add("bad", **{"prompt": PROMPT, **options})
    assert bench.finish("bad") == (3, None) and bench.tokens("bad") == []
    assert name in bench.said[0] and "bad" in bench.said[0]
    bench.run()
    assert bench.tokens("good") == greedy(PROMPT, 2)
    bench.check_empty()


@pytest.mark.parametrize(
    ("place", "value"),
    [(2, [{}]), (4, [None]), (6, ["n", 1, "/p", None, False, False]), (15, True)],
    ids=["multimodal", "pooling", "lora", "resumable"],
)
def test_requests_of_other_kinds_are_refused(place: int, value: Any) -> None:
    bench = Bench()
    fields = msgspec.to_builtins(adding("x", PROMPT))
    fields[3] = {}
    fields[place] = value
    bench._take(bench.engine.add(msgspec.convert(fields, type(adding("y", PROMPT)))))
    assert bench.finish("x") == (3, None) and "not served by the built-in engine" in bench.said[0]


def test_a_name_that_is_taken() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=3)
    bench.step()
    bench.add("a", [1], max_tokens=9)
    bench.run()
    assert bench.tokens("a") == greedy(PROMPT, 3) and "dropped" in bench.said[0]
    bench.check_empty()


def test_a_request_that_breaks_a_step_ends_alone() -> None:
    bench = Bench()

    def poison(batch: Batch) -> None:
        if 66 in batch.token_ids:
            raise ValueError("poison")

    bench.runner.on_run = poison
    for n in range(5):
        bench.add(f"r{n}", [n, 66 if n == 2 else 65], max_tokens=5)
    bench.run()
    assert bench.finish("r2") == (3, None) and "poison" in bench.said[0]
    for n in (0, 1, 3, 4):
        # Its own answer may say the word, too.
        want = greedy([n, 65], 5)
        assert bench.tokens(f"r{n}") == want[: want.index(66) + 1 if 66 in want else 5]
    bench.check_empty()


def test_too_little_memory_for_all_at_once() -> None:
    bench = Bench(FakeRunner(num_blocks=200))

    def small(batch: Batch) -> None:
        if len(batch.query_lens) > 3:
            raise torch.OutOfMemoryError("too many")

    bench.runner.on_run = small
    for n in range(8):
        bench.add(f"r{n}", [n, *PROMPT], max_tokens=5)
    bench.run()
    assert {bench.finish(f"r{n}") for n in range(8)} == {(1, None)}
    assert bench.tokens("r7") == greedy([7, *PROMPT], 5)
    assert bench.engine.scheduler.max_num_seqs == 3 and "out of memory" in bench.said[-1]
    bench.check_empty()


def test_too_little_memory_for_one() -> None:
    bench = Bench()

    def small(batch: Batch) -> None:
        if max(batch.query_lens) > 8:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")

    bench.runner.on_run = small
    bench.add("big", list(range(20)), max_tokens=5)
    bench.add("small", PROMPT, max_tokens=5)
    bench.run()
    assert bench.finish("big") == (3, None)
    assert bench.tokens("small") == greedy(PROMPT, 5)
    bench.check_empty()


def test_a_device_that_is_gone_ends_the_engine() -> None:
    bench = Bench()

    def broken(batch: Batch) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    bench.runner.on_run = broken
    bench.add("a", PROMPT)
    with pytest.raises(RuntimeError):
        bench.step()


def test_a_request_without_a_possible_token_ends() -> None:
    bench = Bench()
    bench.add("a", PROMPT, allowed_token_ids=[4], _bad_words_token_ids=[[4]])
    bench.add("b", PROMPT, max_tokens=2)
    bench.run()
    assert bench.finish("a") == (3, None) and "no token" in bench.said[0]
    assert bench.tokens("b") == greedy(PROMPT, 2)


def test_a_cache_smaller_than_a_sequence_is_told_at_start() -> None:
    with pytest.raises(StartError, match="--max-model-len"):
        Bench(FakeRunner(num_blocks=10, max_model_len=100))


def test_ending_all_says_so() -> None:
    bench = Bench(max_num_seqs=1)
    for name in "abc":
        bench.add(name, PROMPT, max_tokens=50)
    bench.step()
    bench._take(bench.engine.abort_all())
    assert {bench.finish(name) for name in "abc"} == {(2, None)}
    assert sorted(msgspec.msgpack.decode(bench.frames[-1][0])[5]) == ["a", "b", "c"]
    bench.check_empty()
