"""What a request may ask of beam search, and what it cannot."""

from __future__ import annotations

import math

import msgspec

from fastfront.api.openai.fields import GenerationFields
from fastfront.api.state import RenderState
from fastfront.beams import BeamOptions
from fastfront.errors import RequestError, UnsupportedError

#: What says how tokens are drawn means nothing here: none are. These would change which texts are good, or what is told
#: of the prompt, and a search over the engine's log-probabilities has no means for it.
_CANNOT = (
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "allowed_token_ids", "bad_words",
    "min_tokens", "stop", "stop_token_ids", "repetition_detection", "thinking_token_budget",
    "prompt_logprobs",
)  # fmt: skip
_NEUTRAL = {"repetition_penalty": 1.0}


def beam_options(state: RenderState, body: GenerationFields, width: int, constrained_by: str) -> BeamOptions | None:
    """How to search, None where the request asks for no beams; RequestError, or UnsupportedError that names a field.

    `constrained_by` is the field that `body.structured_outputs` comes from.
    """
    if not body.use_beam_search:
        return None
    if body.logprob_token_ids:
        raise RequestError("`logprob_token_ids` is not supported with beam search.", param="logprob_token_ids")
    info, limits, most = state.pipeline.info, state.limits, state.settings.max_logprobs
    if not 1 <= width <= limits.sequences:
        rule = "at least 1" if width < 1 else f"at most {limits.sequences}"
        raise RequestError(f"beam_width must be {rule}, got {width}.")
    most = info.vocab_size if most == -1 else most
    if 2 * width > most:
        raise RequestError(
            f"Requested sample logprobs of {2 * width}, which is greater than max allowed: {most}",
            param="logprobs",
            value=2 * width,
            limit=most,
        )
    if not math.isfinite(body.length_penalty):
        value = body.length_penalty
        raise RequestError(f"length_penalty must be a finite number, got {value}.", param="length_penalty", value=value)
    _refuse(body, constrained_by)
    return BeamOptions(width, body.length_penalty, body.ignore_eos, body.include_stop_str_in_output, info.eos_token_id)


def _refuse(body: GenerationFields, constrained_by: str) -> None:
    if body.structured_outputs is not None or (body.response_format or {}).get("type", "text") != "text":
        message = f"A constraint by `{constrained_by}` is not supported with beam search."
        raise UnsupportedError(message, param=constrained_by)
    defaults = {field.name: field.default for field in msgspec.structs.fields(GenerationFields)}
    for name in _CANNOT:
        value = getattr(body, name)
        if value and value != defaults[name] and value != _NEUTRAL.get(name):
            raise UnsupportedError(f"`{name}` is not supported with beam search.", param=name)
