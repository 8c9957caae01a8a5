"""From the words of `fastfront bench serve` to what is to be done: one measurement, several, or a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastfront import env
from fastfront.cli.argv import read_words
from fastfront.cli.bench_flags import BENCH
from fastfront.cli.flags import sort_out
from fastfront.errors import ConfigError
from fastfront.load.metrics import NAMES
from fastfront.load.options import Asking, Data, Load, Target, Traffic, Turns, Wanted

_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"
)  # fmt: skip
_LIMITED = ("ttft", "tpot", "e2el")
_ENDPOINTS = {False: "/v1/completions", True: "/v1/chat/completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`load` is measured `runs` times, or once for each of `concurrencies` or `rates`; or two results are compared.

    `model` None: asked of the server. `label` names the result and is told in it only where it was given.
    """

    load: Load
    backend: str = "openai"
    model: str | None = None
    served_name: str | None = None
    tokenizer: str | None = None
    tokenizer_mode: str = "auto"
    skip_tokenizer: bool = False
    dry_run: bool = False
    no_bar: bool = False
    save: bool = False
    append: bool = False
    folder: str | None = None
    file: str | None = None
    metadata: tuple[str, ...] = ()
    label: str | None = None
    compare: tuple[str, ...] = ()
    concurrencies: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    factor: int | None = None
    sweep_percentiles: tuple[float, ...] = ()
    runs: int = 1
    warnings: tuple[str, ...] = field(default=())

    @property
    def points(self) -> list[tuple[str, Load]]:
        """What a sweep measures, by name; empty without one."""
        loads = []
        for at_once in self.concurrencies:
            count = at_once * self.factor if self.factor else self.load.num_prompts
            traffic = replace(self.load.traffic, max_concurrency=at_once)
            loads.append((f"concurrency={at_once}", replace(self.load, traffic=traffic, num_prompts=count)))
        for rate in self.rates:
            traffic = replace(self.load.traffic, rate=rate)
            loads.append((f"rate={rate:g}", replace(self.load, traffic=traffic)))
        return loads


def read_plan(argv: Sequence[str]) -> Plan:
    """Raises ConfigError for options that are wrong, refused, or contradict each other."""
    words = read_words(argv, BENCH)
    stray = [*words.unknown, *words.rest]
    if stray:
        raise ConfigError(f"unknown options: {' '.join(stray)}")
    table = {flag.name: flag for flag in BENCH}
    warnings = sort_out(words.values, table, lambda flag: words.written.get(flag.name, flag.option), "Remove them.")
    given = words.values
    sections: dict[str, dict[str, Any]] = {
        name: {} for name in ("target", "data", "asking", "traffic", "turns", "wanted", "load", "plan")
    }
    for name, value in given.items():
        section, _, key = table[name].field.partition(".")
        if section:
            sections[section][key] = tuple(value) if isinstance(value, list) else value
    backend = given.get("backend", "openai")
    load = Load(
        target=_target(given, sections["target"], backend == "openai-chat"),
        data=_data(given, sections["data"]),
        asking=_asking(given, sections["asking"]),
        traffic=_traffic(given, sections["traffic"]),
        wanted=_wanted(given, sections["wanted"]),
        turns=_turns(given, sections["turns"]),
        **sections["load"],
    )
    plan = Plan(load=load, backend=backend, warnings=warnings, **sections["plan"])
    _check(plan)
    return plan


def _target(given: dict[str, Any], target: dict[str, Any], chat: bool) -> Target:
    if "base_url" not in target:
        host = given.get("host", "127.0.0.1")
        target["base_url"] = f"http://{f'[{host}]' if ':' in host else host}:{given.get('port', 8000)}"
    target.setdefault("endpoint", _ENDPOINTS[chat])
    pairs = dict(pair.split("=", 1) for pair in target.get("headers", ()))
    key = env.openai_api_key()
    if key is not None and "authorization" not in {name.lower() for name in pairs}:
        pairs["authorization"] = f"Bearer {key}"
    target["headers"] = tuple((name.strip(), value.strip()) for name, value in pairs.items())
    for name, value in target["headers"]:
        if any(sign in name + value for sign in "\r\n"):
            raise ConfigError(f"--header {name!r} holds a line end")
    return Target(chat=chat, verify=not given.get("insecure", False), **target)


def _data(given: dict[str, Any], data: dict[str, Any]) -> Data:
    if (length := given.get("input_len")) is not None:
        data["random_input_len"] = length
    if (length := given.get("output_len")) is not None:
        names = ("random_output_len", "sharegpt_output_len", "custom_output_len", "prefix_output_len")
        data |= dict.fromkeys(names, length)
    spread = given.get("random_range_ratio", 0.0)
    both = spread if isinstance(spread, dict) else {"input": spread, "output": spread}
    data["input_range"], data["output_range"] = both.get("input", 0.0), both.get("output", 0.0)
    data["oversample"] = not given.get("no_oversample", False)
    data["shuffle"] = not given.get("disable_shuffle", False)
    if data.get("custom_output_len", 1) == 0:
        raise ConfigError("--custom-output-len must be at least 1, or -1 for the lines' own")
    return Data(**data)


def _asking(given: dict[str, Any], asking: dict[str, Any]) -> Asking:
    if given.get("dataset_name", "random") in ("random", "timed_trace"):
        asking["ignore_eos"] = True
    sampling = {name: given[name] for name in _SAMPLING if name in given}
    asking["fields"] = sampling | asking.get("fields", {})
    return Asking(**asking)


def _traffic(given: dict[str, Any], traffic: dict[str, Any]) -> Traffic:
    trace = given.get("dataset_name") == "timed_trace"
    if traffic.get("self_timed") is not None and not trace:
        raise ConfigError("--self-timed is for --dataset-name timed_trace, which alone has times")
    traffic.setdefault("self_timed", trace)
    kind, first, last = (given.get(f"ramp_up_{name}") for name in ("strategy", "start_rps", "end_rps"))
    if kind is None:
        if first is not None or last is not None:
            raise ConfigError("--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy")
        return Traffic(**traffic)
    if first is None or last is None or first > last or math.isinf(last):
        raise ConfigError("--ramp-up-strategy needs a --ramp-up-start-rps that is not above --ramp-up-end-rps")
    if "rate" in traffic:
        raise ConfigError("--ramp-up-strategy sets the rate, but --request-rate is given")
    return Traffic(ramp=(kind, first, last), **traffic)


def _turns(given: dict[str, Any], turns: dict[str, Any]) -> Turns | None:
    if not given.get("multi_turn", False):
        if turns or "multi_turn_delay_ms" in given:
            raise ConfigError("options of conversations need --multi-turn")
        return None
    for name in ("request_rate", "ramp_up_strategy", "prompt_token_ids", "max_model_len"):
        if name in given:
            raise ConfigError(f"--multi-turn and --{name.replace('_', '-')} exclude each other")
    return Turns(delay=given.get("multi_turn_delay_ms", 0.0) / 1000, **turns)


def _wanted(given: dict[str, Any], wanted: dict[str, Any]) -> Wanted:
    unknown = [name for name in wanted.get("metrics", ()) if name not in NAMES]
    if unknown:
        raise ConfigError(f"--percentile-metrics must be of {', '.join(NAMES)}, not {unknown[0]!r}")
    limits: dict[str, float] = {}
    for pair in given.get("goodput", ()):
        name, _, value = pair.partition(":")
        try:
            limits[name] = float(value)
        except ValueError:
            limits[name] = -1
        if name not in _LIMITED or not limits[name] >= 0:
            raise ConfigError(f"--goodput must be NAME:MILLISECONDS, a name of {', '.join(_LIMITED)}, not {pair!r}")
    if given.get("no_steady_state"):
        wanted["steady_threshold"] = None
    return Wanted(goodput=limits, **wanted)


def _check(plan: Plan) -> None:
    """ConfigError for wishes that exclude each other."""
    sweeps = bool(plan.concurrencies or plan.rates)
    if plan.concurrencies and plan.rates:
        raise ConfigError("--sweep-max-concurrency and --sweep-request-rate exclude each other")
    if sweeps and (plan.runs > 1 or plan.load.turns is not None or plan.load.traffic.ramp is not None):
        raise ConfigError("a sweep excludes --num-runs, --multi-turn and --ramp-up-strategy")
    if plan.factor and not plan.concurrencies:
        raise ConfigError("--sweep-num-prompts-factor needs --sweep-max-concurrency")
    if plan.sweep_percentiles and not sweeps:
        raise ConfigError("--sweep-summary-percentiles needs a sweep")
    if plan.compare and len(plan.compare) != 2:
        raise ConfigError(f"--compare needs two files, not {len(plan.compare)}")
    if (plan.folder or plan.file or plan.load.wanted.detailed) and not (plan.save or plan.append):
        raise ConfigError("--result-dir, --result-filename and --save-detailed need --save-result or --append-result")
