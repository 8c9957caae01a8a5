"""The only file that reads the environment. vLLM's names are kept where vLLM has one (wire a.4)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fastfront.errors import ConfigError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def native() -> str:
    """FASTFRONT_NATIVE: auto (compiled modules if they are there), 1 (insist) or 0 (pure Python)."""
    value = os.environ.get("FASTFRONT_NATIVE", "auto")
    if value not in ("auto", "1", "0"):
        raise ConfigError(f"FASTFRONT_NATIVE must be auto, 1 or 0, not {value!r}")
    return value


def _text(name: str) -> str | None:
    """The variable, None where it is unset or empty."""
    return os.environ.get(name) or None


def _natural(name: str, default: int) -> int:
    """A whole number of at least 0."""
    value = _text(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()):
        raise ConfigError(f"{name} must be a whole number of at least 0, not {value!r}")
    return int(value)


def _switch(name: str) -> bool:
    """0 or 1; unset is off."""
    return _natural(name, 0) != 0


def single_threaded_fastokens() -> None:
    """FASTOKENS_BPE_THREADS: 1 unless it is set, so that its threads do not spin beside the event loop."""
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")


def sleeping_openmp() -> None:
    """OMP_WAIT_POLICY: PASSIVE unless it is set, so that torch's threads do not spin on cores that others need."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def max_stop_strings() -> int:
    """VLLM_MAX_STOP_STRINGS: how many stop strings a request may have."""
    return _natural("VLLM_MAX_STOP_STRINGS", 4)


def max_n_sequences() -> int:
    """VLLM_MAX_N_SEQUENCES: the largest `n`."""
    return _natural("VLLM_MAX_N_SEQUENCES", 16384)


def max_completion_prompts() -> int:
    """VLLM_MAX_COMPLETION_PROMPTS: how many prompts one completion request may have."""
    return _natural("VLLM_MAX_COMPLETION_PROMPTS", 1024)


def max_num_bad_words() -> int:
    """VLLM_MAX_NUM_BAD_WORDS: how many id lists the bad words of a request may give."""
    return _natural("VLLM_MAX_NUM_BAD_WORDS", 128)


def skip_model_name_validation() -> bool:
    """VLLM_SKIP_MODEL_NAME_VALIDATION: whether any model name is taken for the served one."""
    return (_text("VLLM_SKIP_MODEL_NAME_VALIDATION") or "").strip().lower() in ("1", "true")


def api_key() -> str | None:
    """VLLM_API_KEY: the key that clients must send where no --api-key is given."""
    return _text("VLLM_API_KEY")


def openai_api_key() -> str | None:
    """OPENAI_API_KEY: the key that `bench` sends where no header says another."""
    return _text("OPENAI_API_KEY")


def http_timeout_keep_alive() -> int:
    """VLLM_HTTP_TIMEOUT_KEEP_ALIVE: seconds that an idle connection is kept."""
    return _natural("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", 5)


def engine_ready_timeout() -> int:
    """VLLM_ENGINE_READY_TIMEOUT_S: seconds to wait for the engines to register."""
    return _natural("VLLM_ENGINE_READY_TIMEOUT_S", 600)


def logging_level() -> str:
    """VLLM_LOGGING_LEVEL: DEBUG, INFO, WARNING, ERROR or CRITICAL."""
    value = (_text("VLLM_LOGGING_LEVEL") or "INFO").upper()
    if value not in LEVELS:
        raise ConfigError(f"VLLM_LOGGING_LEVEL must be one of {', '.join(LEVELS)}, not {value!r}")
    return value


def server_dev_mode() -> bool:
    """VLLM_SERVER_DEV_MODE: whether the developer routes are wanted."""
    return _switch("VLLM_SERVER_DEV_MODE")


def engine_python() -> str:
    """FASTFRONT_PYTHON, else VLLM_RS_PYTHON, else the one that runs us: the Python that starts vLLM's engine."""
    return _text("FASTFRONT_PYTHON") or _text("VLLM_RS_PYTHON") or sys.executable


def rpc_base_path() -> str | None:
    """VLLM_RPC_BASE_PATH: the folder for the engine sockets; None: the system's for temporary files."""
    return _text("VLLM_RPC_BASE_PATH")


def chat_template_render_timeout() -> float:
    """VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT: seconds that rendering a request's own template may take; 0 is no limit."""
    value = os.environ.get("VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT", "30")
    try:
        return max(0.0, float(value))
    except ValueError:
        raise ConfigError(f"VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT must be seconds, not {value!r}") from None


def regex_compilation_timeout() -> int:
    """VLLM_REGEX_COMPILATION_TIMEOUT_S: seconds that compiling a constraint, to check it, may take; 0 is no limit."""
    return _natural("VLLM_REGEX_COMPILATION_TIMEOUT_S", 5)


def system_start_date() -> str | None:
    """VLLM_SYSTEM_START_DATE: the date that gpt-oss models are told (YYYY-MM-DD); None: today's."""
    return _text("VLLM_SYSTEM_START_DATE")


def harmony_system_instructions() -> bool:
    """VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS: whether a gpt-oss prompt has the instructions in its system message."""
    return _switch("VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS")


def cache_folder() -> Path:
    """XDG_CACHE_HOME: the folder that holds ours, `fastfront`; ~/.cache where it is unset or no absolute path."""
    given = Path(_text("XDG_CACHE_HOME") or "")
    return (given if given.is_absolute() else Path.home() / ".cache") / "fastfront"


def progress() -> str:
    """FASTFRONT_PROGRESS: auto (a bar on a terminal, else lines in the log), bar or lines."""
    value = os.environ.get("FASTFRONT_PROGRESS", "auto")
    if value not in ("auto", "bar", "lines"):
        raise ConfigError(f"FASTFRONT_PROGRESS must be auto, bar or lines, not {value!r}")
    return value


def for_child(**more: str) -> dict[str, str]:
    """The environment of a program that we start, with some variables of its own."""
    return {**os.environ, **more}
