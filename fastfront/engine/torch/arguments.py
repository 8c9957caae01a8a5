"""The engine's command line: vLLM's names for what this engine has, and a refusal by name of all else.

Knows no torch, so that whoever starts the engine can check the words before.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fastfront import env
from fastfront.engine.torch.settings import EngineSettings, RunnerSettings
from fastfront.errors import ConfigError

DTYPES = {
    "auto": "auto", "bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "float32",
    "float": "float32",
}  # fmt: skip
#: Options of vLLM's of which this engine has one value only.
ONLY = {
    "--tensor-parallel-size": "1", "--pipeline-parallel-size": "1", "--data-parallel-size": "1",
    "--load-format": "auto", "--kv-cache-dtype": "auto",
}  # fmt: skip
_ALIASES = {"--tensor-parallel-size": "-tp", "--pipeline-parallel-size": "-pp", "--data-parallel-size": "-dp"}
BATCHED_TOKENS = 2048
_UNITS = {"k": 1000, "m": 1000**2, "K": 1 << 10, "M": 1 << 20}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def parse(words: Sequence[str]) -> tuple[RunnerSettings, EngineSettings]:
    """Reads `MODEL --handshake ADDRESS [options]`; ConfigError names all that is wrong or not served."""
    given, unknown = _parser().parse_known_args([_dashed(word) for word in words])
    if unknown:
        names = [word.partition("=")[0] for word in unknown if re.match(r"-+[a-zA-Z]", word)] or unknown
        raise ConfigError(f"the built-in engine does not have these options: {', '.join(names)}")
    tokens = given.max_num_batched_tokens or max(BATCHED_TOKENS, 2 * given.max_num_seqs)
    if tokens <= given.max_num_seqs:
        raise ConfigError(
            f"--max-num-batched-tokens {tokens} must be more than --max-num-seqs {given.max_num_seqs}: a step must "
            "have room for a prompt beside all that decode"
        )
    runner = RunnerSettings(
        model=given.model,
        device=given.device,
        dtype=DTYPES[given.dtype],
        max_model_len=given.max_model_len,
        block_size=given.block_size,
        gpu_memory_utilization=given.gpu_memory_utilization,
        num_gpu_blocks_override=given.num_gpu_blocks_override,
        max_num_seqs=given.max_num_seqs,
        max_num_batched_tokens=tokens,
        enforce_eager=given.enforce_eager,
    )
    engine = EngineSettings(
        handshake=given.handshake,
        local=given.local,
        seed=given.seed,
        log_stats=not given.disable_log_stats,
        enable_prefix_caching=given.enable_prefix_caching,
        torch_profiler_dir=given.profiler_config,
        log_level=given.log_level,
    )
    return runner, engine


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m fastfront.engine.torch", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    default = RunnerSettings(model=Path())
    positive, switch = _whole(1), argparse.BooleanOptionalAction
    add("model", type=lambda word: Path(word).expanduser(), help="a folder with safetensors, or a GGUF file")
    add("--handshake", required=True, metavar="ADDRESS", help="where the frontend waits, e.g. tcp://127.0.0.1:29550")
    add("--local", action="store_true", help="started as a child: end when the parent process does")
    add("--device", type=_device, default="auto", help="auto, cuda, cuda:N or cpu")
    add("--dtype", choices=tuple(DTYPES), default="auto", help="of weights and cache")
    add("--max-model-len", type=_length, metavar="N", help="context length, also as 32k (32000) or 32K (32768)")
    add("--gpu-memory-utilization", type=_share, default=default.gpu_memory_utilization, metavar="SHARE",
        help="share of the device's memory that weights, activations and cache may take")
    add("--block-size", type=positive, default=default.block_size, metavar="N", help="tokens of a block of the cache")
    add("--num-gpu-blocks-override", type=_whole(2), metavar="N", help="blocks of the cache, whatever memory is free")
    add("--max-num-seqs", type=positive, default=default.max_num_seqs, metavar="N", help="requests that run at once")
    add("--max-num-batched-tokens", type=positive, metavar="N", help="tokens of one step")
    add("--enforce-eager", action=switch, default=False, help="no CUDA graphs")
    add("--enable-prefix-caching", action=switch, default=True, help="reuse the cache of prompts that begin alike")
    add("--enable-chunked-prefill", action=_Always, nargs=0, help="always so: a long prompt takes several steps")
    add("--no-enable-chunked-prefill", action=_Always, nargs=0, help=argparse.SUPPRESS)
    add("--seed", type=_whole(0), default=0, metavar="N", help="of requests that bring none")
    add("--disable-log-stats", action=switch, default=False, help="send no statistics")
    add("--log-level", type=str.upper, choices=env.LEVELS, default=env.logging_level(), help="of the engine's process")
    add("--profiler-config", type=_profiler, metavar="JSON", help='{"profiler": "torch", "torch_profiler_dir": DIR}')
    add("--trust-remote-code", action=switch, default=False, help="changes nothing: no code of a model is run")
    for name, value in ONLY.items():
        aliases = [_ALIASES[name]] if name in _ALIASES else []
        add(*aliases, name, type=_only(value), default=value, metavar=value, help="there is nothing else")
    return parser


class _Always(argparse.Action):
    """A switch that cannot be turned off."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if option is not None and option.startswith("--no-"):
            parser.error(f"{option} is not served: a long prompt always takes several steps")


def _dashed(word: str) -> str:
    """An option's name with dashes, as vLLM takes both."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _whole(least: int) -> Callable[[str], int]:
    def number(word: str) -> int:
        if not (word.isascii() and word.isdecimal()) or int(word) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {word!r}")
        return int(word)

    return number


def _length(word: str) -> int | None:
    if word in ("auto", "-1"):
        return None
    unit = _UNITS.get(word[-1:], 1)
    try:
        number = float(word[:-1] if unit > 1 else word) * unit
        if number < 1 or number != int(number):
            raise ValueError(word)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, or auto, not {word!r}") from None
    return int(number)


def _share(word: str) -> float:
    try:
        if 0 < (share := float(word)) <= 1:
            return share
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be a number above 0 and at most 1, not {word!r}")


def _device(word: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", word):
        raise argparse.ArgumentTypeError(f"must be auto, cuda, cuda:N or cpu, not {word!r}")
    return word


def _only(value: str) -> Callable[[str], str]:
    def check(word: str) -> str:
        if word != value:
            raise argparse.ArgumentTypeError(f"the built-in engine has {value} only, not {word}")
        return word

    return check


def _profiler(word: str) -> Path | None:
    try:
        config = json.loads(word)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, not {word!r}")
    rest = set(config) - {"profiler", "torch_profiler_dir"}
    if config.get("profiler") is None:
        return None
    folder = config.get("torch_profiler_dir")
    if rest or config["profiler"] != "torch" or not isinstance(folder, str) or not folder:
        raise argparse.ArgumentTypeError('must be {"profiler": "torch", "torch_profiler_dir": DIR}')
    return Path(folder)
