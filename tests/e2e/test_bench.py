"""`fastfront bench serve` as a process, against `fastfront serve` with a mock engine, and beside vllm-rs's client."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfront.cli.bench import run
from fastfront.cli.bench_plan import read_plan
from tests.conftest import Start
from tests.e2e.serving import Serving, serve


def bench(command: list[str], serving: Serving, *words: str | Path) -> str:
    """What `bench serve` prints, as a process."""
    line = [*command, "bench", "serve", "--base-url", serving.base, *map(str, words)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def figure(table: str, name: str) -> float:
    """A number of the printed table."""
    found = re.search(rf"^{re.escape(name)}: +([\d.]+)", table, re.MULTILINE)
    assert found, table
    return float(found[1])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int], number: signal.Signals
) -> None:
    serving = serve(start, fastfront, peers, free_port, engine=("--step-ms", "50"))
    words = ["--random-input-len", "8", "--random-output-len", "4000", "--num-prompts", "64", "--ignore-eos"]
    client = start([*fastfront, "bench", "serve", "--base-url", serving.base, *words, "--max-concurrency", "8"])
    client.wait_for(lambda: serving.ask("/load")[1] == {"server_load": 8}, "8 requests under way")
    client.process.send_signal(number)
    assert client.process.wait(60) == 0
    serving.front.wait_for(lambda: serving.ask("/load")[1] == {"server_load": 0}, "the requests' end")


SHORT = ("--random-input-len", "24", "--random-output-len", "6", "--num-prompts", "20")


def test_it_measures_a_server(
    start: Start,
    fastfront: list[str],
    peers: Path,
    free_port: Callable[[], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serving = serve(start, fastfront, peers, free_port)
    out, data = tmp_path / "r.json", tmp_path / "prompts.jsonl"
    save = ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "r.json"]

    # The model and its tokenizer are what the server says.
    table = bench(fastfront, serving, *SHORT, *save, "--max-concurrency", "4", "--goodput", "e2el:60000")
    (result,) = read(out)
    assert (result["completed"], result["failed"], result["model_id"]) == (20, 0, "m")
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (480, 120)
    assert result["request_goodput"] == result["request_throughput"]
    assert figure(table, "Successful requests") == 20
    assert figure(table, "Total generated tokens") == 120
    assert 0 < result["mean_ttft_ms"] <= result["mean_e2el_ms"]
    assert result["steady_state"]["window"]["target_concurrency"] == 4

    data.write_text('{"prompt": "Hello there"}\n')
    words = ["--base-url", serving.base, "--skip-tokenizer-init", "--num-prompts", "20", *save]
    words += ["--dataset-name", "custom", "--dataset-path", str(data), "--custom-output-len", "6", "--ignore-eos"]

    # Chat, with the template's tokens on top.
    assert run(read_plan([*words, "--model", "m", "--backend", "openai-chat", "--save-detailed"])) == 0
    (result,) = read(out)
    assert (result["completed"], result["total_output_tokens"]) == (20, 120)
    assert min(result["input_lens"]) > 2
    assert all(result["generated_texts"])

    # A sweep is a line for each point.
    capsys.readouterr()
    assert run(read_plan([*words, "--model", "m", "--sweep-max-concurrency", "1,5"])) == 0
    assert [point["max_concurrency"] for point in read(out)] == [1, 5]
    assert [point["completed"] for point in read(out)] == [20, 20]
    assert re.search(r"^concurrency=5 ", capsys.readouterr().out, re.MULTILINE)

    # Errors of the server are counted, told, and no success.
    assert run(read_plan([*words, "--model", "nobody"])) == 1
    table = capsys.readouterr().out
    assert figure(table, "Failed requests") == 20
    assert re.search(r"^Error 0: HTTP 404 Not Found: .*nobody.*\(20x\)$", table, re.MULTILINE)


@pytest.mark.peer
def test_it_counts_as_vllm_rs_does(
    start: Start, fastfront: list[str], peers: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    """The same server, requests and answers: the same counts, and a table that the same script reads."""
    # Of tokens drawn by chance some are parts of a character, which make no event of their own.
    script = {"steps": [[9707], [1879], [0], [358], [1079], [13]], "finish": "length"}
    (tmp_path / "scripts.json").write_text(json.dumps({"7": script}))
    serving = serve(start, fastfront, peers, free_port, engine=("--scripts", str(tmp_path / "scripts.json")))
    words = ["--model", "m", "--tokenizer", str(peers / "models" / "qwen3"), *SHORT, "--prompt-token-ids"]
    words += ["--extra-body", '{"seed": 7}']
    words += ["--max-concurrency", "4", "--disable-tqdm", "--save-result", "--save-detailed", "--result-filename"]
    mine = bench(fastfront, serving, *words, tmp_path / "mine.json")
    line = [str(peers / "vllm-rs"), "bench", "serve", "--base-url", serving.base, *words, str(tmp_path / "theirs.json")]
    theirs = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout
    for name in ("Successful requests", "Failed requests", "Total input tokens", "Total generated tokens"):
        assert figure(mine, name) == figure(theirs, name)

    def names(table: str) -> set[str]:
        return {line.partition(":")[0] for line in table.splitlines() if re.search(r": +[\d.]+ *$", line)}

    # vllm-rs tells the 90th percentile, too, where only the 99th is asked for.
    assert {name for name in names(theirs) if not name.startswith("P90 ")} <= names(mine)
    (one,), (two,) = read(tmp_path / "mine.json"), read(tmp_path / "theirs.json")
    lacking = {name for name in set(two) - set(one) if not name.startswith("p90_")}
    assert lacking == {"max_model_len", "rtfx"}
    assert one["output_lens"] == two["output_lens"]
    assert one["output_lens"] == [6] * 20
    assert [len(gaps) for gaps in one["itls"]] == [len(gaps) for gaps in two["itls"]]
