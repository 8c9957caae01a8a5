"""`python -m fastfront.engine.torch`: the built-in engine's process, as a supervisor starts it."""

from __future__ import annotations

import sys

from fastfront import env, log
from fastfront.engine.torch.arguments import parse
from fastfront.errors import ConfigError, StartError


def main(words: list[str]) -> int:
    """Runs the engine; the exit status: 2 for wrong words, 1 where it cannot begin."""
    try:
        runner, settings = parse(words)
        log.setup(settings.log_level)
        env.sleeping_openmp()
        # Only now: what is wrong with the words is told without torch, which reads that variable when it is loaded.
        from fastfront.engine.torch.process import run

        return run(runner, settings)
    except (ConfigError, StartError) as error:
        sys.stderr.write(f"fastfront engine: error: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
