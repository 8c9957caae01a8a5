"""From the settings to a Prompter: finds the model's files, reads what is small, then loads the rest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from fastfront import env
from fastfront.errors import ConfigError, StartError
from fastfront.flow import ModelInfo
from fastfront.prompt import model as facts
from fastfront.prompt.files import ModelFiles, read_model_files
from fastfront.prompt.formats import ChatFormat
from fastfront.prompt.formats.jinja import JinjaFormat
from fastfront.prompt.mistral import AnyTokenizer, MistralTokenizer, load_mistral
from fastfront.prompt.plain import PlainEncoder
from fastfront.prompt.prompter import Prompter
from fastfront.prompt.sandbox import TemplateSandbox
from fastfront.prompt.template import ChatTemplate
from fastfront.prompt.tokenizer import open_tokenizer


class PromptSettings(NamedTuple):
    """What of the command line decides prompts; names are those of the flags."""

    model: str
    #: Where its files have been found; None: `model` is looked for.
    place: str | None = None
    served_model_name: tuple[str, ...] = ()
    tokenizer: str | None = None
    tokenizer_mode: str = "auto"
    revision: str | None = None
    tokenizer_revision: str | None = None
    download_dir: str | None = None
    hf_token: str | bool | None = None
    hf_overrides: dict[str, Any] | None = None
    generation_config: str = "auto"
    override_generation_config: dict[str, Any] | None = None
    max_model_len: int | None = None
    chat_template: str | None = None
    chat_template_content_format: str = "auto"
    default_chat_template_kwargs: dict[str, Any] | None = None
    trust_request_chat_template: bool = False
    safe_user_text: bool = False


def load_prompter(settings: PromptSettings) -> Prompter:
    """Loads the model's files; raises StartError or ConfigError. `prompter.info` is the model's ModelInfo."""
    prompter = open_prompter(find_model(settings))
    prompter.speed_up()
    return prompter


class Model(NamedTuple):
    """A model whose files have been found; `info` lacks what only the tokenizer tells."""

    settings: PromptSettings
    files: ModelFiles
    info: ModelInfo


def find_model(settings: PromptSettings) -> Model:
    """Reads what is small of the model's files, and fetches them first where they are on the hub; StartError."""
    # The place is of the model's revision, its tokenizer may be of another.
    elsewhere = settings.place is not None and settings.tokenizer_revision not in (None, settings.revision)
    files = read_model_files(
        settings.place or settings.model,
        tokenizer=settings.tokenizer or (settings.model if elsewhere else None),
        tokenizer_mode=settings.tokenizer_mode,
        revision=settings.revision,
        tokenizer_revision=settings.tokenizer_revision,
        generation_config=settings.generation_config,
        hf_overrides=settings.hf_overrides,
        download_dir=settings.download_dir,
        token=settings.hf_token,
    )
    return Model(settings, files, _described(files, settings))


def open_prompter(model: Model) -> Prompter:
    """Loads the rest; raises StartError or ConfigError. `speed_up` is left to the caller."""
    settings, files, info = model
    tokenizer: AnyTokenizer
    if files.mode == "mistral" and isinstance(files.tokenizer, Path):
        tokenizer = load_mistral(files.tokenizer)
    else:
        tokenizer = open_tokenizer(files)
    eos = info.eos_token_id = tokenizer.eos_token_id
    info.extra_eos_token_ids = [i for i in facts.eos_token_ids(files.config, files.generation_config) if i != eos]
    info.vocab_size = info.vocab_size or tokenizer.max_token_id + 1
    format = _format(files, tokenizer, settings, info.names[0])
    sandbox = TemplateSandbox(format, env.chat_template_render_timeout()) if isinstance(format, JinjaFormat) else None
    return Prompter(
        tokenizer,
        format,
        info,
        trust_request_chat_template=settings.trust_request_chat_template,
        safe_user_text=settings.safe_user_text,
        sandbox=sandbox,
    )


def _format(files: ModelFiles, tokenizer: AnyTokenizer, settings: PromptSettings, model: str) -> ChatFormat:
    """The chat format of the tokenizer mode in force."""
    defaults = settings.default_chat_template_kwargs
    if files.mode != "hf" and settings.chat_template is not None:
        raise ConfigError(f"--chat-template has no effect with --tokenizer-mode {files.mode}; hf uses templates")
    # Few models need one of these: together they are half a MiB.
    if isinstance(tokenizer, MistralTokenizer):
        from fastfront.prompt.formats.mistral import MistralFormat

        return MistralFormat(tokenizer, default_kwargs=defaults, model=model)
    if files.mode == "harmony":
        from fastfront.prompt.formats.harmony import HarmonyFormat

        encoder = PlainEncoder(tokenizer.reference)
        return HarmonyFormat(encoder, tokenizer.token_to_id, default_kwargs=defaults, model=model)
    if files.mode == "deepseek_v32":
        from fastfront.prompt.formats.deepseek_v32 import DeepSeekV32Format

        return DeepSeekV32Format(default_kwargs=defaults, model=model)
    if files.mode == "deepseek_v4":
        from fastfront.prompt.formats.deepseek_v4 import DeepSeekV4Format

        return DeepSeekV4Format(default_kwargs=defaults, model=model)
    return JinjaFormat(
        _templates(files, settings.chat_template),
        special_tokens=tokenizer.special_tokens,
        default_kwargs=defaults,
        content_format=settings.chat_template_content_format,
        model=model,
    )


def _described(files: ModelFiles, settings: PromptSettings) -> ModelInfo:
    """The served model as its configs and the flags describe it; a vocabulary of unknown size has 0."""
    derived = facts.context_length(files.config)
    return ModelInfo(
        names=list(settings.served_model_name) or [settings.model],
        root=settings.model,
        max_model_len=settings.max_model_len or derived,
        vocab_size=facts.vocab_size(files.config),
        sampling_defaults=facts.sampling_defaults(
            files.generation_config, settings.generation_config, settings.override_generation_config
        ),
        created=int(time.time()),
        is_moe=facts.is_moe(files.config),
        model_type=str(files.config.get("model_type", "")),
    )


def _templates(files: ModelFiles, argument: str | None) -> dict[str, ChatTemplate]:
    """The model's templates, or the one that --chat-template gives: a name, a file, or the template itself."""
    sources = files.templates
    if argument is not None and argument not in sources:
        sources = {"default": _template_source(argument)}
    elif argument is not None:
        sources = {"default": sources[argument]}
    return {name: ChatTemplate(source) for name, source in sources.items()}


def _template_source(argument: str) -> str:
    try:
        return Path(argument).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if any(character in argument for character in "{}\n"):
            return argument
        raise StartError(f"--chat-template {argument}: no such template and no readable file ({error})") from error
