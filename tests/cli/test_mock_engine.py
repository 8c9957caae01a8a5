"""`fastfront mock-engine`: its flags, and what is wrong with them."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastfront.cli import mock_engine
from fastfront.engine.mock.options import Options
from fastfront.errors import ConfigError

WHERE = ["--handshake", "tcp://127.0.0.1:1"]


def parse(*words: str) -> Options:
    """The settings in these words, through the subcommand."""
    parser = argparse.ArgumentParser()
    mock_engine.add_parser(parser.add_subparsers(required=True))
    return mock_engine.options(parser.parse_args([mock_engine.NAME, *WHERE, *words]))


def test_has_the_flags_and_defaults_of_the_reference_mock(shared: Path) -> None:
    source = (shared / "tools/mock_engine.py").read_text()
    found = re.findall(r'add_argument\("--([a-z-]+)"(.*)\)', source)
    assert len(found) == 10
    settings = parse()
    for name, rest in found:
        value = getattr(settings, name.replace("-", "_"))
        default = re.search(r"default=([\d.]+)", rest)
        if name == "vocab":
            assert settings.token_limit == 32000
        elif default:
            assert value == float(default[1])
        elif name != "handshake":
            assert not value


def test_each_setting_has_its_flag() -> None:
    words = {"data_parallel_size": "3", "step_ms": "2.5", "scripts": "a", "record": "b", "crash_after": "0"}
    got = parse(
        "--strict", "--moe", *(word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", value))
    )
    assert (got.data_parallel_size, got.step_ms, got.scripts, got.record, got.crash_after) == (3, 2.5, "a", "b", 0)
    assert got.strict and got.moe and not got.stats


@pytest.mark.parametrize(
    "words",
    [["--index", "-1"], ["--data-parallel-size", "0"], ["--vocab", "1"], ["--max-num-seqs", "x"], ["--no-such"]],
)
def test_wrong_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(*words)
    assert ended.value.code == 2 and words[0] in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--local", "--headless"], ["--index", "65535", "--data-parallel-size", "2"]])
def test_contradictions(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse(*words)


def test_a_file_that_is_not_there_ends_it_with_2(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "fastfront.cli.mock_engine", *WHERE, "--scripts", str(tmp_path / "none")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2 and "none" in ended.stderr and "Traceback" not in ended.stderr
