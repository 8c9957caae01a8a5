"""Makes the requests of both APIs: as vLLM's benchmark writes them."""

from __future__ import annotations

from typing import Any

import msgspec

from fastfront.load.options import Asking, Target
from fastfront.load.sample import Sample

_encode = msgspec.json.Encoder().encode


class Bodies:
    """Writes request bodies for one target."""

    def __init__(self, target: Target, asking: Asking) -> None:
        self._chat = target.chat
        self._last: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        if asking.logprobs is not None:
            if target.chat:
                self._last |= {"logprobs": True, "top_logprobs": asking.logprobs}
            else:
                self._last["logprobs"] = asking.logprobs
        if asking.ignore_eos:
            self._last["ignore_eos"] = True
        self._last |= asking.fields

    def write(self, sample: Sample, model: str) -> bytes:
        """The body that asks `model` for the sample's answer."""
        if self._chat:
            prompt = sample.prompt
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            asked = {"model": model, "messages": messages, "max_completion_tokens": sample.output_tokens}
        else:
            asked = {"model": model, "prompt": sample.prompt, "max_tokens": sample.output_tokens}
        return _encode(asked | self._last)
