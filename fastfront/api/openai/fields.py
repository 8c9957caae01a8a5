"""The request fields that completions and chat completions share, with vLLM's names and defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Scalar = str | int | float
#: How many log-probabilities; a number, not one written as text (api.coerce).
Count = Annotated[int, Meta(extra={"text": False})]


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a stream carries beside the text."""

    include_usage: bool | UnsetType | None = UNSET
    continuous_usage_stats: bool | UnsetType | None = UNSET


class StructuredOutputs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """vLLM's own form of guided decoding: one constraint, and options."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None


class RepetitionDetection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """When the engine ends a text that repeats itself."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


class GenerationFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Everything both endpoints take; null is allowed exactly where vLLM's Python frontend allows it."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: Int64 | None = None
    watermarking: bool | None = None

    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []
    repetition_detection: RepetitionDetection | None = None
    #: Checked by hand: vLLM coerces nothing here.
    thinking_token_budget: Any = None
    structured_outputs: StructuredOutputs | None = None
    #: Checked by hand: which fields it has depends on its type.
    response_format: dict[str, Any] | None = None

    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    truncation_side: Literal["left", "right"] | None = None

    prompt_logprobs: Count | None = None
    logprob_token_ids: list[int] | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    routed_experts_prompt_start: Annotated[int, Meta(ge=0)] = 0

    use_beam_search: bool = False
    length_penalty: float = 1.0

    request_id: str | UnsetType = UNSET
    session_id: str | None = None
    priority: Int64 = 0
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Scalar | list[Scalar]] | None = None
    stream_interval: Annotated[int, Meta(ge=1)] | None = None

    def logprobs_wanted(self) -> tuple[int | None, int | None]:
        """How many rivals of each generated token and of each prompt token the engine is to tell; None: nothing."""
        return None, self.prompt_logprobs

    # of the render endpoints only; vLLM checks their types here too
    return_token_offsets: bool | None = False
    mm_payload: Literal["tensors", "none"] = "tensors"
    return_mm_kwargs: bool | None = None
