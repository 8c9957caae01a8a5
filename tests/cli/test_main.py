"""The command as a process: what it prints and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fastfront as package
from fastfront.cli.flags_table import SERVE

Command = list[str]


def run(command: Command, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *words], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_version_says_which_twins_are_in_use(fastfront: Command) -> None:
    pure = run(fastfront, "--version", FASTFRONT_NATIVE="0")
    assert (pure.returncode, pure.stdout) == (0, f"fastfront {package.__version__} (pure: FASTFRONT_NATIVE=0)\n")
    either = run(fastfront, "--version", FASTFRONT_NATIVE="auto")
    assert re.fullmatch(rf"fastfront {package.__version__} \((native|pure: .+)\)\n", either.stdout)
    wrong = run(fastfront, "--version", FASTFRONT_NATIVE="yes")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "fastfront: error: FASTFRONT_NATIVE must be auto, 1 or 0, not 'yes'\n",
    )


def test_help_shows_every_flag_with_its_status(fastfront: Command) -> None:
    done = run(fastfront, "serve", "--help")
    assert done.returncode == 0
    for flag in SERVE:
        found = re.search(rf"^  {flag.option}\b.*\n +\[([a-z ]+)\]", done.stdout, re.MULTILINE)
        assert found, flag.name
        assert found[1] == flag.status


def test_help_of_the_others(fastfront: Command) -> None:
    assert run(fastfront).stdout.startswith("usage: fastfront ")
    assert "--args-json" in run(fastfront, "frontend", "--help").stdout
    mock = run(fastfront, "mock-engine", "--help")
    assert (mock.returncode, "--handshake" in mock.stdout) == (0, True)


@pytest.mark.parametrize(
    "words, says",
    [
        (["what"], "fastfront: error: no command 'what'; there are serve, render, frontend, mock-engine"),
        (["render"], "fastfront render: error: the model must come right after `render`"),
        (["render", "m", "--tool-call-parser", "x"], "fastfront render: error: no tool call parser 'x'; there are: "),
        (["serve", "--port", "1", "m"], "fastfront serve: error: unexpected argument 'm'; the model comes right after"),
        (["serve", "m", "--grpc"], "fastfront serve: error: fastfront does not serve these options yet: --grpc."),
        (["frontend"], "fastfront frontend: error: missing: --listen-fd"),
    ],
)
def test_wrong_words_end_with_2(fastfront: Command, words: list[str], says: str) -> None:
    done = run(fastfront, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(says)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_before_the_command_listens_for_it_is_a_wish(number: signal.Signals) -> None:
    code = (
        # a shell lets what it runs in the background ignore SIGINT
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from fastfront.cli import main as cli; "
        f"cli.COMMANDS['serve'] = lambda argv: os.kill(os.getpid(), {int(number)}) or 7; "
        "sys.exit(cli.main(['serve']))"
    )
    done = run([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_model_that_is_not_there_ends_with_1(fastfront: Command, tmp_path: Path) -> None:
    done = run(fastfront, "serve", str(tmp_path), "--engine", "none", "--port", "0", HF_HUB_OFFLINE="1")
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr
