"""Serves GET /tokenizer_info."""

from __future__ import annotations

from typing import Any

import msgspec

from fastfront.api.state import RenderState
from fastfront.flow import Handler, HttpRequest, Reply

#: Paths on this machine.
_PATHS = ("vocab_file", "merges_file", "tokenizer_file", "name_or_path")


def tokenizer_info(state: RenderState) -> Handler:
    """The handler; what it tells does not change."""
    config = state.pipeline.prompter.tokenizer.config
    told = {name: _plain(value) for name, value in config.items() if name not in _PATHS}
    if state.chat_template is not None:
        told["chat_template"] = state.chat_template
    body = msgspec.json.encode({"tokenizer_class": config.get("tokenizer_class"), **told})

    def handle(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, body)

    return handle


def _plain(value: Any) -> Any:
    """A token object is told by its text."""
    if isinstance(value, dict):
        if "content" in value:
            return value["content"]
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
