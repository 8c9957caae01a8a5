"""What comes in: the records of requests, with the checks that a real engine runs while it decodes (wire d, f)."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from fastfront.engine.rank.frames import unpack


class UnreadableError(Exception):
    """A payload that cannot be decoded."""


class Lora(msgspec.Struct, array_like=True):
    """LoRARequest (wire d.5)."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    base_model_name: str | None = None
    load_inplace: bool = False
    is_3d_lora_weight: bool = False

    def __post_init__(self) -> None:
        if self.lora_int_id < 1 or not self.lora_path:
            raise ValueError("an adapter needs an id above 0 and a path")


class Structured(msgspec.Struct):
    """StructuredOutputsParams (wire d.3)."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None
    backend: str | None = msgspec.field(default=None, name="_backend")
    backend_was_auto: bool = msgspec.field(default=False, name="_backend_was_auto")

    def __post_init__(self) -> None:
        kinds = (self.json, self.regex, self.choice, self.grammar, self.json_object, self.structural_tag)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("exactly one kind of structured output must be given")


class Repetition(msgspec.Struct):
    """RepetitionDetectionParams."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.min_pattern_size <= self.max_pattern_size:
            raise ValueError("repetition_detection: 0 <= min_pattern_size <= max_pattern_size")
        if self.max_pattern_size > 0 and self.min_count < 2:
            raise ValueError("repetition_detection: min_count must be at least 2")


class Sampling(msgspec.Struct):
    """SamplingParams (wire d.2) with the checks that a real engine runs while it decodes."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    watermarking: bool | None = None
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprob_token_ids: list[Any] | None = None
    prompt_logprob_start: int | None = None
    logprob_token_ids: list[int] | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: int = 0
    stream_interval: int | None = None
    skip_clone: bool = False
    output_text_buffer_length: int = 0
    eos_token_id: int | None = msgspec.field(default=None, name="_eos_token_id")
    all_stop_token_ids: set[int] = msgspec.field(default_factory=set, name="_all_stop_token_ids")
    watermarking_skipped: bool = msgspec.field(default=False, name="_watermarking_skipped")
    structured_outputs: Structured | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    bad_words: list[str] | None = None
    bad_words_token_ids: list[list[int]] | None = msgspec.field(default=None, name="_bad_words_token_ids")
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: Repetition | None = None
    routed_experts_prompt_start: int = 0
    trace_decode_token_ids: list[int] | None = None

    def __post_init__(self) -> None:
        rules = {
            "n": self.n >= 1 and (self.n == 1 or self.temperature >= 1e-5),
            "presence_penalty": -2 <= self.presence_penalty <= 2,
            "frequency_penalty": -2 <= self.frequency_penalty <= 2,
            "repetition_penalty": 0 < self.repetition_penalty < math.inf,
            "temperature": 0 <= self.temperature <= 2,
            "top_p": 0 < self.top_p <= 1,
            "top_k": self.top_k >= -1,
            "min_p": 0 <= self.min_p <= 1,
            "max_tokens": self.max_tokens is None or self.max_tokens >= 1,
            "min_tokens": 0 <= self.min_tokens <= (self.max_tokens or self.min_tokens),
            "logprobs": self.logprobs is None or self.logprobs >= -1,
            "prompt_logprobs": self.prompt_logprobs is None or self.prompt_logprobs >= -1,
            "stream_interval": self.stream_interval is None or self.stream_interval >= 1,
            "output_kind": self.output_kind in (0, 1, 2),
            "stop": "" not in (self.stop or ()) and self.stop != "",
            "bad_words": "" not in (self.bad_words or ()),
        }
        for name, kept in rules.items():
            if not kept:
                raise ValueError(f"{name} is out of range")


class Add(msgspec.Struct, array_like=True):
    """EngineCoreRequest (wire d.1): nine fields without a default, readers accept more than they know."""

    request_id: str
    prompt_token_ids: list[int] | None
    mm_features: list[dict[str, Any]] | None
    sampling_params: Sampling | None
    pooling_params: list[Any] | None
    arrival_time: float
    lora_request: Lora | None
    cache_salt: str | None
    data_parallel_rank: int | None
    prompt_embeds: list[Any] | None = None
    prompt_is_token_ids: list[bool] | None = None
    client_index: int = 0
    current_wave: int = 0
    priority: int = 0
    trace_headers: dict[str, str] | None = None
    resumable: bool = False
    external_req_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None
    abort_immediately: bool = False
    session_id: str | None = None
    kv_hints: dict[str, Any] | None = None


decode_add = msgspec.msgpack.Decoder(Add).decode


def read_list(frames: list[bytes], kind: str) -> list[Any]:
    """The array that an ABORT, a UTILITY or a START_DP_WAVE carries."""
    try:
        body = unpack(frames[0])
    except (msgspec.MsgspecError, IndexError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{kind}: {error}") from error
    if not isinstance(body, list):
        raise UnreadableError(f"{kind}: not an array")
    return body
