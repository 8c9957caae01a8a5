"""Which parsers a model needs, by its name and its configuration's model_type."""

from __future__ import annotations

import re

#: Patterns over "name type" in lower case, the first that is found counts: (tool call parser, reasoning parser).
_MODELS: tuple[tuple[str, str | None, str | None], ...] = (
    (r"gpt[-_]?oss", "openai", "openai_gptoss"),
    (r"qwen3?[-_.]?coder|qwen3_coder", "qwen3_coder", None),
    (r"qwen3[-_.]?(5|next[-_.]?thinking)|qwen3_5", "qwen3_xml", "qwen3"),
    (r"qwen3[-_.\w]*instruct", "hermes", None),
    (r"qwq|qwen3", "hermes", "qwen3"),
    (r"qwen2[-_.]?5|qwen2", "hermes", None),
    (r"deepseek[-_.]?v4[-_.]?1|deepseek_v41", "deepseek_v41", "deepseek_v41"),
    (r"deepseek[-_.]?v4", "deepseek_v4", "deepseek_v4"),
    (r"deepseek[-_.]?v3[-_.]?2|deepseek_v32", "deepseek_v32", "deepseek_v3"),
    (r"deepseek[-_.]?v3[-_.]?1", "deepseek_v31", "deepseek_v3"),
    (r"deepseek[-_.]?r1", "deepseek_v3", "deepseek_r1"),
    (r"deepseek[-_.]?v3", "deepseek_v3", None),
    (r"glm[-_.]?(4[-_.]?7|5)", "glm47", "glm47"),
    (r"glm[-_.]?4[-_.]?[56]|glm4_moe", "glm45", "glm45"),
    (r"kimi[-_.]?k3", "kimi_k3", "kimi_k3"),
    (r"kimi[-_.]?k2", "kimi_k2", "kimi_k2"),
    (r"minimax[-_.]?m3|\bmm[-_.]?m3", "minimax_m3", "minimax_m3"),
    (r"minimax[-_.]?m2", "minimax_m2", "minimax_m2"),
    (r"mimo[-_.]?v?2|\bmimo\b", "mimo", "mimo"),
    (r"seed[-_.]?oss", "seed_oss", "seed_oss"),
    (r"functiongemma", "functiongemma", None),
    (r"gemma[-_.]?4", "gemma4", "gemma4"),
    (r"gemma[-_.]?3", "pythonic", None),
    (r"granite[-_.]?4[-_.]?2", "qwen3_xml", "granite_thinking_parser"),
    (r"granite[-_.]?4|granitemoehybrid", "granite4", None),
    (r"granite[-_.]?20b[-_.]?f", "granite-20b-fc", None),
    (r"granite[-_.]?3[-_.]?2", "granite", "granite"),
    (r"granite", "granite", None),
    (r"nemotron[-_.]?(3|v3|h)", "qwen3_coder", "nemotron_v3"),
    (r"step[-_.]?3[-_.]?[57]|step3p5", "step3p5", "step3p5"),
    (r"step[-_.]?3", "step3", "step3"),
    (r"command[-_.]?a[-_.]?plus|cohere2_moe|command[-_.]?4", "cohere_command4", "cohere_command4"),
    (r"command|cohere", "cohere_command3", "cohere_command3"),
    (r"hy[-_.]?v?4|hunyuan[-_.]?v4", "hy_v4", "hy_v4"),
    (r"hy[-_.]?v?3|hunyuan[-_.]?v3", "hy_v3", "hy_v3"),
    (r"hunyuan", "hunyuan_a13b", "hunyuan_a13b"),
    (r"inkling", "inkling", "inkling"),
    (r"internlm[-_.]?2", "internlm", None),
    (r"llama[-_.]?4", "llama4_pythonic", None),
    (r"llama[-_.]?3[-_.]?[12]", "llama3_json", None),
    (r"magistral", "mistral", "mistral"),
    (r"mistral|mixtral|ministral|devstral", "mistral", None),
    (r"longcat", "longcat", None),
    (r"ernie[-_.]?4[-_.]?5", "ernie45", "ernie45"),
    (r"lfm[-_.]?2", "lfm2", None),
    (r"olmo[-_.]?3", "olmo3", "olmo3"),
    (r"apertus", "apertus", None),
    (r"jamba", "jamba", None),
    (r"xlam", "xlam", None),
    (r"phi[-_.]?4[-_.]?mini", "phi4_mini_json", None),
    (r"gigachat[-_.]?3", "gigachat3", None),
    (r"k2[-_.]?horizon", "k2_horizon", "k2_horizon"),
    (r"ling[-_.]?3", "ling3", "ling3"),
    (r"plamo[-_.]?3", "plamo3", "plamo3"),
    (r"muse[-_.]?glimmer", "muse_glimmer", "muse_glimmer"),
    (r"minicpm[-_.]?v", None, "minicpmv"),
    (r"minicpm[-_.]?5", "minicpm5", None),
    (r"holo[-_.]?2", "hermes", "holo2"),
    (r"laguna|poolside", "poolside_v1", "poolside_v1"),
    (r"\bdots", "dots", None),
    (r"hermes", "hermes", None),
)


def detect(model_name: str, model_type: str = "") -> tuple[str | None, str | None]:
    """(tool call parser, reasoning parser); None where nothing is known."""
    # Names of folders above the model's own say nothing; its owner may.
    said = "/".join(model_name.rstrip("/").split("/")[-2:])
    for text in (said.lower(), model_type.lower()):
        for pattern, tool, reasoning in _MODELS:
            if text and re.search(pattern, text):
                return tool, reasoning
    return None, None
