"""API messages and tools as chat templates expect them, by the rules of vLLM's Python frontend.

Input is never changed. Order of keys matters: templates print tool calls and tools as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt.content_format import ContentFormat
from fastfront.prompt.template import CachedJson

#: Content part types that are text, and the key that holds it.
TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
MEDIA_PARTS = frozenset(
    (
        "image_url", "input_image", "image_pil", "image_embeds",
        "audio_url", "input_audio", "audio_embeds",
        "video_url", "video_embeds", "prompt_embeds", "file",
    )
)  # fmt: skip
#: Keys of parts that have a meaning in the API; any other key (cache_control, ...) goes on to the template.
_PART_KEYS = MEDIA_PARTS | {
    "type", "text", "refusal", "thinking", "closed", "name", "data", "uuid", "prompt_cache_breakpoint",
}  # fmt: skip
# Its value changes with each request and would spoil prefix caching from there on.
_BILLING_HEADER = "x-anthropic-billing-header"

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
#: Lists of tools that are kept, and how long one may be (bytes): an agent sends the same few with every request.
_KEPT, _KEPT_SIZE = 64, 1 << 15
_known_tools: dict[bytes, list[dict[str, Any]]] = {}

Message = dict[str, Any]


def conversation(messages: Iterable[Any], content_format: ContentFormat, model: str = "the model") -> list[Message]:
    """Template-ready messages; raises RequestError that names the message and the field."""
    return [_message(message, i, content_format, model) for i, message in enumerate(messages)]


def _message(message: Any, index: int, content_format: ContentFormat, model: str) -> Message:
    if not isinstance(message, dict):
        raise _wrong(f"messages.{index}", "must be an object", message)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise _wrong(f"messages.{index}.role", "must be a string", role)
    as_list = content_format == "openai"
    if not as_list and type(content) is list and role != "system":
        content = _lone_text(content)
    if not isinstance(content, str) or (role == "system" and content.startswith(_BILLING_HEADER)):
        content = _content(content, role, f"messages.{index}.content", as_list, model)
    elif as_list and role != "tool":
        content = [{"type": "text", "text": content}]
    out: Message = {"role": role, "content": content}
    if len(message) == 2 and "content" in message and role != "developer":
        return out
    if role == "assistant":
        calls = message.get("tool_calls")
        if calls:
            out["tool_calls"] = _tool_calls(calls, f"messages.{index}.tool_calls")
        reasoning = message.get("reasoning")
        reasoning = message.get("reasoning_content") if reasoning is None else reasoning
        if reasoning is not None and not isinstance(reasoning, str):
            raise _wrong(f"messages.{index}.reasoning", "must be a string", reasoning)
        if reasoning is not None:
            out["reasoning"] = out["reasoning_content"] = reasoning
    elif role == "tool":
        if "tool_call_id" in message:
            out["tool_call_id"] = message["tool_call_id"]
    for key in ("name", "tool_call_id"):
        if not isinstance(message.get(key, ""), str | None):
            raise _wrong(f"messages.{index}.{key}", "must be a string", message[key])
    for key in ("name", "task"):
        if isinstance(message.get(key), str):
            out[key] = message[key]
    if role == "developer":
        out["tools"] = message.get("tools")
    return out


def _lone_text(parts: list[Any]) -> Any:
    """The text of parts that are one plain text, as many clients send it; else the parts."""
    if len(parts) == 1:
        part = parts[0]
        if type(part) is dict and len(part) == 2 and part.get("type") == "text" and isinstance(part.get("text"), str):
            return part["text"]
    return parts


def _content(content: Any, role: str, where: str, as_list: bool, model: str) -> Any:
    """A message's content by its parts: a list of them, or their texts in one string."""
    parts = _parts(content, where)
    if role == "system":
        parts = _without_billing_header(parts)
    built = [_part(part, f"{where}.{i}", as_list, model) for i, part in enumerate(parts)]
    if not as_list:
        return "\n".join(text for text in built if text)
    # Most templates take a tool's answer only as a string.
    if role == "tool" and all(part["type"] == "text" for part in built):
        return "\n".join(part["text"] for part in built)
    return built


def content_texts(content: Any, where: str, model: str = "the model") -> list[str]:
    """The texts of a message's content, one for each part; raises RequestError for parts that are not text."""
    return [_part(part, f"{where}.{i}", False, model) for i, part in enumerate(_parts(content, where))]


def _parts(content: Any, where: str) -> list[Any]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    raise _wrong(where, "must be a string or a list of parts", content)


def _part(part: Any, where: str, as_list: bool, model: str) -> Any:
    """One content part: a dict for a list of parts, else its text."""
    if isinstance(part, str):
        return {"type": "text", "text": part} if as_list else part
    if not isinstance(part, dict):
        raise _wrong(where, "must be an object or a string", part)
    kind = part.get("type")
    if kind is None:
        kind = next((key for key in part if key in MEDIA_PARTS), None)
    if kind is None:
        raise _wrong(f"{where}.type", "is missing", part)
    if kind == "tool_reference":
        name = part.get("name")
        if not isinstance(name, str):
            raise _wrong(f"{where}.name", "must be a string", name)
        return {"type": "tool_reference", "name": name} if as_list else name
    key = TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if key is None:
        if isinstance(kind, str) and kind in MEDIA_PARTS:
            raise RequestError(
                f"{model} is not a multimodal model here: content parts of type {kind!r} are not served.",
                param=where,
            )
        supported = ", ".join(sorted((*TEXT_PARTS, "tool_reference")))
        raise RequestError(f"Unsupported chat content part type: {kind!r}. Supported types: {supported}.", param=where)
    text = part.get(key)
    if not isinstance(text, str):
        raise _wrong(f"{where}.{key}", "must be a string", text)
    if not as_list:
        return text
    return {"type": "text", "text": text, **{k: v for k, v in part.items() if k not in _PART_KEYS}}


def _without_billing_header(parts: list[Any]) -> list[Any]:
    out: list[Any] = []
    for part in parts:
        is_text = isinstance(part, dict) and part.get("type") == "text"
        text = part.get("text") if is_text else part
        if isinstance(text, str) and text.startswith(_BILLING_HEADER):
            text = text.partition("\n")[2]
            if not text:
                continue
            part = {**part, "text": text} if is_text else text
        out.append(part)
    return out


def _tool_calls(calls: Any, where: str) -> list[Message]:
    """Calls of the history, their arguments as objects.

    Arguments that are no JSON object become {}: a 400 would make the conversation impossible to go on with.
    """
    if not isinstance(calls, list):
        raise _wrong(where, "must be a list", calls)
    out: list[Message] = []
    for i, call in enumerate(calls):
        if not isinstance(call, dict):
            raise RequestError("assistant tool_calls entries must be objects.", param="tool_calls", value=call)
        function = call.get("function")
        if call.get("type", "function") != "function" or not isinstance(function, dict):
            raise RequestError(
                "chat completions only support assistant tool_calls of type 'function'.", param="tool_calls"
            )
        if not isinstance(function.get("name"), str):
            raise _wrong(f"{where}.{i}.function.name", "must be a string", function.get("name"))
        if not isinstance(call.get("id", ""), str | None):
            raise _wrong(f"{where}.{i}.id", "must be a string", call["id"])
        built = {"arguments": _arguments(function.get("arguments")), **_rest(function, "arguments")}
        head = {"id": call["id"]} if "id" in call else {}
        out.append({**head, "function": built, "type": "function", **_rest(call, "id", "function", "type")})
    return out


def _arguments(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str) and arguments:
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _rest(source: Message, *without: str) -> Message:
    return {key: value for key, value in source.items() if key not in without}


def developer_as_system(messages: list[Message]) -> list[Message]:
    """For templates that know no developer role: such messages become system ones, and all system ones the first."""
    system: list[str] = []
    rest: list[Message] = []
    changed = [
        {k: v for k, v in m.items() if k != "tools"} | {"role": "system"} if m["role"] == "developer" else m
        for m in messages
    ]
    moved = False
    for i, message in enumerate(changed):
        if message["role"] != "system":
            rest.append(message)
            continue
        moved = moved or i > 0
        content = message["content"]
        if isinstance(content, list):
            content = "\n".join(part["text"] for part in content if "text" in part)
        if content:
            system.append(content)
    return [{"role": "system", "content": "\n\n".join(system)}, *rest] if moved else changed


def tool_definitions(tools: list[Any] | None) -> list[Message] | None:
    """Tools as the reference hands them to templates: known keys in their order, absent ones null. Only to be read."""
    if tools is None:
        return None
    try:
        key = _pack(tools)
    except Exception:  # no plain JSON
        return _definitions(tools)
    known = _known_tools.get(key)
    if known is None:
        known = _definitions(tools)
        if len(key) <= _KEPT_SIZE:
            if len(_known_tools) >= _KEPT:
                _known_tools.clear()
            _known_tools[key] = known
    return known


def _definitions(tools: list[Any]) -> list[Message]:
    out: list[Message] = []
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _wrong(f"tools.{i}.function", "must be an object with a name", function)
        defer = tool.get("defer_loading")
        built: Message = {key: function.get(key) for key in ("name", "description", "parameters")}
        if function.get("strict") is not None:
            built["strict"] = function["strict"]
        inner_defer = function.get("defer_loading") if function.get("defer_loading") is not None else defer
        if inner_defer is not None:
            built["defer_loading"] = inner_defer
        definition = CachedJson(type=tool.get("type", "function"), function=built)
        if defer is not None:
            definition["defer_loading"] = defer
        out.append(definition)
    return out


def weight(chat: ChatInput) -> int:
    """The work that a chat makes: its size as JSON, with each quote counted five times for what is around it."""
    source = chat.source
    if not source:
        try:
            source = _encode((chat.messages, chat.tools, chat.documents, chat.chat_template_kwargs))
        except Exception:  # what is not plain JSON may cost anything
            return sys.maxsize
    return _weight(source)


def is_heavy(source: bytes, most: int) -> bool:
    """Whether a chat of this JSON weighs more than `most`; of most the size alone tells."""
    size = len(source)
    return 5 * size > most and (size > most or _weight(source) > most)


def _weight(source: bytes) -> int:
    return len(source) + 4 * source.count(b'"')


def _wrong(where: str, problem: str, value: Any) -> RequestError:
    return RequestError(f"{where} {problem}.", param=where, value=type(value).__name__)
