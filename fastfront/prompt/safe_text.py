"""Keeps control tokens that stand in a client's text from becoming control tokens (--safe-user-text).

Before rendering, characters of the client's strings without which no control token can be written (brackets and bars,
mostly) are replaced by private-use ones, sentinels. A template passes them on like any other character. In the rendered
text every control token that still stands there is the template's own: it keeps its id. The text between is put back
and encoded as plain text.

A control token made from the template's brackets and a client's word (`"<" ~ key ~ ">"`) is broken in the same way: a
string that is the inner word of a control token gets a sentinel for its first letter.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tokenizers
from msgspec.structs import replace
from tokenizers.models import BPE

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.plain import PlainEncoder, control_tokens
from fastfront.prompt.tokenizer import not_unicode

_BRACKETS = frozenset("<>[]{}|｜")
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
#: Keys of messages, calls and JSON schemas: templates look for them, so they are never changed.
_KEYS = frozenset(
    (
        "role", "content", "name", "text", "type", "refusal", "thinking", "reasoning", "reasoning_content",
        "tool_calls", "tool_call_id", "id", "function", "arguments", "description", "parameters", "strict",
        "properties", "required", "items", "enum", "default", "title", "examples", "anyOf", "oneOf", "allOf",
        "additionalProperties", "format", "nullable", "tools", "documents", "task",
    )
)  # fmt: skip
_PRIVATE = range(0xF0000, 0x10FF00, 0x1000)  # where a block of sentinels may begin


class Marks(NamedTuple):
    """The sentinels of one request."""

    #: As str.translate takes it: original to sentinel, for all strings; and for the first letter of inner words.
    signs: dict[int, int]
    letters: dict[int, int]
    back: dict[int, int]
    #: Sentinels, also as templates may write them, to originals; the pattern finds any of them.
    forms: dict[str, str]
    pattern: re.Pattern[str]

    def readable(self, error: RequestError) -> RequestError:
        """The error of a rendering, in the client's own words."""
        return RequestError(self.restored(error.message), param=error.param, value=error.value, limit=error.limit)

    def restored(self, text: str) -> str:
        """`text` with the client's own characters."""
        if "\\" in text:
            text = self.pattern.sub(lambda match: self.forms[match[0]], text)
        return text.translate(self.back)


class SafeText:
    """For one tokenizer. Its methods may be called from several threads."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._plain = PlainEncoder(backend)
        control = control_tokens(backend)
        self._ids = {token.content: i for i, token in control.items()}
        signs = {sign for token in control.values() for sign in _signs(token.content)}
        if backend.normalizer is not None:
            signs |= _compatible(signs)
        inner = re.compile("[" + re.escape("".join(sorted(signs))) + "]+" if signs else "(?!)")
        pieces = {piece for token in control.values() for piece in inner.split(token.content)}
        self._words = {
            word.casefold() for piece in pieces for word in (piece.strip(), *re.findall(r"\w+", piece)) if word
        }
        self._signs = sorted(map(ord, signs))
        self._letters = sorted(
            {ord(c) for word in self._words for c in (word[0].lower()[0], word[0].upper()[0], word[0])}
        )
        self._blocks: dict[int, Marks] = {}
        # Finds the template's control tokens: it knows no other words, so it is quick.
        self._finder = tokenizers.Tokenizer(BPE())
        if backend.normalizer is not None:
            self._finder.normalizer = backend.normalizer
        self._finder.add_tokens(list(control.values()))
        probe = backend.encode("a")
        added = probe.special_tokens_mask
        self._before = [i for i, mask in zip(probe.ids[: added.index(0)], added, strict=False) if mask]
        self._after = probe.ids[len(added) - added[::-1].index(0) :]

    def mark(self, chat: ChatInput) -> tuple[ChatInput, Marks | None]:
        """The conversation with sentinels; as it is, and None, when there is nothing to mark."""
        try:
            return self._mark(chat)
        except RecursionError:
            raise RequestError("The messages or tools are nested too deeply.", param="messages") from None

    def _mark(self, chat: ChatInput) -> tuple[ChatInput, Marks | None]:
        parts = {
            "messages": _map(_parse_arguments, chat.messages),
            "tools": chat.tools,
            "documents": chat.documents,
            "chat_template_kwargs": chat.chat_template_kwargs,
        }
        if not any(self._is_marked(text, key) for text, key in _strings(parts)):
            return chat, None
        marks = self._marks(parts)
        kwargs = {name: self._marked(value, marks, name) for name, value in chat.chat_template_kwargs.items()}
        rest = {name: self._marked(parts[name], marks) for name in ("messages", "tools", "documents")}
        return replace(chat, **rest, chat_template_kwargs=kwargs, source=b""), marks

    def encode(self, rendered: str, marks: Marks, add_special_tokens: bool, keep: int | None = None) -> list[int]:
        """Ids of a text rendered from a marked conversation; `keep` cuts it at the left, as the tokenizer would."""
        segments: list[str | int] = []
        last = 0
        try:
            found = self._finder.encode(rendered, add_special_tokens=False)
        except TypeError:
            raise not_unicode(rendered) from None
        for token, (start, end) in zip(found.tokens, found.offsets, strict=True):
            segments += [marks.restored(rendered[last:start]), self._ids[token]]
            last = end
        segments.append(marks.restored(rendered[last:]))
        ids = self._plain.encode(segments)
        before, after = (self._before, self._after) if add_special_tokens else ([], [])
        if keep is not None:
            ids = ids[max(0, len(ids) - max(0, keep - len(before) - len(after))) :]
        return [*before, *ids, *after]

    def _is_marked(self, text: str, key: str | None) -> bool:
        return self._is_word(text, key) or any(chr(sign) in text for sign in self._signs)

    def _is_word(self, text: str, key: str | None) -> bool:
        if text.strip().casefold() not in self._words:
            return False
        return not (key == "type" or (key == "role" and text in _ROLES) or (key is _AS_KEY and text in _KEYS))

    def _marked(self, value: Any, marks: Marks, key: str | None = None) -> Any:
        if isinstance(value, str):
            if self._is_word(value, key):
                at = len(value) - len(value.lstrip())
                value = value[:at] + value[at].translate(marks.letters) + value[at + 1 :]
            return value.translate(marks.signs)
        if isinstance(value, list):
            return [self._marked(item, marks, key) for item in value]
        if isinstance(value, dict):
            return {self._marked(name, marks, _AS_KEY): self._marked(item, marks, name) for name, item in value.items()}
        return value

    def _marks(self, parts: dict[str, Any]) -> Marks:
        """Sentinels that occur nowhere in the request, not even written as an escape."""
        everything = "\n".join(text for text, _ in _strings(parts))
        for start in _PRIVATE:
            marks = self._blocks.get(start) or self._blocks.setdefault(start, self._block(start))
            if not marks.pattern.search(everything):
                return marks
        raise RequestError("The request holds characters of all private-use areas.", param="safe_user_text")

    def _block(self, start: int) -> Marks:
        middle, end = start + len(self._signs), start + len(self._signs) + len(self._letters)
        back = dict(zip(range(start, end), (*self._signs, *self._letters), strict=True))
        forms = {form: chr(back[place]) for place in range(start, end) for form in _forms(place)}
        return Marks(
            {back[place]: place for place in range(start, middle)},
            {back[place]: place for place in range(middle, end)},
            back,
            forms,
            re.compile("|".join(map(re.escape, forms)) or "(?!)"),
        )


_AS_KEY = "\0key"  # what _marked is told when the string is itself a key


def _signs(content: str) -> set[str]:
    """Characters of which at least one must be the client's for the client to write the token."""
    first = content.strip()[0]
    return set(content) & _BRACKETS or {first, first.lower()[0], first.upper()[0]}


def _compatible(signs: set[str]) -> set[str]:
    """Characters that a normalizer may turn into signs (full-width brackets, ...)."""
    return {c for c in map(chr, range(0x80, 0x20000)) if not signs.isdisjoint(unicodedata.normalize("NFKC", c))}


def _forms(place: int) -> tuple[str, str, str, str]:
    """A sentinel as it is, and as Python's repr, JSON and Rust write it."""
    return chr(place), repr(chr(place))[1:-1], json.dumps(chr(place))[1:-1], f"\\u{{{place:x}}}"


def _strings(value: Any, key: str | None = None) -> Iterator[tuple[str, str | None]]:
    """Every string of a JSON value with the key that it stands under."""
    if isinstance(value, str):
        yield value, key
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name, _AS_KEY
            yield from _strings(item, name)


def _map(change: Callable[[Any], Any], value: Any) -> Any:
    return [change(item) for item in value] if isinstance(value, list) else value


def _parse_arguments(message: Any) -> Any:
    """Tool calls with their arguments parsed: a control token could hide in their escapes."""
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    return {**message, "tool_calls": [_parsed(call) for call in message["tool_calls"]]}


def _parsed(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(arguments := function.get("arguments"), str):
        return call
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = {}
    return {**call, "function": {**function, "arguments": parsed if isinstance(parsed, dict) else {}}}
