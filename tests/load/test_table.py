"""What is printed, to the letter: scripts read it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fastfront.errors import ConfigError
from fastfront.load.metrics import NAMES, Stats, Summary
from fastfront.load.options import Load, Target, Traffic, Wanted
from fastfront.load.record import Record
from fastfront.load.result import read, result, save
from fastfront.load.several import compared, runs_table, sweep_table
from fastfront.load.steady import Steady
from fastfront.load.table import errors, table, talks_table

STATS = Stats(1.25, 1.0, 0.5, {99.0: 2.345, 50.0: 1.0, 90.0: 2.0})
SUMMARY = Summary(2.0, 10, 1, 1000, 400, 4.5, 250.0, 7, dict.fromkeys(NAMES, STATS))
STEADY = Steady(0.5, 1.5, 4, 0.95, 4, 4, 8, 7, 10, "short", 7.0, 800.0, 300.0, STATS, STATS)
LOAD = Load(target=Target(), traffic=Traffic(rate=5.0, max_concurrency=4), wanted=Wanted(metrics=("ttft", "itl")))

PRINTED = """\
================= Serving Benchmark Result =================
Successful requests:                     10        
Failed requests:                         1         
Maximum request concurrency:             4         
Request rate configured (RPS):           5.00      
Benchmark duration (s):                  2.00      
Total input tokens:                      1000      
Total generated tokens:                  400       
Request throughput (req/s):              5.00      
Request goodput (req/s):                 4.50      
Output token throughput (tok/s):         200.00    
Peak output token throughput (tok/s):    250.00    
Peak concurrent requests:                7.00      
Total token throughput (tok/s):          700.00    
--------------------Time to First Token---------------------
Mean TTFT (ms):                          1.25      
Median TTFT (ms):                        1.00      
P99 TTFT (ms):                           2.35      
--------------------Inter-token Latency---------------------
Mean ITL (ms):                           1.25      
Median ITL (ms):                         1.00      
P99 ITL (ms):                            2.35      
============================================================
"""  # noqa: W291
STEADY_PRINTED = """\
Warning: short
============ Steady-State Metrics =============
Concurrency threshold:              >= 0.95 * 4 = 4
Window:                             0.5s -> 1.5s  (1.0s)
Observed peak concurrency:          4
Requests started in window:         8 / 10 (80.0%)
Requests completed in window:       7
-----------------------------------------------
Request throughput (req/s):         7.00
Output token throughput (tok/s):    300.00
Input token throughput (tok/s):     800.00
Total token throughput (tok/s):     1100.00
-----------------------------------------------
Mean TTFT (ms):                     1.25
Median TTFT (ms):                   1.00
P50 TTFT (ms):                      1.00
P90 TTFT (ms):                      2.00
P99 TTFT (ms):                      2.35
-----------------------------------------------
Mean TPOT (ms):                     1.25
Median TPOT (ms):                   1.00
P50 TPOT (ms):                      1.00
P90 TPOT (ms):                      2.00
P99 TPOT (ms):                      2.35
===============================================
"""


def test_the_table() -> None:
    assert table(SUMMARY, LOAD) == PRINTED
    assert table(SUMMARY, LOAD, STEADY) == PRINTED + STEADY_PRINTED


def test_what_was_not_asked_for_has_no_line() -> None:
    plain = table(SUMMARY._replace(goodput=None), Load(target=Target(), wanted=Wanted(percentiles=(90.0, 50.0))))
    names = [line.partition(":")[0] for line in plain.splitlines() if ":" in line]
    assert names[:4] == ["Successful requests", "Failed requests", "Benchmark duration (s)", "Total input tokens"]
    assert "Request goodput (req/s)" not in names
    assert [name for name in names if "E2EL" in name] == [
        "Mean E2EL (ms)", "Median E2EL (ms)", "P90 E2EL (ms)", "P50 E2EL (ms)"
    ]  # fmt: skip


def test_conversations() -> None:
    lines = talks_table(SUMMARY, [SUMMARY, SUMMARY], {"Concurrency": "4"}, Wanted(metrics=("tpot",))).splitlines()
    assert lines[:3] == [
        "=============== Multi-Turn Benchmark Result ================",
        "Concurrency:                                  4",
        "------------------- Overall (All Turns) --------------------",
    ]
    assert lines.count("----------Time per Output Token (excl. 1st token)-----------") == 3
    assert lines[3 + 12] == "------------------- Turn 1 (11 samples) --------------------"


def test_errors_are_told_once() -> None:
    records = [Record() for _ in range(30)]
    assert errors(records) == ""
    for number, record in enumerate(records[:14]):
        record.error = f"no {max(0, number - 2)}"
    told = errors(records).splitlines()
    assert told[0] == "Failed requests during benchmark run detected (capping to 10):"
    assert told[1] == "Error 0: no 0 (3x)"
    assert len(told) == 11


def test_the_json_has_vllms_keys() -> None:
    found = result(SUMMARY, LOAD, STEADY)
    assert found | {"steady_state": None} == {
        "num_prompts": 1000, "request_rate": 5.0, "burstiness": 1.0, "max_concurrency": 4, "duration": 2.0,
        "completed": 10, "failed": 1, "total_input_tokens": 1000, "total_output_tokens": 400,
        "request_throughput": 5.0, "request_goodput": 4.5, "input_throughput": 500.0, "output_throughput": 200.0,
        "total_token_throughput": 700.0, "mean_ttft_ms": 1.25, "median_ttft_ms": 1.0, "std_ttft_ms": 0.5,
        "p99_ttft_ms": 2.345, "mean_itl_ms": 1.25, "median_itl_ms": 1.0, "std_itl_ms": 0.5, "p99_itl_ms": 2.345,
        "max_output_tokens_per_s": 250.0, "max_concurrent_requests": 7, "steady_state": None,
    }  # fmt: skip
    assert found["steady_state"]["window"]["requests_started_in_window"] == 8
    assert found["steady_state"]["p90_tpot_ms"] == 2.0
    ramp = Load(target=Target(), traffic=Traffic(ramp=("linear", 1.0, 2.0), burstiness=math.inf))
    found = result(SUMMARY, ramp)
    assert (found["request_rate"], found["burstiness"], found["ramp_up_strategy"]) == ("inf", "inf", "linear")
    assert (found["ramp_up_start_rps"], found["ramp_up_end_rps"]) == (1.0, 2.0)


def test_result_files(tmp_path: Path) -> None:
    path = tmp_path / "new" / "r.json"
    save(path, [{"completed": 1}], append=False)
    save(path, [{"completed": 2}], append=True)
    assert path.read_text() == '{"completed": 1}\n{"completed": 2}'
    assert read(path) == {"completed": 2}
    save(path, [{"completed": 3}], append=False)
    assert path.read_text() == '{"completed": 3}'
    for text in ("", "[]", '{"x": 1}'):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"result in|holds no result"):
            read(path)
    with pytest.raises(ConfigError, match="cannot write the result"):
        save(path / "below", [], append=False)


SWEEP = """\
Max Concurrency           Req/s      Tok/s  Total tok/s   SS req/s SS out tok/s P50 TTFT(ms) P50 TPOT(ms) P90 TTFT(ms) \
P90 TPOT(ms) Failed
-------------------- ---------- ---------- ------------ ---------- ------------ ------------ ------------ ------------ \
------------ ------
concurrency=1              5.00     200.00       700.00       7.00       300.00         1.00         1.00         2.00 \
        2.00      1
concurrency=4             20.00     800.00      2800.00          -            -         1.00         1.00         2.00 \
        2.00      1
"""


def test_a_sweep() -> None:
    points = [("concurrency=1", SUMMARY, STEADY), ("concurrency=4", SUMMARY._replace(duration=0.5), None)]
    first, *lines, last, best = sweep_table("Max Concurrency", points, ()).splitlines()
    assert "\n".join(lines) + "\n" == SWEEP
    assert first == f"{' Sweep Summary ':=^{len(lines[0])}}"
    assert last == "=" * len(lines[0])
    assert best == "Best throughput: 20.00 req/s at concurrency=4"
    assert "P99 TTFT(ms)" in sweep_table("x", points, (99.0,))


def test_repeated_runs() -> None:
    one = result(SUMMARY, LOAD)
    lines = runs_table([one, one | {"request_throughput": 7.0}]).splitlines()
    assert lines[1] == "Metric                                    Mean        Std        Min        Max"
    assert lines[3] == "Request throughput (req/s)                6.00       1.00       5.00       7.00"
    assert "Mean ITL (ms)                             1.25       0.00       1.25       1.25" in lines


def test_two_results_side_by_side() -> None:
    one = result(SUMMARY, LOAD, STEADY) | {"model_id": "m", "date": "today"}
    two = one | {"request_throughput": 7.5, "mean_ttft_ms": 2.5, "request_goodput": None, "failed": 0}
    lines = compared(one, two, "a.json", "b.json").splitlines()
    assert lines[1] == "  A: a.json (model: m, date: today)"
    assert "Request throughput (req/s)                  5.00         7.50      +2.50    +50.0%+    1.500" in lines
    assert "Mean TTFT (ms)                              1.25         2.50      +1.25   +100.0%-    2.000" in lines
    assert "Median TTFT (ms)                            1.00         1.00      +0.00     +0.0%     1.000" in lines
    assert "Failed requests                             1.00         0.00      -1.00   -100.0%+    0.000" in lines
    assert not any("goodput" in line for line in lines)
    assert any(line.startswith("Steady Mean TPOT (ms)") for line in lines)
    back = compared(two, one, "b", "a").splitlines()
    assert "Failed requests                             0.00         1.00      +1.00         --        -" in back
