"""Harmony's messages: perhaps an analysis, perhaps a commentary, then calls or the final answer."""

from __future__ import annotations

from collections.abc import Sequence

from fastfront.parse.grammar.formats import Call, Choice, Format, any_text, const, optional, schema, sequence, tag

_CHANNELS = ("<|channel|>commentary", "<|channel|>analysis", "<|channel|>final")
_JSON = (" json", " <|constrain|>json")
#: A message may also end with a stop token, which grammars see as nothing.
_END = ["<|end|>", ""]


def harmony(calls: Sequence[Call], choice: Choice, single: bool) -> Format:
    """A call may name its function before the channel or behind it; there is never more than one."""
    tags = [
        tag(begin.format(name=f" to=functions.{call.name}", channel=channel, json=json), schema(call.schema), [*_END])
        for call in calls
        for begin in ("{name}{channel}{json}<|message|>", "{channel}{name}{json}<|message|>")
        for json in _JSON
        for channel in _CHANNELS
    ]
    if choice == "auto":
        tags += [_final(json, any_text()) for json in (*_JSON, "")]
    return _message({"type": "or", "elements": tags}, ("analysis", "commentary"))


def final_answer(content: Format) -> Format:
    """The format of an answer whose final message is `content`."""
    if content["type"] == "json_schema":
        final: Format = {"type": "or", "elements": [_final(json, content) for json in _JSON]}
    else:
        final = _final("", content)
    return _message(final, ("analysis",))


def _final(json: str, content: Format) -> Format:
    return tag(f"<|channel|>final{json}<|message|>", content, [*_END])


def _message(content: Format, before: Sequence[str]) -> Format:
    channels = [
        optional(sequence(tag(f"<|channel|>{name}<|message|>", any_text(), "<|end|>"), const("<|start|>assistant")))
        for name in before
    ]
    return sequence(*channels, content)
