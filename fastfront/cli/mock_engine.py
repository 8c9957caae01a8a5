"""`fastfront mock-engine`: an engine of made-up tokens, for trying and measuring a frontend alone.

Scripts are a JSON object: a request whose `seed` is a key gets that answer, `{"steps": [[ids], ...], "finish":
"stop"|"length"|"abort"|"error"|"repetition"|null, "stop_reason": null|id|text}`; null leaves it running after its last
step. Every other request gets random tokens until its limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastfront.engine.mock.options import Options
from fastfront.errors import ConfigError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

NAME = "mock-engine"
HELP = "run a mock engine that joins a frontend through its handshake"


def at_least(least: int) -> Callable[[str], int]:
    """An argparse type: a whole number from `least` on."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"a whole number from {least} on, not {text!r}")
        return int(text)

    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags; each is a field of Options."""
    count, positive = at_least(0), at_least(1)
    add = parser.add_argument
    add("--handshake", required=True, metavar="ADDRESS", help="where the frontend waits, e.g. tcp://127.0.0.1:29550")
    add("--index", type=count, default=0, help="data-parallel rank, the first one's if there are several")
    add("--data-parallel-size", type=positive, default=1, metavar="N", help="ranks in this process")
    add("--local", action="store_true", help="say so in the handshake, and end when the parent process does")
    add("--headless", action="store_true", help="say so in the handshake (what is said without --local, too)")
    add("--moe", action="store_true", help="step in waves, all ranks together, as a mixture-of-experts model does")
    add("--vocab", type=at_least(2), help="ids are below this (32000); with --strict also those of prompts")
    add("--step-ms", type=float, default=0.0, help="least time a step takes")
    add("--max-model-len", type=positive, default=40960)
    add("--max-num-seqs", type=positive, default=1024, help="requests that run at once; others wait")
    add("--seed", type=int, default=7, help="of the random tokens")
    add("--scripts", metavar="FILE", help="scripted answers, by the request's seed")
    add("--record", metavar="FILE", help="append every message that comes in as a JSON line {kind, body}")
    add("--stats", action="store_true", help="send statistics and events as a real engine with log stats does")
    add("--cached-tokens", type=count, default=0, metavar="N", help="tokens said to be cached of each prompt")
    add("--full-arrays", action="store_true", help="write every array in full, as a real engine does")
    add("--inline-below", type=count, default=256, metavar="BYTES", help="larger arrays travel in frames of their own")
    add("--strict", action="store_true", help="break on bad input as a real engine does, instead of saying so")
    faults = parser.add_argument_group("faults", "each after N messages with outputs")
    faults.add_argument("--die-after", type=count, metavar="N", help="say ENGINE_CORE_DEAD and exit with 1")
    faults.add_argument("--crash-after", type=count, metavar="N", help="end without a word, as by SIGKILL")
    faults.add_argument("--malformed-after", type=count, metavar="N", help="send one message that is no msgpack")
    faults.add_argument("--stall-after", type=count, metavar="N", help="go on reading and never step again")
    faults.add_argument("--late-outputs", type=count, default=0, metavar="N", help="N more outputs after an abort")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Adds the subcommand; its namespace is for `run`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        NAME, help=HELP, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    return parser


def options(args: argparse.Namespace) -> Options:
    """The settings in parsed flags; ConfigError where they contradict each other."""
    if args.local and args.headless:
        raise ConfigError("mock-engine: --local and --headless exclude each other")
    if args.index + args.data_parallel_size > 65536:
        raise ConfigError("mock-engine: ranks go up to 65535")
    return Options(**{name: getattr(args, name) for name in Options.__struct_fields__})


def run(args: argparse.Namespace) -> int:
    """Runs the engine; returns the exit status."""
    from fastfront.engine.mock.process import run as run_process

    return run_process(options(args))


def main(argv: list[str] | None = None) -> int:
    """`python -m fastfront.cli.mock_engine`, for a supervisor that needs no other command."""
    parser = argparse.ArgumentParser(
        prog=f"fastfront {NAME}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except ConfigError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
