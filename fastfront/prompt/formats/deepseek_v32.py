"""The chat format of DeepSeek V3.2, as vLLM's `--tokenizer-mode deepseek_v32` writes it."""

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
You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<{DSML}function_calls>" block like the following as part of your reply to the \
user:
<{DSML}function_calls>
<{DSML}invoke name="$FUNCTION_NAME">
<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML}parameter>
...
</{DSML}invoke>
<{DSML}invoke name="$FUNCTION_NAME2">
...
</{DSML}invoke>
</{DSML}function_calls>
String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should \
use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types \
(numbers, booleans, arrays, objects).
If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. \
Here is an example:
<{DSML}function_calls>
...
</{DSML}function_calls>
<function_results>
...
</function_results>
{THINK}...thinking about results{THOUGHT}
Here are the functions available in JSONSchema format:
<functions>
"""


class DeepSeekV32Format(DeepSeekFormat):
    """Roles system, developer, user, tool and assistant; thinking is off unless a kwarg turns it on."""

    content_format = "string"

    def write(
        self, messages: list[Message], tools: list[Message] | None, kwargs: Mapping[str, Any], generate: bool
    ) -> str:
        """The whole prompt."""
        thinking = bool(kwargs.get("thinking") or kwargs.get("enable_thinking"))
        if tools:
            messages = [{"role": "system", "content": "", "tools": tools}, *messages]
        if thinking and messages[-1]["role"] == "user":
            messages = _without_old_thoughts(messages)
        asked = last_user(messages)
        out = [BOS]
        for i, message in enumerate(messages):
            opened = generate or i + 1 < len(messages)
            role, content = message["role"], message["content"]
            if role == "system":
                out.append(content + _tools(message))
            elif role in ("user", "developer"):
                if role == "developer":
                    if not content:
                        raise refuse(i, "(developer) must have content")
                    content = f"{_tools(message)}\n\n# The user's message is: {content}"
                out.append(USER + content)
                if opened:
                    out.append(ASSISTANT + (THINK if thinking and i == asked else THOUGHT))
            elif role == "tool":
                out.append(_tool_result(messages, i, THINK if thinking and i >= asked else THOUGHT, opened))
            elif role == "assistant":
                made = calls(message, "function_calls")
                thought = ""
                if thinking and i > asked:
                    if not (message.get("reasoning") or made):
                        raise refuse(i, "(assistant, after the last user message) must have reasoning or tool calls")
                    thought = (message.get("reasoning") or "") + THOUGHT
                out.append(thought + content + made + EOS)
            else:
                raise refuse(i, f"has a role that this model does not know: {role!r}")
        return "".join(out)


def _tools(message: Message) -> str:
    tools = message.get("tools")
    return f"\n\n{_TOOLS}{schemas(tools)}\n</functions>\n" if tools else ""


def _tool_result(messages: list[Message], index: int, mode: str, opened: bool) -> str:
    """A result; the first of a turn opens the list of results, the last closes it and lets the model go on."""
    caller = index - 1
    while caller >= 0 and messages[caller]["role"] == "tool":
        caller -= 1
    number = index - caller
    made = messages[caller].get("tool_calls") if caller >= 0 and messages[caller]["role"] == "assistant" else None
    if not made or len(made) < number:
        raise refuse(index, "(tool) answers no tool call of an assistant message before it")
    out = "\n\n<function_results>" if number == 1 else ""
    out += f"\n<result>{messages[index]['content']}</result>"
    if number == len(made):
        out += "\n</function_results>" + (f"\n\n{mode}" if opened else "")
    return out


def _without_old_thoughts(messages: list[Message]) -> list[Message]:
    """Before the last question no reasoning stays."""
    asked = last_user(messages)
    return [
        {key: value for key, value in message.items() if key != "reasoning"} if i < asked else message
        for i, message in enumerate(messages)
    ]
