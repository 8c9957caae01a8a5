"""How each model writes its reasoning, and whether an answer begins inside of it."""

from __future__ import annotations

import re

from fastfront.parse.edges import WHITE
from fastfront.parse.tables import Think
from fastfront.parse.tool.sections import K3_CONTENT

_THINK = Think(("<think>",), ("</think>",), begins=True)
#: The templates of these models put line ends around reasoning, and take them away again in later turns.
_FRAMED = _THINK._replace(lead="\n", trail="\n", after="\n")
#: White space before the end of reasoning is markup.
_STRIPPED = _THINK._replace(trail=WHITE)

REASONING: dict[str, Think] = {
    "cohere_command3": Think(
        ("<|START_THINKING|>",),
        ("<|END_THINKING|>", "<|START_RESPONSE|>"),
        absorbed=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ),
    "cohere_command4": Think(
        ("<|START_THINKING|>",),
        ("<|END_THINKING|>", "<|START_RESPONSE|>", "<|START_TEXT|>"),
        absorbed=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    "deepseek_r1": _THINK,
    "deepseek_v3": _THINK._replace(begins=False, on_request=True),
    "deepseek_v4": _STRIPPED,
    "deepseek_v41": _STRIPPED,
    "ernie45": _THINK._replace(after="\n", absorbed=("<response>", "</response>")),
    "gemma4": Think(("<|channel>",), ("<channel|>",), prefix="thought\n", trail=WHITE),
    "glm45": _STRIPPED,
    "glm47": _STRIPPED,
    "granite": Think(
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
    ),
    "granite_thinking_parser": _STRIPPED._replace(after="\n"),
    "holo2": _THINK,
    "hunyuan_a13b": Think(
        ("<think>",), ("</think>",), lead="\n", trail="\n", after="\n", absorbed=("<answer>\n", "\n</answer>")
    ),
    "hy_v3": _THINK._replace(begins=False, on_request=True),
    "hy_v4": _THINK,
    "k2_horizon": Think(
        ("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
        ("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
        begins=True,
    ),
    "kimi_k2": _STRIPPED,
    "kimi_k3": Think(
        ("<|open|>think<|sep|>",),
        ("<|close|>think<|sep|>", "<|open|>response<|sep|>"),
        begins=True,
        absorbed=K3_CONTENT,
    ),
    "ling3": _STRIPPED,
    "mimo": _FRAMED,
    "minicpmv": _FRAMED._replace(absorbed=("<|im_end|>",)),
    "minimax_m2": _STRIPPED,
    "minimax_m2_append_think": Think(prepended="<think>"),
    "minimax_m3": Think(("<mm:think>",), ("</mm:think>",)),
    "mistral": Think(("[THINK]", "<think>"), ("[/THINK]", "</think>"), trail=WHITE),
    "nemotron_v3": _STRIPPED,
    "olmo3": _THINK,
    "plamo3": Think(
        ("<|plamo:begin_think:plamo|>",), ("<|plamo:end_think:plamo|>",), begins=True, absorbed=("<|plamo:tag|>",)
    ),
    "poolside_v1": _THINK._replace(begins=False, on_request=True),
    "qwen3": _FRAMED,
    "seed_oss": Think(("<seed:think>",), ("</seed:think>",), begins=True, lead="\n", trail="\n", after="\n"),
    "step3": _THINK,
    "step3p5": _STRIPPED._replace(always=True),
}

#: What opens a turn in a rendered prompt: reasoning before it belongs to others.
_TURNS = (
    "<|im_start|>",
    "<|im_assistant|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|start_of_role|>",
    "<|START_OF_TURN_TOKEN|>",
    "<|CHATBOT_TOKEN|>",
    "<start_of_turn>",
    "<|turn>",
    "<|tool_response>",
    "<|start|>",
    "<|message_model|>",
    "<｜Assistant｜>",
    "<｜User｜>",
    "<|Assistant|>",
    "<|assistant|>",
    "<|user|>",
    "<|observation|>",
    "<assistant>",
    "<seed:bos>",
    "<|plamo:tag|>",
    "]~b]",
    "[/INST]",
)
_TURN = re.compile("|".join(map(re.escape, _TURNS)))

#: Where the mark of the last turn is looked for first (characters).
_NEAR = 64


def reasoning_state(prompt: str, think: Think, thinking: bool | None = None) -> bool | None:
    """Whether an answer to `prompt` (its last part is enough) begins inside reasoning; None: the parser's own rule.

    A block that the prompt left open or closed in its last turn decides; then `thinking`, the request's switch.
    """
    near = prompt[-_NEAR:]
    if turn := _last_turn(near):  # as in nearly all prompts: what is before it does not count
        prompt = near
    else:
        turn = _last_turn(prompt)
    start, end = _last(prompt, turn, think.start), _last(prompt, turn, think.end)
    if start > end and (turn or not _after(prompt, start, think.start)):
        return True
    if end >= 0 and (turn or not _after(prompt, end, think.end)):
        return False
    if thinking is False and not think.always:
        return False
    if thinking and think.on_request:
        return True
    return None


def _last_turn(prompt: str) -> int:
    """Where the text of the prompt's last turn begins, 0 if it opens none."""
    turn = 0
    for mark in _TURN.finditer(prompt):
        turn = mark.end()
    return turn


def _last(prompt: str, turn: int, markers: tuple[str, ...]) -> int:
    """Where the last of the markers begins that are in the turn, -1 if there is none."""
    at = -1
    for mark in markers:
        at = max(at, prompt.rfind(mark, turn))
    return at


def _after(prompt: str, at: int, markers: tuple[str, ...]) -> str:
    """What but white space follows the marker at `at`."""
    length = max((len(mark) for mark in markers if prompt.startswith(mark, at)), default=0)
    return prompt[at + length :].strip()
