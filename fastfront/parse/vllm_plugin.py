"""Takes vLLM's own parser plug-ins as they are, where vllm is installed.

They are subclasses of its ToolParser and ReasoningParser, registered with its managers, and want token ids beside the
text: these are made by encoding each piece of text.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from fastfront.flow import CallArguments, CallEnd, CallStart, Content, Event, Reasoning
from fastfront.parse import plugin
from fastfront.parse.tables import call_id

log = logging.getLogger("fastfront.parse")


def adopt(model: str) -> list[str]:
    """Registers what plug-ins have registered with vLLM's managers; the names. `model` gives the tokenizer."""
    names = []
    for module, manager, registered, adapter in (
        ("vllm.tool_parsers.abstract_tool_parser", "ToolParserManager", plugin.TOOL_PARSERS, ToolAdapter),
        ("vllm.reasoning.abs_reasoning_parsers", "ReasoningParserManager", plugin.REASONING_PARSERS, ReasoningAdapter),
    ):
        if module not in sys.modules:
            continue
        theirs: Any = getattr(sys.modules[module], manager)
        made = getattr(theirs, "tool_parsers", None) or getattr(theirs, "reasoning_parsers", {})
        paths = {name: path for name, (path, _) in theirs.lazy_parsers.items()}
        paths |= {name: kind.__module__ for name, kind in made.items()}
        for name, path in paths.items():
            if path.partition(".")[0] == "vllm":
                continue
            get = theirs.get_tool_parser if adapter is ToolAdapter else theirs.get_reasoning_parser
            registered[name] = partial(adapter, get(name), model)
            names.append(name)
    return names


@cache
def tokenizer(model: str) -> Any:
    """vLLM's tokenizer of the model."""
    return importlib.import_module("vllm.tokenizers").get_tokenizer(model)


class _Adapter:
    """What both kinds share: all text and ids so far."""

    def __init__(self, model: str) -> None:
        self._tokenizer = tokenizer(model)
        self._text = ""
        self._ids: list[int] = []

    def _step(self, text: str) -> tuple[str, str, str, list[int], list[int], list[int]]:
        """The arguments of their streaming methods for one more piece of text."""
        ids = list(self._tokenizer.encode(text, add_special_tokens=False))
        before, ids_before = self._text, self._ids
        self._text += text
        self._ids = ids_before + ids
        return before, self._text, text, ids_before, self._ids, ids


class ToolAdapter(_Adapter):
    """One of vLLM's tool parsers for one answer."""

    def __init__(
        self, kind: Any, model: str, tools: Sequence[Mapping[str, Any]], in_reasoning: bool | None = None
    ) -> None:
        super().__init__(model)
        protocol = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")
        self._request = protocol.ChatCompletionRequest(
            model=model, messages=[], tools=list(tools) or None, tool_choice="auto" if tools else None
        )
        self._parser = kind(self._tokenizer, self._request.tools)
        self._open = -1

    def feed(self, text: str) -> list[Event]:
        """What the parser makes of one more piece."""
        try:
            delta = self._parser.extract_tool_calls_streaming(*self._step(text), self._request)
        except Exception:
            log.exception("a tool parser plug-in failed; the text is passed on as it is")
            return [Content(text)]
        return self._events(delta) if delta is not None else []

    def finish(self) -> list[Event]:
        """Ends the call that is open."""
        events: list[Event] = []
        if self._open >= 0:
            rest = self._parser.get_remaining_unstreamed_args()
            if rest:
                events.append(CallArguments(self._open, rest))
            events.append(CallEnd(self._open))
        return events

    def _events(self, delta: Any) -> list[Event]:
        events: list[Event] = [Content(delta.content)] if delta.content else []
        for call in delta.tool_calls or ():
            function = call.function
            if call.index > self._open and function is not None and function.name:
                if self._open >= 0:
                    events.append(CallEnd(self._open))
                self._open = call.index
                events.append(CallStart(call.index, call.id or call_id(), function.name))
            if function is not None and function.arguments:
                events.append(CallArguments(call.index, function.arguments))
        return events


class ReasoningAdapter(_Adapter):
    """One of vLLM's reasoning parsers for one answer."""

    def __init__(
        self, kind: Any, model: str, tools: Sequence[Mapping[str, Any]], in_reasoning: bool | None = None
    ) -> None:
        super().__init__(model)
        self._parser = kind(self._tokenizer)
        self._ended = in_reasoning is False

    def feed(self, text: str) -> list[Event]:
        """What the parser makes of one more piece."""
        if self._ended:
            return [Content(text)]
        try:
            step = self._step(text)
            delta = self._parser.extract_reasoning_streaming(*step)
            self._ended = bool(self._parser.is_reasoning_end_streaming(step[4], step[5]))
        except Exception:
            log.exception("a reasoning parser plug-in failed; the text is passed on as it is")
            return [Content(text)]
        if delta is None:
            return []
        events: list[Event] = [Reasoning(delta.reasoning)] if delta.reasoning else []
        return [*events, Content(delta.content)] if delta.content else events

    def finish(self) -> list[Event]:
        """Nothing is held."""
        return []
