"""The chat format of DeepSeek V4, as vLLM's `--tokenizer-mode deepseek_v4` writes it.

Tool results are parts of user messages; neighbouring user messages and results are one. Thinking is on unless a kwarg
turns it off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastfront.prompt.formats.dsml import (
    ASSISTANT,
    BOS,
    DSML,
    EOS,
    THINK,
    THOUGHT,
    USER,
    DeepSeekFormat,
    calls,
    last_user,
    refuse,
    schemas,
)
from fastfront.prompt.messages import Message

# What the model was trained with, to the letter.
_TOOLS = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<{DSML}tool_calls>" block like the following:

<{DSML}tool_calls>
<{DSML}invoke name="$TOOL_NAME">
<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML}parameter>
...
</{DSML}invoke>
<{DSML}invoke name="$TOOL_NAME2">
...
</{DSML}invoke>
</{DSML}tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, \
objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK}), you MUST output your complete reasoning inside {THINK}...{THOUGHT} \
BEFORE any tool calls or final response.

Otherwise, output directly after {THOUGHT} with tool calls or final response.

### Available Tool Schemas

"""
_TOOLS_END = """

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
_EFFORTS = {
    "low": "",
    "high": "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n",
    "max": "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
    "cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
    "that no assumption remains unchecked and no error remains undiscovered.\n\n",
}
_REMINDER = "<｜latest_reminder｜>"
_TASKS = ("action", "query", "authority", "domain", "title", "read_url")


class DeepSeekV4Format(DeepSeekFormat):
    """Roles system, developer, user, tool, assistant and latest_reminder; `task` asks for a classification."""

    content_format = "openai"

    def write(
        self, messages: list[Message], tools: list[Message] | None, kwargs: Mapping[str, Any], generate: bool
    ) -> str:
        """The whole prompt."""
        asked_for = [kwargs[name] for name in ("thinking", "enable_thinking") if name in kwargs]
        effort = kwargs.get("reasoning_effort")
        thinking = effort != "none" and (any(asked_for) or not asked_for)
        messages = _merged([{**message, "content": _text(message["content"])} for message in messages])
        if tools:
            messages = _with_tools(messages, tools)
        drops = bool(kwargs.get("drop_thinking", True)) and not any(message.get("tools") for message in messages)
        if thinking and drops:
            messages = _without_old_thoughts(messages)
        asked = last_user(messages)
        out = [BOS, _EFFORTS[_effort(effort)] if thinking else ""]
        for i, message in enumerate(messages):
            before = messages[i - 1] if i else {}
            thought = thinking and before.get("task") is None and (not drops or i > asked)
            out.append(_message(message, i, thought))
            after = messages[i + 1]["role"] if i + 1 < len(messages) else None
            if after in (None, "assistant", "latest_reminder") and (generate or after is not None):
                thinks = thinking and (not drops or i >= asked)
                out.append(_opening(message, i, after, THINK if thinks else THOUGHT, THINK if thinking else THOUGHT))
        return "".join(out)


def _effort(asked: Any) -> str:
    if asked == "max":
        return "max"
    return "low" if asked in ("low", "minimal", "medium") else "high"


def _text(content: Any) -> str:
    if not isinstance(content, list):
        return str(content)
    return "\n\n".join(part["text"] if "text" in part else part["name"] for part in content)


def _message(message: Message, index: int, thought: bool) -> str:
    role: str = message["role"]
    content: str = message["content"]
    if role == "system":
        return content + _tools(message)
    if role == "user":
        return USER + "\n\n".join(message["blocks"])
    if role == "developer":
        if not content:
            raise refuse(index, "(developer) must have content")
        return USER + content + _tools(message)
    if role == "latest_reminder":
        return _REMINDER + content
    if role == "assistant":
        reasoning = (message.get("reasoning") or "") + THOUGHT if thought else ""
        return reasoning + content + calls(message, "tool_calls") + EOS
    raise refuse(index, f"has a role that this model does not know: {role!r}")


def _opening(message: Message, index: int, after: str | None, mode: str, task_mode: str) -> str:
    """What comes between a message and the model's answer to it."""
    task = message.get("task")
    if task is not None:
        if task not in _TASKS:
            raise refuse(index, f"has a task that is none of {', '.join(_TASKS)}: {task!r}")
        return f"<｜{task}｜>" if task != "action" else f"{ASSISTANT}{task_mode}<｜action｜>"
    if message["role"] in ("user", "developer") or (message["role"] == "system" and after != "latest_reminder"):
        return ASSISTANT + mode
    return ""


def _tools(message: Message) -> str:
    tools = message.get("tools")
    return f"\n\n{_TOOLS}{schemas(tools)}{_TOOLS_END}" if tools else ""


def _with_tools(messages: list[Message], tools: list[Message]) -> list[Message]:
    """The request's tools belong to the first system message, an empty one when there is none."""
    for i, message in enumerate(messages):
        if message["role"] == "system":
            return [*messages[:i], {**message, "tools": tools}, *messages[i + 1 :]]
    return [{"role": "system", "content": "", "tools": tools}, *messages]


def _merged(messages: list[Message]) -> list[Message]:
    """Tool messages as user ones, neighbours joined; results stand in the order of the calls that they answer."""
    out: list[Message] = []
    order: dict[str, int] = {}
    results: list[tuple[int, int, str]] = []  # of the message that is being built: rank, place among its blocks, text
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "assistant" and message.get("tool_calls"):
            order = {str(call["id"]): i for i, call in enumerate(message["tool_calls"]) if call.get("id")}
        if role not in ("user", "tool"):
            out.append(message)
            continue
        joins = bool(out) and "blocks" in out[-1] and (role == "tool" or out[-1].get("task") is None)
        if not joins:
            extra = {"task": message["task"]} if role == "user" and "task" in message else {}
            out.append({"role": "user", "content": content, "blocks": [], **extra})
            results = []
        blocks = out[-1]["blocks"]
        blocks.append(content)
        if role == "tool":
            blocks[-1] = f"<tool_result>{content}</tool_result>"
            results.append((order.get(str(message.get("tool_call_id")), 0), len(blocks) - 1, blocks[-1]))
            places = [place for _, place, _ in results]
            for place, (_, _, text) in zip(places, sorted(results, key=lambda result: result[:2]), strict=True):
                blocks[place] = text
    return out


def _without_old_thoughts(messages: list[Message]) -> list[Message]:
    """Before the last question no reasoning stays, and no developer message."""
    asked = last_user(messages)
    kept = ("user", "system", "latest_reminder", "assistant")
    return [
        {key: value for key, value in message.items() if key != "reasoning"} if i < asked else message
        for i, message in enumerate(messages)
        if i >= asked or message["role"] in kept
    ]
