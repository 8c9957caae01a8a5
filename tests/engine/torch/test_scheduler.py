"""Who runs when: budget, chunks, places, blocks, ranks; and that none of it changes a token."""

from __future__ import annotations

import random

import pytest

from fastfront.engine.torch.batch import Batch
from tests.engine.torch.fake import Bench, FakeRunner, greedy

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


def prompts(count: int, seed: int = 1, longest: int = 30) -> dict[str, list[int]]:
    """Random prompts, by request."""
    draw = random.Random(seed)
    return {f"r{n}": [draw.randrange(90) for _ in range(draw.randrange(1, longest))] for n in range(count)}


def test_alone() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=12)
    bench.run()
    assert bench.tokens("a") == greedy(PROMPT, 12)
    assert bench.finish("a") == (1, None)
    bench.check_empty()


@pytest.mark.parametrize("budget", [9, 16, 500])
def test_many_with_chunks_say_the_same_as_alone(budget: int) -> None:
    bench = Bench(FakeRunner(num_blocks=400), max_num_batched_tokens=budget)
    asked = prompts(20)
    for name, prompt in asked.items():
        bench.add(name, prompt, max_tokens=15)
    bench.run()
    for name, prompt in asked.items():
        assert bench.tokens(name) == greedy(prompt, 15), name
    for batch in bench.runner.batches:
        assert sum(batch.query_lens) <= budget and len(batch.query_lens) <= 8
    bench.check_empty()


def test_a_step_is_full_before_a_prompt_is_cut() -> None:
    bench = Bench(max_num_batched_tokens=16)
    bench.add("a", PROMPT, max_tokens=4)
    bench.add("b", [20 + n for n in range(20)], max_tokens=4)
    bench.step()
    assert bench.runner.batches[-1].query_lens == [10, 6]
    bench.step()
    # Who decodes comes first, and gets one token of the budget; the prompt takes the rest.
    assert bench.runner.batches[-1].query_lens == [1, 14]
    assert bench.runner.batches[-1].logits_rows == [0, 14]


def test_a_long_prompt_gets_on_while_others_come_and_go() -> None:
    bench = Bench(FakeRunner(num_blocks=400), max_num_seqs=4, max_num_batched_tokens=6)
    bench.add("long", [n % 90 for n in range(80)], max_tokens=2)
    steps = 0
    while not bench.tokens("long"):
        bench.add(f"short{steps}", [50 + steps % 20, 3], max_tokens=3)
        bench.step()
        steps += 1
        assert steps < 60, "the long prompt starves"
    assert bench.tokens("long") == greedy([n % 90 for n in range(80)], 1)


def test_fewer_blocks_than_needed_change_no_token() -> None:
    asked = prompts(12, seed=3, longest=20)
    runner = FakeRunner(num_blocks=27)
    bench = Bench(runner)
    for name, prompt in asked.items():
        bench.add(name, prompt, max_tokens=40)
    bench.run()
    preempted = [output for outputs in bench.outputs.values() for output in outputs if output[7]]
    assert any(event["type"] == 3 for output in preempted for event in output[7])
    assert sum(stats["prefix_cache_stats"]["preempted_requests"] for stats in bench.stats) > 0
    for name, prompt in asked.items():
        assert bench.tokens(name) == greedy(prompt, 40), name
    bench.check_empty()


def test_the_lowest_in_rank_gives_up_its_blocks() -> None:
    bench = Bench(FakeRunner(num_blocks=27))
    bench.add("late", PROMPT, max_tokens=60, priority=5)
    bench.step()
    bench.add("soon", [1, 2, 3], max_tokens=80, priority=-1)
    bench.run()
    kinds = {
        name: [event["type"] for output in outputs for event in output[7] or ()]
        for name, outputs in bench.outputs.items()
    }
    assert kinds == {"late": [1, 2, 3, 2], "soon": [1, 2]}
    assert bench.tokens("late") == greedy(PROMPT, 60) and bench.tokens("soon") == greedy([1, 2, 3], 80)


def test_the_lower_priority_value_is_let_in_first() -> None:
    bench = Bench(max_num_seqs=1)
    order = []
    bench.runner.on_run = lambda batch: order.append(batch.token_ids[0])
    for name, first, priority in (("a", 10, 3), ("b", 20, 0), ("c", 30, -2), ("d", 40, 0)):
        bench.add(name, [first], priority=priority, max_tokens=1)
    bench.run()
    assert order == [30, 20, 40, 10]


def test_a_beginning_that_is_known_is_not_computed_again() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=3)
    bench.run()
    bench.add("b", [*PROMPT, 77], max_tokens=3)
    bench.run()
    assert bench.runner.batches[3].context_lens == [8] and bench.runner.batches[3].query_lens == [3]
    assert bench.tokens("b") == greedy([*PROMPT, 77], 3)
    first = bench.outputs["b"][0][11]
    assert (first["num_prompt_tokens"], first["num_cached_tokens"], first["num_computed_tokens"]) == (11, 8, 3)
    prefix = [stats["prefix_cache_stats"] for stats in bench.stats]
    assert [(p["requests"], p["queries"], p["hits"]) for p in prefix if p["requests"]] == [(1, 10, 0), (1, 11, 8)]


def test_the_last_token_is_computed_even_where_all_is_known() -> None:
    bench = Bench()
    for name in ("a", "b"):
        bench.add(name, PROMPT[:8], max_tokens=2)
        bench.run()
    assert bench.runner.batches[2].context_lens == [4]
    assert bench.tokens("a") == bench.tokens("b") == greedy(PROMPT[:8], 2)


def test_answers_are_known_too() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=8)
    bench.run()
    turn = [*PROMPT, *bench.tokens("a"), 1, 2]
    bench.add("b", turn, max_tokens=1)
    bench.run()
    # The last token of an answer is not in the cache, so the 17 before it are.
    assert bench.outputs["b"][0][11]["num_cached_tokens"] == 16


def test_a_salt_is_shared_by_those_who_have_it() -> None:
    bench = Bench()
    for name, salt in (("a", None), ("b", "x"), ("c", "y"), ("d", "x")):
        bench.add(name, PROMPT, salt=salt, max_tokens=1)
        bench.run()
    assert [bench.outputs[name][0][11]["num_cached_tokens"] for name in "abcd"] == [0, 0, 0, 8]


def test_who_asks_not_to_read_the_cache_does_not() -> None:
    for options in ({"skip_reading_prefix_cache": True}, {"prompt_logprobs": 0}):
        bench = Bench()
        bench.add("a", PROMPT, max_tokens=1)
        bench.run()
        bench.add("b", PROMPT, max_tokens=1, **options)
        bench.run()
        assert bench.outputs["b"][0][11]["num_cached_tokens"] == 0


def test_no_cache_at_all() -> None:
    bench = Bench(caching=False)
    for name in ("a", "b"):
        bench.add(name, PROMPT, max_tokens=1)
        bench.run()
    assert bench.outputs["b"][0][11]["num_cached_tokens"] == 0
    assert not any(stats["prefix_cache_stats"]["requests"] for stats in bench.stats)


def test_one_prompt_many_times_at_once_is_computed_once() -> None:
    bench = Bench(FakeRunner(num_blocks=400), max_num_batched_tokens=200)
    for n in range(8):
        bench.add(f"r{n}", [*PROMPT, n], max_tokens=2)
    bench.run()
    assert bench.runner.batches[0].query_lens == [11]
    assert bench.runner.batches[1].query_lens == [1, *[3] * 7]
    for n in range(8):
        assert bench.tokens(f"r{n}") == greedy([*PROMPT, n], 2)


def test_an_abort_at_any_moment_frees_all() -> None:
    for moment in range(14):
        bench = Bench(FakeRunner(num_blocks=27), max_num_seqs=3, max_num_batched_tokens=7)
        for n in range(5):
            bench.add(f"r{n}", [n, *PROMPT], max_tokens=30)
        for _ in range(moment):
            bench.step()
        for n in range(5):
            bench.engine.abort([f"r{n}", "unknown", f"r{n}"])
            bench.step()
        assert not bench.engine.runnable
        bench.check_empty()


def test_nothing_is_said_of_what_was_aborted() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=50)
    bench.add("b", PROMPT, max_tokens=10)
    bench.step()
    bench.step()
    before = len(bench.outputs["a"])
    bench.engine.abort(["a"])
    bench.run()
    assert len(bench.outputs["a"]) == before and bench.tokens("b") == greedy(PROMPT, 10)
    assert bench.stats[-1]["num_running_reqs"] == 0


def test_a_reset_waits_for_no_one_if_it_may_preempt() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=20)
    for _ in range(5):
        bench.step()
    scheduler = bench.engine.scheduler
    assert not scheduler.reset_cache(running=False)
    assert scheduler.reset_cache(running=True)
    bench.runner.cache[:] = -1
    bench.run()
    assert bench.tokens("a") == greedy(PROMPT, 20)
    assert [stats["prefix_cache_stats"]["reset"] for stats in bench.stats].count(True) == 1
    bench.check_empty()


def test_paused_none_is_let_in_and_frozen_none_goes_on() -> None:
    bench = Bench()
    bench.add("a", PROMPT, max_tokens=6)
    bench.step()
    bench.engine.scheduler.paused = True
    bench.add("b", PROMPT, max_tokens=6)
    bench.step()
    assert len(bench.tokens("a")) == 2 and not bench.tokens("b")
    bench.engine.scheduler.frozen = True
    bench.step()
    assert len(bench.tokens("a")) == 2 and not bench.engine.runnable
    bench.engine.scheduler.paused = bench.engine.scheduler.frozen = False
    bench.run()
    assert bench.tokens("a") == bench.tokens("b") == greedy(PROMPT, 6)


def test_who_was_preempted_goes_on_in_a_pause() -> None:
    bench = Bench(FakeRunner(num_blocks=27))
    for n in range(4):
        bench.add(f"r{n}", [n, *PROMPT], max_tokens=30)
    bench.step()
    bench.step()
    assert len(bench.engine.scheduler.running) == 4
    bench.engine.scheduler.paused = True
    bench.add("late", PROMPT, max_tokens=1)
    while bench.engine.scheduler.started:
        bench.step()
    assert any(event["type"] == 3 for output in bench.outputs["r3"] for event in output[7] or ())
    assert [bench.tokens(f"r{n}") for n in range(4)] == [greedy([n, *PROMPT], 30) for n in range(4)]
    assert "late" not in bench.outputs
    bench.run()
    assert "late" not in bench.outputs


def test_soak() -> None:
    """Arrivals, aborts, resets and failing steps at random; whoever is left says what it would alone."""
    draw = random.Random(20)
    runner = FakeRunner(num_blocks=30, max_model_len=80)
    bench = Bench(runner, max_num_seqs=6, max_num_batched_tokens=20)

    def stumble(batch: Batch) -> None:
        if len(batch.query_lens) > 1 and draw.random() < 0.03:
            raise ValueError("a step that fails")

    runner.on_run = stumble
    asked: dict[str, tuple[list[int], int]] = {}
    gone = set()
    for n in range(1200):
        if draw.random() < 0.25:
            start = draw.choice(([1, 2, 3, 4, 5, 6, 7, 8, 9], [40] * 12, []))
            prompt = start + [draw.randrange(90) for _ in range(draw.randrange(1, 20))]
            asked[f"r{n}"] = prompt, draw.randrange(1, 40)
            bench.add(f"r{n}", prompt, max_tokens=asked[f"r{n}"][1], priority=draw.randrange(3))
        if draw.random() < 0.08 and asked:
            name = draw.choice(list(asked))
            if not bench.outputs.get(name) or bench.outputs[name][-1][5] is None:
                gone.add(name)
                bench.engine.abort([name])
        if draw.random() < 0.01:
            bench.engine.scheduler.reset_cache(running=draw.random() < 0.5)
        bench.step()
        held = {block for request in bench.engine.scheduler.running for block in request.blocks}
        assert bench.engine.pool.free == bench.engine.pool.size - len(held)
    bench.run()
    bench.check_empty()
    assert len(gone) > 20 and len(asked) > 200
    for name, (prompt, count) in asked.items():
        want = greedy(prompt, min(count, 80 - len(prompt)))
        got = bench.tokens(name)
        assert got == (want[: len(got)] if name in gone else want), name
