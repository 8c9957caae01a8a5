"""Harmony, the format of gpt-oss: messages with a header of role, recipient and channel, ended by a control token.

    <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"x": 1}<|call|>

A system message tells date, effort and channels; a developer message holds the instructions and the tools. Which
message of the API becomes which of Harmony follows vLLM's Python frontend. Text never becomes a control token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from fastfront import env
from fastfront.errors import RequestError, StartError
from fastfront.flow import ChatInput
from fastfront.prompt.formats.kwargs import check_ending, template_kwargs
from fastfront.prompt.formats.typescript import namespace
from fastfront.prompt.messages import Message, content_texts, tool_definitions
from fastfront.prompt.plain import PlainEncoder

_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
_CUTOFF = "Knowledge cutoff: 2024-06"
_CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
_TOOL_CHANNEL = "Calls to these tools must go to the commentary channel: 'functions'."
_EFFORTS = ("high", "medium", "low")


class Turn(NamedTuple):
    """One Harmony message; `kind` is what follows the channel in the header (json)."""

    author: str
    texts: list[str]
    channel: str | None = None
    recipient: str | None = None
    kind: str | None = None


class HarmonyFormat:
    """Renders conversations to token ids. `token_to_id` finds the control tokens; StartError when one is not there."""

    makes_ids = True

    def __init__(
        self,
        encoder: PlainEncoder,
        token_to_id: Callable[[str], int | None],
        *,
        default_kwargs: Mapping[str, Any] | None = None,
        model: str = "the model",
    ) -> None:
        self._encoder = encoder
        self._ids = {name: token_to_id(f"<|{name}|>") for name in ("start", "end", "message", "channel", "call")}
        missing = [f"<|{name}|>" for name, i in self._ids.items() if i is None]
        if missing:
            raise StartError(f"the tokenizer has no {', '.join(missing)}: it cannot serve --tokenizer-mode harmony")
        self._defaults = dict(default_kwargs or {})
        self._model = model
        self._in_system = env.harmony_system_instructions()
        self._start_date = env.system_start_date()

    def render(self, chat: ChatInput) -> list[int]:
        """The prompt's ids; raises RequestError."""
        check_ending(chat.messages, chat.add_generation_prompt, chat.continue_final_message)
        effort = template_kwargs(self._defaults, chat.chat_template_kwargs).get("reasoning_effort", "medium")
        if effort not in _EFFORTS:
            raise RequestError(
                f"reasoning_effort={effort!r} is not supported by Harmony. "
                f"Supported values are: {', '.join(_EFFORTS)}.",
                param="reasoning_effort",
            )
        tools = tool_definitions(chat.tools) or []
        turns = self._turns(chat.messages, tools, effort)
        segments: list[str | int] = []
        for turn in turns:
            segments += self._written(turn)
        if chat.continue_final_message:
            if turns[-1].author != "assistant" or turns[-1].channel != "final":
                raise RequestError(
                    "continue_final_message is set, but the final message has no text to continue.",
                    param="continue_final_message",
                )
            segments.pop()
        elif chat.add_generation_prompt:
            segments += [self._id("start"), "assistant"]
        return self._encoder.encode(segments)

    def _turns(self, messages: list[Message], tools: list[Message], effort: str) -> list[Turn]:
        first = messages[0]
        instructions, rest = None, list(enumerate(messages))
        if isinstance(first, dict) and first.get("role") in ("system", "developer"):
            instructions, rest = self._instructions(first, "messages.0"), rest[1:]
        turns = [self._system(instructions if self._in_system else None, effort, bool(tools))]
        told = None if self._in_system else instructions
        if told or tools:
            turns.append(_developer(told, tools))
        names = _call_names(rest)
        for i, message in rest:
            turns += self._message(message, f"messages.{i}", names, bool(tools))
        return _without_old_analysis(turns)

    def _system(self, instructions: str | None, effort: str, with_tools: bool) -> Turn:
        date = self._start_date or datetime.now().strftime("%Y-%m-%d")
        identity = _IDENTITY if instructions is None else f"{_IDENTITY}\n{instructions}"
        channels = f"{_CHANNELS}\n{_TOOL_CHANNEL}" if with_tools else _CHANNELS
        about = f"{identity}\n{_CUTOFF}\nCurrent date: {date}"
        return Turn("system", [f"{about}\n\nReasoning: {effort}\n\n{channels}"])

    def _instructions(self, message: Message, where: str) -> str | None:
        texts = content_texts(message.get("content"), f"{where}.content", self._model)
        return "".join(texts) if texts else None

    def _message(self, message: Any, where: str, names: Mapping[str, str], with_tools: bool) -> list[Turn]:
        if not isinstance(message, dict):
            raise RequestError(f"{where} must be an object.", param=where, value=type(message).__name__)
        role = message.get("role")
        if role in ("system", "developer"):
            instructions = self._instructions(message, where)
            if instructions is None:
                return []
            if role == "system" and self._in_system:
                return [self._system(instructions, "medium", with_tools)]
            return [_developer(instructions, [])]
        texts = content_texts(message.get("content"), f"{where}.content", self._model) or [""]
        if role == "user":
            return [Turn("user", texts)]
        if role == "tool":
            name = names.get(str(message.get("tool_call_id")), "")
            return [Turn(f"functions.{name}", ["".join(texts)], "commentary", "assistant")]
        if role == "assistant":
            return _assistant(message, texts, where)
        raise RequestError(
            f"{where}.role must be system, developer, user, assistant or tool, not {role!r}.", param=f"{where}.role"
        )

    def _written(self, turn: Turn) -> list[str | int]:
        """The message's pieces; each string is encoded apart from its neighbours, as the reference does."""
        calls = turn.author == "assistant" and turn.recipient is not None
        out: list[str | int] = [self._id("start"), f"{turn.author} to={turn.recipient}" if calls else turn.author]
        if turn.channel is not None:
            channel = turn.channel if calls or turn.recipient is None else f"{turn.channel} to={turn.recipient}"
            out += [self._id("channel"), channel if turn.kind is None else f"{channel} {turn.kind}"]
        out.append(self._id("message"))
        out += turn.texts
        out.append(self._id("call" if calls else "end"))
        return out

    def _id(self, name: str) -> int:
        token_id = self._ids[name]
        assert token_id is not None
        return token_id


def _developer(instructions: str | None, tools: list[Message]) -> Turn:
    parts = [] if instructions is None else [f"# Instructions\n\n{instructions}"]
    if tools:
        functions = namespace("functions", (tool["function"] for tool in tools))
        parts += [f"# Tools\n\n## functions\n\n{functions}"]
    return Turn("developer", ["\n\n".join(parts)])


def _assistant(message: Message, texts: list[str], where: str) -> list[Turn]:
    reasoning = message.get("reasoning")
    reasoning = message.get("reasoning_content") if reasoning is None else reasoning
    if reasoning is not None and not isinstance(reasoning, str):
        raise RequestError(f"{where}.reasoning must be a string.", param=f"{where}.reasoning")
    thought = [Turn("assistant", [reasoning], "analysis")] if reasoning else []
    said = any(texts)
    calls = message.get("tool_calls")
    if not calls:
        return [*thought, Turn("assistant", texts, "final")] if said else thought
    # What is said beside calls is a preamble for the user.
    out = [Turn("assistant", ["".join(texts)], "commentary")] if said else []
    out += thought
    for i, call in enumerate(calls if isinstance(calls, list) else [calls]):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            at = f"{where}.tool_calls.{i}.function"
            raise RequestError(f"{at} must be an object with a name.", param=at)
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        out.append(Turn("assistant", [arguments], "commentary", f"functions.{function['name']}", "json"))
    return out


def _call_names(messages: list[tuple[int, Any]]) -> dict[str, str]:
    """The function that each call id of the history names."""
    names: dict[str, str] = {}
    for _, message in messages:
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(call.get("id"), str):
                names[call["id"]] = str(function.get("name"))
    return names


def _without_old_analysis(turns: list[Turn]) -> list[Turn]:
    """Drops the thoughts that led to a final answer: the model is used to see only those of the current turn."""
    finals = [i for i, turn in enumerate(turns) if turn.author == "assistant" and turn.channel == "final"]
    last = finals[-1] if finals else -1
    return [turn for i, turn in enumerate(turns) if i > last or turn.channel != "analysis"]
