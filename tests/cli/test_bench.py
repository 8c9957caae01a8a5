"""`fastfront bench serve`: its flags against vLLM's, what becomes of them, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastfront.cli.bench import run
from fastfront.cli.bench_flags import BENCH
from fastfront.cli.bench_plan import Plan, read_plan
from fastfront.cli.flags import KINDS, Flag
from fastfront.errors import ConfigError
from fastfront.load import options
from fastfront.load.options import Load, Turns

RECORDS: dict[str, type] = {
    "target": options.Target, "data": options.Data, "asking": options.Asking, "traffic": options.Traffic,
    "turns": options.Turns, "wanted": options.Wanted, "load": options.Load, "plan": Plan,
}  # fmt: skip
#: Supported flags of which bench_plan.py makes a field that has another form.
MADE = {
    "backend", "host", "port", "insecure", "input_len", "output_len", "random_range_ratio", "no_oversample",
    "disable_shuffle", "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps", "multi_turn", "multi_turn_delay_ms",
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "goodput",
    "no_steady_state",
}  # fmt: skip


def plan(line: str) -> Plan:
    return read_plan(line.split())


def load(line: str) -> Load:
    return plan(line).load


def test_every_flag_of_vllm_rs_is_there(shared: Path) -> None:
    text = (shared / "features" / "bench_help.txt").read_text()
    theirs = set(re.findall(r"^ {6}(--[a-z0-9-]+)", text, re.MULTILINE)) - {"--help"}
    assert len(theirs) > 100
    # Of a switch that is on by itself, vllm-rs lists both forms.
    assert theirs - {"--no-self-timed"} == {flag.option for flag in BENCH}


def test_the_defaults_are_theirs(shared: Path) -> None:
    text = (shared / "features" / "bench_help.txt").read_text()
    flags = {flag.option: flag for flag in BENCH if flag.status == "supported"}
    found = 0
    for option, body in re.findall(r"^ {6}(--[a-z0-9-]+)[^\n]*\n((?: {10}[^\n]*\n)+)", text, re.MULTILINE):
        told = re.search(r"\[default: ([^\]]+)\]", body)
        if told and option in flags:
            kind, default = KINDS[flags[option].kind], flags[option].default
            assert default == kind.read(told[1]) or str(default) == told[1], option
            found += 1
    assert found > 25


@pytest.mark.parametrize("flag", BENCH, ids=lambda flag: flag.name)
def test_a_flag_is_what_it_says(flag: Flag) -> None:
    assert flag.help
    if flag.default is not None and flag.kind != "anything":
        assert KINDS[flag.kind].fits(flag.default)
    if flag.status != "supported" or flag.name in MADE:
        assert not flag.field
        return
    section, _, name = flag.field.partition(".")
    fields = {field.name: field for field in dataclasses.fields(RECORDS[section])}
    own = fields[name].default
    if own is not dataclasses.MISSING and flag.default not in (None, ()) and name not in ("base_url", "endpoint"):
        assert own in (flag.default, tuple(flag.default) if isinstance(flag.default, list) else flag.default)


@pytest.mark.parametrize(
    "line, section, fields",
    [
        ("", "target", {"base_url": "http://127.0.0.1:8000", "endpoint": "/v1/completions", "chat": False}),
        ("--host ::1 --port 81", "target", {"base_url": "http://[::1]:81"}),
        ("--backend openai-chat", "target", {"endpoint": "/v1/chat/completions", "chat": True}),
        ("--backend vllm --endpoint /x --insecure", "target", {"endpoint": "/x", "chat": False, "verify": False}),
        ("--header A=b=c X=", "target", {"headers": (("A", "b=c"), ("X", ""))}),
        ("--lora-modules a b --lora-assignment round-robin", "target",
         {"names": ("a", "b"), "pick_names": "round-robin"}),
        ("--input-len 7 --output-len 9", "data",
         {"random_input_len": 7, "random_output_len": 9, "sharegpt_output_len": 9, "custom_output_len": 9}),
        ("--random-range-ratio 0.25", "data", {"input_range": 0.25, "output_range": 0.25}),
        ('--random-range-ratio {"input":0.5}', "data", {"input_range": 0.5, "output_range": 0.0}),
        ("--no-oversample --disable-shuffle", "data", {"oversample": False, "shuffle": False}),
        ("--custom-output-len -1", "data", {"custom_output_len": -1}),
        ("", "asking", {"ignore_eos": True, "fields": {}}),
        ("--dataset-name sharegpt", "asking", {"ignore_eos": False}),
        ("--temperature 0 --top-k 5 --presence-penalty -0.5 --extra-body.top_k 6", "asking",
         {"fields": {"temperature": 0.0, "top_k": 6, "presence_penalty": -0.5}}),
        ("", "traffic", {"rate": math.inf, "self_timed": False}),
        ("--request-rate inf --burstiness inf", "traffic", {"rate": math.inf, "burstiness": math.inf}),
        ("--request-rate 2.5 --max-concurrency 3", "traffic", {"rate": 2.5, "max_concurrency": 3}),
        ("--ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 5", "traffic",
         {"ramp": ("linear", 1.0, 5.0)}),
        ("--dataset-name timed_trace", "traffic", {"self_timed": True}),
        ("--dataset-name timed_trace --no-self-timed", "traffic", {"self_timed": False}),
        ("", "wanted", {"metrics": ("ttft", "tpot", "itl", "e2el"), "percentiles": (99.0,), "goodput": {}}),
        ("--percentile-metrics itl,ttft --metric-percentiles 50,99.9", "wanted",
         {"metrics": ("itl", "ttft"), "percentiles": (50.0, 99.9)}),
        ("--goodput ttft:100 e2el:2.5", "wanted", {"goodput": {"ttft": 100.0, "e2el": 2.5}}),
        ("--no-steady-state", "wanted", {"steady_threshold": None}),
    ],
)  # fmt: skip
def test_what_flags_become(line: str, section: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    record = getattr(load(line), section)
    assert {name: getattr(record, name) for name in fields} == fields


def test_conversations() -> None:
    assert load("").turns is None
    assert load("--multi-turn").turns == Turns()
    line = "--multi-turn --multi-turn-num-turns 5 --multi-turn-delay-ms 250 --per-turn-input-len 8"
    assert load(line).turns == Turns(count=5, delay=0.25, input_len=8)


def test_a_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert load("").target.headers == (("authorization", "Bearer secret"),)
    assert load("--header Authorization=mine").target.headers == (("Authorization", "mine"),)


def test_sweeps() -> None:
    points = plan("--sweep-max-concurrency 1,8 --sweep-num-prompts-factor 4").points
    assert [(name, one.traffic.max_concurrency, one.num_prompts) for name, one in points] == [
        ("concurrency=1", 1, 4), ("concurrency=8", 8, 32)
    ]  # fmt: skip
    points = plan("--sweep-request-rate 0.5,inf --num-prompts 9").points
    assert [(name, one.traffic.rate, one.num_prompts) for name, one in points] == [
        ("rate=0.5", 0.5, 9), ("rate=inf", math.inf, 9)
    ]  # fmt: skip
    assert plan("").points == []


@pytest.mark.parametrize(
    "line, says",
    [
        ("--nonsense 1", "unknown options: --nonsense 1"),
        ("--backend vllm-pooling", "--backend must be one of openai, vllm, openai-chat, not 'vllm-pooling'"),
        ("--dataset-name hf", "--dataset-name must be one of random, sharegpt"),
        ("--hf-split train --random-batch-size 8", "--hf-split, --random-batch-size"),
        ("--profile-batch-threshold 5", "--profile-batch-threshold"),
        ("--request-rate 0", "--request-rate must be a number above 0, not 0.0"),
        ("--request-rate nan", "--request-rate must be a number above 0, not nan"),
        ("--burstiness -1", "--burstiness must be a number above 0"),
        ("--max-concurrency 0", "--max-concurrency must be a whole number of at least 1, not 0"),
        ("--random-range-ratio 1.0", "and below 1, or"),
        ('--random-range-ratio {"x":0.5}', "--random-range-ratio must be a number of at least 0"),
        ("--metric-percentiles 50,101", "--metric-percentiles must be a list with commas, each a number of at least 0"),
        ("--metric-percentiles fifty", "--metric-percentiles must be"),
        ("--percentile-metrics ttft,speed", "--percentile-metrics must be of ttft, tpot"),
        ("--goodput ttft", "--goodput must be a list of KEY:VALUE"),
        ("--goodput itl:5", "a name of ttft, tpot, e2el, not 'itl:5'"),
        ("--goodput ttft:nan", "--goodput must be NAME:MILLISECONDS"),
        ("--header novalue", "--header must be a list of KEY=VALUE, not (hidden)"),
        ("--steady-state-threshold 0", "--steady-state-threshold must be a number above 0 and at most 1"),
        ("--self-timed", "--self-timed is for --dataset-name timed_trace"),
        ("--ramp-up-start-rps 1", "need --ramp-up-strategy"),
        ("--ramp-up-strategy linear --ramp-up-start-rps 5 --ramp-up-end-rps 1", "that is not above"),
        ("--ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 5 --request-rate 3", "sets the rate"),
        ("--multi-turn-num-turns 2", "options of conversations need --multi-turn"),
        ("--multi-turn --request-rate 2", "--multi-turn and --request-rate exclude each other"),
        ("--multi-turn --multi-turn-prefix-global-ratio 0.5", "--multi-turn-prefix-global-ratio"),
        ("--sweep-max-concurrency 1,0", "--sweep-max-concurrency must be a list with commas, each a whole number"),
        ("--sweep-max-concurrency 1 --sweep-request-rate 1", "exclude each other"),
        ("--sweep-max-concurrency 1 --num-runs 2", "a sweep excludes"),
        ("--sweep-num-prompts-factor 2", "needs --sweep-max-concurrency"),
        ("--sweep-summary-percentiles 50", "needs a sweep"),
        ("--compare a", "--compare needs two files, not 1"),
        ("--result-filename x", "need --save-result or --append-result"),
        ("--custom-output-len 0", "--custom-output-len must be at least 1"),
    ],
)
def test_what_is_refused(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(line)
    assert says in str(caught.value)


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for number, file in enumerate(files, 1):
        file.write_text(json.dumps({"completed": number, "request_throughput": number * 2.0}))
    assert run(read_plan(["--compare", *map(str, files)])) == 0
    told = capsys.readouterr().out
    assert "Request throughput (req/s)                  2.00         4.00      +2.00   +100.0%+    2.000\n" in told


@pytest.mark.parametrize(
    "words, says",
    [
        (["bench"], "fastfront bench: error: there is bench serve, not bench\n"),
        (["bench", "latency"], "fastfront bench: error: there is bench serve, not bench latency\n"),
        (["bench", "serve", "--compare", "a", "b"], "fastfront bench: error: cannot read the result in a: "),
    ],
)
def test_the_command(words: list[str], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastfront", *words], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(says)
