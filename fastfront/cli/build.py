"""From flags to `config.Config`: for `serve` (a command line) and for `frontend` (sockets and `--args-json`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from fastfront import env
from fastfront.cli.args_json import read_args
from fastfront.cli.argv import Words, read_words
from fastfront.cli.flags import KINDS, Flag, sort_out
from fastfront.cli.flags_table import ARGS_JSON, FRONTEND, RENDER, SERVE
from fastfront.config import (
    ApiConfig,
    Config,
    CorsConfig,
    EngineConfig,
    HttpConfig,
    InheritedConfig,
    ModelConfig,
    RenderConfig,
    TlsConfig,
)
from fastfront.errors import ConfigError

Sections = dict[str, dict[str, Any]]


def serve_config(argv: Sequence[str]) -> Config:
    """`[MODEL] [options] [-- engine arguments]`; raises ConfigError."""
    named = argv[:1] if argv and not argv[0].startswith("-") else []
    words = _serve_words(argv, len(named))
    values = words.values
    kind = _engine_kind(values)
    if kind in ("mock", "none") and words.unknown:
        raise ConfigError(f"unknown options: {' '.join(words.unknown)}")
    if kind == "none" and words.rest:
        raise ConfigError(f"no engine is started that could take {' '.join(words.rest)}")
    table = {flag.name: flag for flag in SERVE}
    hint = "Remove them" + (", or give those meant for vLLM alone after `--`." if kind in ("auto", "vllm") else ".")
    warnings = sort_out(values, table, lambda flag: words.written.get(flag.name, flag.option), hint)
    sections = _sections(values, table)
    sections["model"] |= {"model": named[0]} if named else {"is_default": True}
    engine = {"python": env.engine_python(), **sections["engine"], "kind": kind}
    if kind == "none":
        engine["size_local"] = 0
        if "max_model_len" in values:
            warnings += ("--max-model-len has no effect: engines from outside have their own",)
    local, size = engine.get("size_local"), engine.get("size", 1)
    if local is not None and local > size:
        raise ConfigError(f"--data-parallel-size-local {local} is more than --data-parallel-size {size}")
    engine["arguments"] = {one: _engine_arguments(one, words, table) for one in _KINDS.get(kind, (kind,))}
    return _config(sections, EngineConfig(**engine), warnings)


def render_config(argv: Sequence[str]) -> RenderConfig:
    """`MODEL [options]`; raises ConfigError."""
    if not argv or argv[0].startswith("-"):
        raise ConfigError("the model must come right after `render`: fastfront render MODEL [options]")
    words = read_words(argv[1:], RENDER)
    stray = [*words.unknown, *words.rest]
    if stray:
        raise ConfigError(f"unknown options: {' '.join(stray)}")
    table = {flag.name: flag for flag in RENDER}
    warnings = sort_out(words.values, table, lambda flag: words.written.get(flag.name, flag.option), "Remove them.")
    sections = _sections(words.values, table)
    sections["model"]["model"] = argv[0]
    api = sections["api"]
    api.setdefault("enable_tokenizer_info_endpoint", True)
    return RenderConfig(**_records(sections, warnings))


def frontend_config(argv: Sequence[str]) -> Config:
    """What vLLM's supervisor gives (wire a.3); raises ConfigError."""
    words = read_words(argv, FRONTEND)
    stray = [*words.unknown, *words.rest]
    if stray:
        raise ConfigError(f"unknown options: {' '.join(stray)}")
    missing = [flag.option for flag in FRONTEND if flag.required and flag.name not in words.values]
    if missing:
        raise ConfigError(f"missing: {', '.join(missing)}")
    table = {flag.name: flag for flag in FRONTEND}
    sort_out(words.values, table, lambda flag: flag.option, "Remove them.")
    sections = _sections(words.values, table)
    inherited = sections.pop("inherited")

    args = read_args(words.values["args_json"], ARGS_JSON)
    keys = {flag.name: flag for flag in ARGS_JSON}
    warnings = sort_out(args, keys, lambda flag: flag.name, "Remove them from the command line of `vllm serve`.")
    for section, given in _sections(args, keys).items():
        sections.setdefault(section, {}).update(given)
    return _config(sections, InheritedConfig(**inherited), warnings)


#: What an engine that is not decided yet may become.
_KINDS = {"auto": ("torch", "vllm"), "none": ()}
#: Of the options that both sides need, those that the built-in engine has a use for.
_OF_TORCH = ("max_model_len", "disable_log_stats", "log_level", "hf_overrides")


def _serve_words(argv: Sequence[str], at: int) -> Words:
    try:
        return read_words(argv[at:], SERVE)
    except ConfigError as error:
        if not at and str(error).startswith("unexpected argument"):
            raise ConfigError(f"{error}; the model comes right after `serve`") from None
        raise


def _engine_kind(values: dict[str, Any]) -> Literal["auto", "torch", "vllm", "mock", "none"]:
    kind: Literal["auto", "torch", "vllm", "mock", "none"] = values.get("engine", "auto")
    if kind == "none" and values.get("data_parallel_size_local"):
        raise ConfigError("--engine none starts no engine, but --data-parallel-size-local wants some")
    return "none" if values.get("data_parallel_size_local") == 0 else kind


def _sections(values: dict[str, Any], table: dict[str, Flag]) -> Sections:
    """The values sorted by the record of config.py that they go into."""
    out: Sections = {name: {} for name in ("http", "tls", "cors", "model", "api", "engine", "inherited", "config")}
    for name, value in values.items():
        section, _, field = table[name].field.partition(".")
        if section and value is not None:
            out[section][field] = tuple(value) if isinstance(value, list) else value
    return out


def _config(sections: Sections, engine: EngineConfig | InheritedConfig, warnings: tuple[str, ...]) -> Config:
    """Puts the records together, with the environment where no flag was given."""
    sections["config"].setdefault("ready_timeout", env.engine_ready_timeout())
    return Config(**_records(sections, warnings), engine=engine)


def _records(sections: Sections, warnings: tuple[str, ...]) -> dict[str, Any]:
    """What every command's record has."""
    http, whole = sections["http"], sections["config"]
    http.setdefault("keep_alive_timeout", env.http_timeout_keep_alive())
    whole.setdefault("log_level", env.logging_level())
    if "log_stats" in whole:
        whole["log_stats"] = not whole["log_stats"]
    if env.server_dev_mode():
        warnings += ("VLLM_SERVER_DEV_MODE has no effect: the developer routes are not served yet",)
    warnings += _check_api(sections["api"])
    return {
        "http": HttpConfig(
            **{**http, "api_keys": _api_keys(http.get("api_keys"))},
            tls=_tls(sections["tls"]),
            cors=CorsConfig(**sections["cors"]),
        ),
        "model": ModelConfig(**sections["model"]),
        "api": ApiConfig(**sections["api"]),
        "warnings": warnings,
        **whole,
    }


def _check_api(given: dict[str, Any]) -> tuple[str, ...]:
    """Warnings of flags that another one makes useless; ConfigError for what is missing."""
    if given.get("log_outputs") and not given.get("log_requests"):
        raise ConfigError("--enable-log-outputs needs --enable-log-requests")
    custom = given.get("fingerprint_mode") == "custom"
    if custom and given.get("fingerprint_value") is None:
        raise ConfigError("--fingerprint-mode custom needs --fingerprint-value")
    if not custom and given.get("fingerprint_value") is not None:
        return ("--fingerprint-value has no effect without --fingerprint-mode custom",)
    return ()


def _api_keys(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The keys; an empty one counts as none, as in vLLM."""
    keys = (given,) if isinstance(given, str) else given or ()
    return tuple(key for key in keys or (env.api_key() or "",) if key)


def _tls(given: dict[str, Any]) -> TlsConfig | None:
    if given and "certfile" not in given:
        raise ConfigError("TLS options are given without ssl_certfile, which turns TLS on")
    return TlsConfig(**given) if given else None


def _engine_arguments(kind: str, words: Words, table: dict[str, Flag]) -> tuple[str, ...]:
    """The words for the engine: what the table does not know, what both sides need, what follows `--`."""
    wanted = _OF_TORCH if kind == "torch" else ("max_model_len",)
    shared = {name: value for name, value in words.values.items() if name in wanted}
    if kind == "vllm":
        shared |= {name: value for name, value in words.values.items() if table[name].to_engine}
        if shared.get("tokenizer_mode") == "harmony":  # the engine knows it by the model's type alone
            del shared["tokenizer_mode"]
    spelled: list[str] = []
    for name, value in shared.items():
        flag = table[name]
        if flag.is_default(value):
            continue
        if KINDS[flag.kind].arity == "switch" or value is True:
            spelled.append(flag.option if value else "--no-" + flag.option[2:])
        else:
            spelled += [flag.option, json.dumps(value) if isinstance(value, dict) else str(value)]
    return (*words.unknown, *spelled, *words.rest)
