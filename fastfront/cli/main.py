"""The `fastfront` command. Imports little, so that `--version` and errors in flags are quick; commands load the rest.

Exit codes: 0 done, or ended by SIGTERM or SIGINT; 1 could not start or go on; 2 wrong flags or settings (wire a.5).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from fastfront import __version__
from fastfront.config import Config, RenderConfig
from fastfront.errors import ConfigError, FastfrontError

USAGE = """\
usage: fastfront [--version] [--help] COMMAND ...

  serve [MODEL] serve a model over HTTP, with the engine that it starts or that joins from outside
  render MODEL  serve the request side alone: prompts as token ids, and token ids as answers
  frontend      the part that vLLM's own supervisor starts
  mock-engine   an engine without a model, for tests and measurements
  bench serve   ask a server of the OpenAI API and say how fast it answers

`fastfront COMMAND --help` lists a command's options.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    _open_standard_files()
    words = list(sys.argv[1:] if argv is None else argv)
    # Also before a command has its own handlers, and while it waits for engines, a SIGTERM is a wish, not a failure.
    signal.signal(signal.SIGTERM, _leave)
    try:
        return _run(words)
    except ConfigError as error:
        return _fail(words, error, 2)
    except FastfrontError as error:
        return _fail(words, error, 1)
    except KeyboardInterrupt:
        return 0


def _open_standard_files() -> None:
    """Closed ones are opened, on nothing: a socket that got such a number would end the process when it is closed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _run(words: list[str]) -> int:
    command, rest = (words[0], words[1:]) if words else ("--help", [])
    if command in ("--version", "-V"):
        print(version())
        return 0
    if command in ("--help", "-h", "help"):
        print(USAGE, end="")
        return 0
    runner = COMMANDS.get(command)
    if runner is None:
        raise ConfigError(f"no command {command!r}; there are {', '.join(COMMANDS)}")
    return runner(rest)


def version() -> str:
    """`fastfront X.Y.Z (native)`, or `(pure: why)`."""
    from fastfront import fast

    return f"fastfront {__version__} ({fast.describe()})"


def _serve(argv: list[str]) -> int:
    from fastfront.cli import build, help

    if _asks_for_help(argv):
        from fastfront.cli.flags_table import GROUPS

        print(help.SERVE, *(help.options(title, flags) for title, flags in GROUPS.items()), sep="", end="")
        return 0
    config = build.serve_config(argv)
    return _run_app(config)


def _render(argv: list[str]) -> int:
    from fastfront.cli import build, help

    if _asks_for_help(argv):
        from fastfront.cli.flags_table import RENDER_GROUPS

        print(help.RENDER, *(help.options(title, flags) for title, flags in RENDER_GROUPS.items()), sep="", end="")
        return 0
    config = build.render_config(argv)
    _begin(config)
    from fastfront import render

    return render.run(config)


def _frontend(argv: list[str]) -> int:
    from fastfront.cli import build, help

    if _asks_for_help(argv):
        from fastfront.cli.flags_table import FRONTEND

        print(help.FRONTEND, help.options("Options", FRONTEND), sep="", end="")
        return 0
    config = build.frontend_config(argv)
    return _run_app(config)


def _mock_engine(argv: list[str]) -> int:
    import argparse

    from fastfront.cli import mock_engine

    parser = argparse.ArgumentParser(prog="fastfront", allow_abbrev=False)
    mock_engine.add_parser(parser.add_subparsers(required=True))
    return mock_engine.run(parser.parse_args(["mock-engine", *argv]))


def _bench(argv: list[str]) -> int:
    if argv[:1] != ["serve"] and not _asks_for_help(argv):
        raise ConfigError(f"there is bench serve, not bench {' '.join(argv[:1])}".rstrip())
    if _asks_for_help(argv):
        from fastfront.cli import help
        from fastfront.cli.bench_flags import GROUPS

        print(help.BENCH, *(help.options(title, flags) for title, flags in GROUPS.items()), sep="", end="")
        return 0
    import logging

    from fastfront import log
    from fastfront.cli import bench, bench_plan

    plan = bench_plan.read_plan(argv[1:])
    log.setup("WARNING")
    for warning in plan.warnings:
        logging.getLogger("fastfront").warning("%s", warning)
    return bench.run(plan)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "render": _render,
    "frontend": _frontend,
    "mock-engine": _mock_engine,
    "bench": _bench,
}


def _asks_for_help(argv: list[str]) -> bool:
    own = argv[: argv.index("--")] if "--" in argv else argv
    return "--help" in own or "-h" in own


def _run_app(config: Config) -> int:
    """Serves with engines."""
    _begin(config)
    from fastfront import app

    return app.run(config)


def _begin(config: RenderConfig) -> None:
    """Sets logging up and says what of the flags will do nothing."""
    import logging

    from fastfront import log

    log.setup(config.log_level)
    for warning in config.warnings:
        logging.getLogger("fastfront").warning("%s", warning)


def _fail(words: list[str], error: FastfrontError, code: int) -> int:
    import logging

    logging.disable()  # threads that still load something have nothing to say any more: this is the last line
    name = f"fastfront {words[0]}" if words and words[0] in COMMANDS else "fastfront"
    print(f"{name}: error: {error}", file=sys.stderr)
    return code


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
