"""The text of `fastfront serve --help`: every flag of the table with what becomes of it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from fastfront.cli.flags import KINDS, Flag

SERVE = """\
usage: fastfront serve [MODEL] [options] [-- engine arguments]

Serves MODEL (a folder, a GGUF file or a hub name; SmolLM2-135M-Instruct where none is named) over HTTP and, unless
engines join from outside, starts its engine. Options that are not listed here go to the engine, as does what follows
`--`: to `vllm serve` as they are, or to the built-in engine (`python -m fastfront.engine.torch --help` lists its own).
`-` and `_` are the same in names; --no-NAME turns a switch off; --NAME.KEY VALUE sets a key of a JSON object.

Each option is marked: supported | refused (an error, not served yet) | no effect (a warning at start) |
engine (passed to the engine, nothing of it is the frontend's).
"""
FRONTEND = """\
usage: fastfront frontend --listen-fd N --input-listener-fd N --output-listener-fd N --args-json JSON [options]

Started by vLLM: VLLM_USE_RUST_FRONTEND=1 VLLM_RUST_FRONTEND_PATH=$(which fastfront) vllm serve MODEL
"""
RENDER = """\
usage: fastfront render MODEL [options]

Serves the request side of MODEL (a folder, a GGUF file or a hub name) alone, with no engine: requests to token ids and
sampling parameters (render), an engine's token ids to answers (derender), tokenize and detokenize.
`-` and `_` are the same in names; --no-NAME turns a switch off; --NAME.KEY VALUE sets a key of a JSON object.

Each option is marked: supported | refused (an error, not served yet) | no effect (a warning at start).
"""
BENCH = """\
usage: fastfront bench serve [options]

Sends streamed requests to a server of the OpenAI API, prints throughput and latencies as `vllm bench serve` does.
`-` and `_` are the same in names; --no-NAME turns a switch off; --NAME.KEY VALUE sets a key of a JSON object.

Each option is marked: supported | refused (an error, not there) | no effect (a warning at start).
"""
_METAVARS = {"text": "TEXT", "words": "TEXT ...", "object": "JSON", "texts": "JSON", "keys": "KEY ..."}
_METAVARS |= {"level": "LEVEL", "many": "VALUE ...", "anything": "VALUE", "token": "[TOKEN]", "switch": "[true|false]"}


def options(title: str, flags: Iterable[Flag]) -> str:
    """One group of options."""
    return f"\n{title}:\n" + "".join(_line(flag) for flag in flags if flag.help)


def _line(flag: Flag) -> str:
    metavar = "|".join(flag.choices) if flag.choices else _METAVARS.get(flag.kind, "N")
    head = "  " + " ".join(filter(None, [", ".join((flag.option, *flag.aliases)), metavar]))
    default = "" if flag.default in (None, False, [], {}, "") or flag.status != "supported" else f" ({flag.default})"
    text = f"[{flag.status}] {flag.help}"
    if default and "(" not in flag.help:
        text += default
    if KINDS[flag.kind].arity == "switch" and flag.default is True:
        text += " (on)"
    body = textwrap.fill(text, 110, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return f"{head}\n{body}\n"
