"""Sampling parameters: checks what the client sent, fills in the model's defaults, builds what the engine gets.

The engine trusts the frontend (wire f): a parameter that its own checks would refuse kills its input thread. So nothing
leaves here that is out of range. Messages and `param` are those of vLLM's Python frontend.
"""

from __future__ import annotations

import math
from typing import Any

from fastfront.api.openai.constraint import constraint
from fastfront.api.openai.fields import GenerationFields, RepetitionDetection
from fastfront.api.openai.integers import check_64_bits
from fastfront.api.state import Limits, Tokenizer
from fastfront.errors import RequestError
from fastfront.flow import ModelInfo, SamplingParams

DELTA = 1
MIN_TEMPERATURE = 0.01
MAX_LOGPROB_TOKEN_IDS = 128
#: What is tokenized on the event loop for one request's bad words.
MAX_BAD_WORDS_CHARS = 8192
_SHOWN = 20
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
#: Its very objects, not only equal ones, are what the encoder leaves out.
_NEUTRAL = SamplingParams()
_PICKED = (
    "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
)  # fmt: skip


def sampling_params(
    fields: GenerationFields, n: int, info: ModelInfo, tokenizer: Tokenizer, limits: Limits
) -> SamplingParams:
    """What one engine request gets beside its own max_tokens and seed."""
    _check_n(n, limits)
    numbers = _numbers(fields, info.sampling_defaults)
    if numbers["temperature"] == 0.0 and n > 1:
        raise RequestError(f"n must be 1 when using greedy sampling, got {n}.")
    logprobs, prompt_logprobs = fields.logprobs_wanted()
    chosen = fields.logprob_token_ids or None
    return SamplingParams(
        **numbers,
        watermarking=fields.watermarking,
        output_kind=DELTA,
        stream_interval=None if fields.stream_interval is None else min(fields.stream_interval, _INT32_MAX),
        routed_experts_prompt_start=fields.routed_experts_prompt_start,
        extra_args=_extra_args(fields),
        structured_outputs=constraint(fields.structured_outputs, fields.response_format),
        repetition_detection=_repetition(fields.repetition_detection),
        thinking_token_budget=_budget(fields.thinking_token_budget),
        logit_bias=_logit_bias(fields.logit_bias, info.vocab_size),
        logprobs=logprobs if chosen is None else None,
        prompt_logprobs=prompt_logprobs,
        skip_reading_prefix_cache=None if prompt_logprobs is None else True,  # a cached prompt has none
        logprob_token_ids=chosen,
        allowed_token_ids=_allowed(fields.allowed_token_ids, info.vocab_size),
        bad_words_token_ids=bad_words_ids(fields.bad_words, tokenizer, limits) if fields.bad_words else None,
        **_stop_ids(fields, info),
    )


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop strings as a tuple; RequestError if one is empty."""
    if not stop:
        if stop == "":
            raise RequestError("stop cannot contain an empty string.")
        return ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stops:
        raise RequestError("stop cannot contain an empty string.")
    return stops


def check_tokens(most: int, least: int) -> None:
    """RequestError if no answer can have between `least` and `most` tokens."""
    if most < 1:
        raise _out_of_range("max_tokens", "must be at least 1", most)
    if least > most:
        raise RequestError(f"min_tokens must be less than or equal to max_tokens={most}, got {least}.")


def check_logprobs(params: SamplingParams, most: int, vocab_size: int) -> None:
    """RequestError for more log-probabilities than the server gives (`most`; -1: as many as there are tokens)."""
    most = vocab_size if most == -1 else most
    for name, kind in (("logprobs", "sample"), ("prompt_logprobs", "prompt")):
        value = getattr(params, name)
        value = vocab_size if value == -1 else value
        if value is not None and value > most:
            raise RequestError(
                f"Requested {kind} logprobs of {value}, which is greater than max allowed: {most}",
                param=name,
                value=value,
                limit=most,
            )
    if params.logprob_token_ids is not None:
        count = len(params.logprob_token_ids)
        if count > MAX_LOGPROB_TOKEN_IDS:
            raise RequestError(
                f"Requested logprob_token_ids of length {count}, which is greater than max allowed: "
                f"{MAX_LOGPROB_TOKEN_IDS}",
                param="logprob_token_ids",
                value=count,
                limit=MAX_LOGPROB_TOKEN_IDS,
            )
        _check_vocabulary("logprob_token_ids", params.logprob_token_ids, vocab_size)


def bad_words_ids(words: list[str], tokenizer: Tokenizer, limits: Limits) -> list[list[int]]:
    """The id lists to ban: each word as it begins a text and as it stands after a space."""
    if "" in words:
        raise RequestError(f"bad_words cannot contain an empty string. Got bad_words={words[:_SHOWN]}")
    if sum(map(len, words)) > MAX_BAD_WORDS_CHARS:
        raise RequestError(
            f"bad_words must have at most {MAX_BAD_WORDS_CHARS} characters together.",
            param="bad_words",
            value=sum(map(len, words)),
            limit=MAX_BAD_WORDS_CHARS,
        )
    banned: list[list[int]] = []
    for word in dict.fromkeys(words):
        bare = tokenizer.encode(word.lstrip(), add_special_tokens=False)
        if not bare:
            raise RequestError("bad_words entries must tokenize to at least one token.", param="bad_words", value=words)
        banned.append(bare)
        spaced = tokenizer.encode(" " + word.lstrip(), add_special_tokens=False)
        if spaced and spaced[0] != bare[0] and len(spaced) == len(bare):
            banned.append(spaced)
        if len(banned) > limits.bad_words:
            raise RequestError(
                f"Too many bad words after tokenization: {len(banned)}. The max number is {limits.bad_words}.",
                param="bad_words",
                limit=limits.bad_words,
            )
    return banned


def _numbers(fields: GenerationFields, defaults: dict[str, Any]) -> dict[str, Any]:
    """Those that the model may have defaults for, and min_tokens, as the engine is to get them."""
    numbers = {name: _pick(fields, defaults, name) for name in _PICKED}
    numbers["min_tokens"] = fields.min_tokens
    _check_ranges(numbers)
    numbers["top_k"] = min(max(numbers["top_k"], 0), _INT32_MAX)  # more than any vocabulary has
    if numbers["temperature"] == 0.0:
        numbers.update((name, getattr(_NEUTRAL, name)) for name in ("top_p", "top_k", "min_p"))
    elif numbers["temperature"] < MIN_TEMPERATURE:
        numbers["temperature"] = MIN_TEMPERATURE
    return numbers


def _check_ranges(numbers: dict[str, Any]) -> None:
    """As vLLM's; NaN is out of every range."""
    for name in ("presence_penalty", "frequency_penalty"):
        if not -2.0 <= numbers[name] <= 2.0:
            raise RequestError(f"{name} must be in [-2, 2], got {numbers[name]}.")
    repetition, temperature, top_p = numbers["repetition_penalty"], numbers["temperature"], numbers["top_p"]
    if not (math.isfinite(repetition) and repetition > 0.0):
        raise RequestError(f"repetition_penalty must be a finite number greater than zero, got {repetition}.")
    if not 0.0 <= temperature <= 2.0:
        if not math.isfinite(temperature):
            rule = "must be a finite number"
        else:
            rule = "must be non-negative" if temperature < 0.0 else "must be in [0, 2]"
        raise _out_of_range("temperature", rule, temperature)
    if not 0.0 < top_p <= 1.0:
        raise _out_of_range("top_p", "must be in (0, 1]", top_p)
    if numbers["top_k"] < -1:
        raise RequestError(f"top_k must be 0 (disable), or at least 1, got {numbers['top_k']}.")
    if not 0.0 <= numbers["min_p"] <= 1.0:
        raise RequestError(f"min_p must be in [0, 1], got {numbers['min_p']}.")
    if numbers["min_tokens"] < 0:
        raise RequestError(f"min_tokens must be greater than or equal to 0, got {numbers['min_tokens']}.")


def _pick(fields: GenerationFields, defaults: dict[str, Any], name: str) -> Any:
    """The request's value, else the model's, else the neutral one."""
    value = getattr(fields, name)
    if value is None:
        value = defaults.get(name)
    return getattr(_NEUTRAL, name) if value is None else value


def _check_n(n: int, limits: Limits) -> None:
    if n < 1:
        raise RequestError(f"n must be at least 1, got {n}.")
    if n > limits.sequences:
        raise RequestError(
            f"n must be at most {limits.sequences}, got {n}. "
            "To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable.",
            limit=limits.sequences,
        )


def _out_of_range(name: str, rule: str, value: float) -> RequestError:
    return RequestError(f"{name} {rule}, got {value}.", param=name, value=value)


def _extra_args(fields: GenerationFields) -> dict[str, Any] | None:
    if not (fields.vllm_xargs or fields.kv_transfer_params or fields.ec_transfer_params):
        return None
    extra: dict[str, Any] = dict(fields.vllm_xargs or {})
    if fields.kv_transfer_params:
        extra["kv_transfer_params"] = fields.kv_transfer_params
    if fields.ec_transfer_params:
        extra["ec_transfer_params"] = fields.ec_transfer_params
    for name in ("vllm_xargs", "kv_transfer_params", "ec_transfer_params"):
        check_64_bits(getattr(fields, name), name)
    return extra


def _repetition(wish: RepetitionDetection | None) -> dict[str, int] | None:
    if wish is None:
        return None
    sizes = (wish.max_pattern_size, wish.min_pattern_size, wish.min_count)
    if not all(0 <= size <= _INT64_MAX for size in sizes) or wish.min_pattern_size > wish.max_pattern_size:
        raise RequestError(
            "repetition_detection: max_pattern_size, min_pattern_size and min_count must be >= 0, "
            "with min_pattern_size <= max_pattern_size.",
            param="repetition_detection",
        )
    if wish.max_pattern_size > 0 and wish.min_count < 2:
        raise RequestError(
            "repetition_detection: min_count must be >= 2; set max_pattern_size to 0 to detect nothing.",
            param="repetition_detection",
        )
    return {
        "max_pattern_size": wish.max_pattern_size,
        "min_pattern_size": wish.min_pattern_size,
        "min_count": wish.min_count,
    }


def _budget(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not -1 <= value <= _INT64_MAX:
        raise RequestError(
            "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
            param="thinking_token_budget",
            value=value,
        )
    return None if value == -1 else value


def _logit_bias(bias: dict[str, float] | None, vocab_size: int) -> dict[int, float] | None:
    if not bias:
        return None
    result: dict[int, float] = {}
    wrong: list[str] = []
    for key, value in bias.items():
        try:
            result[int(key)] = min(100.0, max(-100.0, value))
        except ValueError:
            wrong.append(key)
        if math.isnan(value):
            raise RequestError("logit_bias values must be numbers.", param="logit_bias", value=value)
    if wrong:
        raise RequestError(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {wrong!r}",
            param="logit_bias",
            value=wrong,
        )
    _check_vocabulary("logit_bias", list(result), vocab_size)
    return result


def _allowed(ids: list[int] | None, vocab_size: int) -> list[int] | None:
    if ids is None:
        return None
    if not ids:
        raise RequestError("allowed_token_ids is not None and empty!", param="allowed_token_ids", value=ids)
    _check_vocabulary("allowed_token_ids", ids, vocab_size)
    return ids


def _stop_ids(fields: GenerationFields, info: ModelInfo) -> dict[str, Any]:
    """Stop ids of the request and of the model, and those that min_tokens masks (wire d.2)."""
    asked = list(dict.fromkeys(fields.stop_token_ids or ()))
    if asked:
        _check_vocabulary("stop_token_ids", asked, info.vocab_size)
    asked = list(dict.fromkeys((*asked, *info.sampling_defaults.get("stop_token_ids", ()))))
    eos = info.eos_token_id
    own = ([] if eos is None else [eos]) + info.extra_eos_token_ids
    masked = list(dict.fromkeys((*asked, *own)))
    if not fields.ignore_eos:
        asked = list(dict.fromkeys((*asked, *info.extra_eos_token_ids)))
    return {
        "eos_token_id": None if fields.ignore_eos else eos,
        "stop_token_ids": asked or None,
        "all_stop_token_ids": masked,
    }


def _check_vocabulary(name: str, ids: list[int], vocab_size: int) -> None:
    if min(ids) < 0 or max(ids) >= vocab_size:
        wrong = [token_id for token_id in ids if not 0 <= token_id < vocab_size]
        raise RequestError(
            f"token_id(s) {wrong[:20]} in {name} contain out-of-vocab token ids. Vocabulary size: {vocab_size}",
            param=name,
            value=wrong[:20],
            limit=vocab_size,
        )
