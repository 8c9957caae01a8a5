"""The stage's one entrance: chats, texts and ids in, checked prompts out. Long prompts never hold the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, TypeVar

from msgspec.structs import replace

from fastfront.errors import RequestError
from fastfront.flow import ChatInput, ModelInfo, Prompt
from fastfront.prompt.formats import ChatFormat
from fastfront.prompt.formats.jinja import Common, JinjaFormat
from fastfront.prompt.limits import (
    UNLIMITED,
    PromptLimits,
    check_ids,
    check_length,
    check_messages,
    check_text,
    prompt_limits,
    truncate,
)
from fastfront.prompt.messages import is_heavy, weight
from fastfront.prompt.mistral import AnyTokenizer
from fastfront.prompt.safe_text import Marks, SafeText
from fastfront.prompt.sandbox import TemplateSandbox
from fastfront.prompt.tokenizer import Tokenizer

LIGHT = 4096  # the largest weight for the event loop where a format is no template
# Above so many ids, or bytes of JSON, what Python does with each is work for a thread.
HEAVY_IDS, HEAVY_BYTES = 2048, 16384
# Tokenizers keep caches per thread: few threads that live long keep them warm.
WORKERS = 2

_T = TypeVar("_T")


class Prompter:
    """Makes prompts for one model. `info` is shared: its max_model_len may shrink to the engine's after loading."""

    def __init__(
        self,
        tokenizer: AnyTokenizer,
        format: ChatFormat,
        info: ModelInfo,
        *,
        trust_request_chat_template: bool = False,
        safe_user_text: bool = False,
        sandbox: TemplateSandbox | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.format = format
        self.info = info
        self._trusts = trust_request_chat_template
        self._is_safe = safe_user_text
        self._sandbox = sandbox
        self._usual = PromptLimits(info.max_model_len)
        self._light = self._weigh()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="prompt")

    def _weigh(self) -> int:
        """What weighs more goes to a worker thread, which costs some 50 us more and leaves the loop alone."""
        return min(self.tokenizer.light, self.format.light if isinstance(self.format, JinjaFormat) else LIGHT)

    def speed_up(self) -> None:
        """Takes the faster libraries where they are proved to give the same; others may make prompts meanwhile."""
        if isinstance(self.tokenizer, Tokenizer):
            self.tokenizer.speed_up()
        if isinstance(self.format, JinjaFormat):
            self.format.speed_up()
        self._light = self._weigh()

    def let_go(self) -> None:
        """Frees what was only needed to load and to prove."""
        if isinstance(self.tokenizer, Tokenizer):
            if self._is_safe:
                _ = self._safe_text  # made of what is let go
            self.tokenizer.let_go()

    @property
    def chat_template(self) -> str | None:
        """The template of a conversation without tools, None where the format has none."""
        template = self.format.templates.get("default") if isinstance(self.format, JinjaFormat) else None
        return None if template is None else template.source

    def limits(
        self,
        *,
        max_tokens: int | None = None,
        max_tokens_param: str = "max_tokens",
        truncate_prompt_tokens: int | None = None,
        truncation_side: str | None = None,
    ) -> PromptLimits:
        """The limits of one request; raises RequestError where its fields cannot be met by any prompt."""
        if max_tokens is None and truncate_prompt_tokens is None and truncation_side is None:
            if self._usual.max_length != self.info.max_model_len:
                self._usual = PromptLimits(self.info.max_model_len)
            return self._usual
        return prompt_limits(
            self.info.max_model_len,
            max_tokens=max_tokens,
            max_tokens_param=max_tokens_param,
            truncate_prompt_tokens=truncate_prompt_tokens,
            truncation_side=truncation_side,
        )

    def chats(self, chat: ChatInput, limits: PromptLimits | None = None) -> Chats:
        """What makes the prompts of conversations that share all of `chat` but its messages."""
        return Chats(self, chat, limits or self.limits())

    async def chat(self, chat: ChatInput, limits: PromptLimits | None = None) -> Prompt:
        """The prompt of a conversation; raises RequestError. Without `limits` only the context length counts."""
        limits = limits or self.limits()
        prompt = self._chat_now(chat, limits)
        return await self._chat_aside(chat, limits) if prompt is None else prompt

    def _chat_now(self, chat: ChatInput, limits: PromptLimits) -> Prompt | None:
        """The prompt, or None where making it would hold the event loop."""
        if self._own_template(chat) is not None or self._must_mark(chat) or weight(chat) > self._light:
            return None
        return self._chat(chat, limits, False)

    async def _chat_aside(self, chat: ChatInput, limits: PromptLimits) -> Prompt:
        source = self._own_template(chat)
        marks: Marks | None = None
        if self._must_mark(chat):
            chat, marks = await self._aside(lambda: self._safe_text.mark(chat))
        if source is not None:
            if not isinstance(self.format, JinjaFormat) or self._sandbox is None:
                raise RequestError("The model's chat format takes no template.", param="chat_template")
            if source in self.format.templates:
                chat = replace(chat, chat_template=source)
            else:
                text = await self._foreign(self._sandbox, source, chat, marks)
                if marks is None:
                    return await self.text(text, chat.add_special_tokens, limits)
                return await self._aside(self._text, text, chat.add_special_tokens, limits, True, marks)
        return await self._aside(self._chat, chat, limits, True, marks)

    async def _foreign(self, sandbox: TemplateSandbox, source: str, chat: ChatInput, marks: Marks | None) -> str:
        try:
            return await sandbox.render(source, replace(chat, chat_template=None))
        except RequestError as error:
            raise error if marks is None else marks.readable(error) from error

    def _must_mark(self, chat: ChatInput) -> bool:
        """Whether control tokens in the client's texts must be kept apart; formats that make ids do so themselves."""
        safe = self._is_safe if chat.safe_user_text is None else chat.safe_user_text
        return safe and isinstance(self.tokenizer, Tokenizer) and not self.format.makes_ids

    @cached_property
    def _safe_text(self) -> SafeText:
        assert isinstance(self.tokenizer, Tokenizer)
        return SafeText(self.tokenizer.reference)

    def _common(self, chat: ChatInput) -> Common | None:
        """What the template of the model needs once for many conversations, None where it is not the one to render."""
        if not isinstance(self.format, JinjaFormat) or chat.continue_final_message:
            return None
        if self._own_template(chat) is not None or self._must_mark(chat):
            return None
        return self.format.common(chat)

    def _own_template(self, chat: ChatInput) -> str | None:
        """The template that the request itself brings, in either of two places."""
        smuggled = chat.chat_template_kwargs.get("chat_template")
        if chat.chat_template is None and smuggled is None:
            return None
        if not self._trusts:
            raise RequestError(
                "Chat template is passed with request, but --trust-request-chat-template is not set. "
                "Refused request with untrusted chat template."
            )
        source = chat.chat_template if chat.chat_template is not None else smuggled
        if not isinstance(source, str) or not source:
            raise RequestError("chat_template must be a non-empty string.", param="chat_template")
        return source

    def _chat(self, chat: ChatInput, limits: PromptLimits, alone: bool, marks: Marks | None = None) -> Prompt:
        if alone:
            check_messages(len(chat.messages), limits)
        try:
            rendered = self.format.render(chat)
        except RequestError as error:
            raise error if marks is None else marks.readable(error) from error
        except RecursionError:
            raise nested_too_deeply() from None
        if isinstance(rendered, str):
            return self._text(rendered, chat.add_special_tokens, limits, alone, marks)
        return self._checked(Prompt(rendered), limits)

    def text_now(self, text: str, add_special_tokens: bool = True, limits: PromptLimits | None = None) -> Prompt | None:
        """As `text`, without a task; None for what would hold the event loop."""
        if len(text) * (1 if text.isascii() else 3) > self.tokenizer.light:
            return None
        return self._text(text, add_special_tokens, limits or self.limits(), False)

    async def text(self, text: str, add_special_tokens: bool = True, limits: PromptLimits | None = None) -> Prompt:
        """The prompt of a text; raises RequestError. Without `limits` only the context length counts."""
        limits = limits or self.limits()
        prompt = self.text_now(text, add_special_tokens, limits)
        if prompt is None:
            prompt = await self._aside(self._text, text, add_special_tokens, limits, True)
        return prompt

    def _text(
        self, text: str, add_special_tokens: bool, limits: PromptLimits, alone: bool, marks: Marks | None = None
    ) -> Prompt:
        tokenizer = self.tokenizer
        text = check_text(text, limits, tokenizer.max_chars_per_token)
        keep = limits.truncate_to if add_special_tokens and limits.side is None else None
        if marks is not None:
            ids: Sequence[int] = self._safe_text.encode(text, marks, add_special_tokens, keep)
            return self._checked(Prompt(ids, marks.restored(text)), limits)
        ids = tokenizer.prompt_ids(text, add_special_tokens, alone=alone)
        if keep is not None and keep < len(ids):
            ids = tokenizer.encode_truncated(text, keep)
        return self._checked(Prompt(ids, text), limits)

    def ids(self, token_ids: list[int], limits: PromptLimits | None = None) -> Prompt:
        """A prompt that comes as ids; raises RequestError for ids that the model does not have."""
        prompt = self._checked(Prompt(token_ids), limits or self.limits())
        check_ids(prompt.token_ids, self.max_token_id)
        return prompt

    @property
    def max_token_id(self) -> int:
        """The largest id that may be in a prompt: the model's or the tokenizer's last, whichever is larger."""
        return max(self.tokenizer.max_token_id, self.info.vocab_size - 1)

    def _checked(self, prompt: Prompt, limits: PromptLimits) -> Prompt:
        if limits.truncate_to is not None:
            prompt = Prompt(truncate(prompt.token_ids, limits), prompt.text)
        check_length(len(prompt.token_ids), limits)
        return prompt

    async def tokenize(self, text: str, add_special_tokens: bool = True) -> Sequence[int]:
        """Ids of a text of any length, the empty one too (POST /tokenize)."""
        return (await self.text(text, add_special_tokens, UNLIMITED)).token_ids

    async def tokenize_chat(self, chat: ChatInput) -> Sequence[int]:
        """Ids of a conversation of any length (POST /tokenize)."""
        return (await self.chat(chat, UNLIMITED)).token_ids

    async def detokenize(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        """The text of ids, special tokens kept or not, unknown ids left out (POST /detokenize)."""
        decode = partial(self.tokenizer.decode, skip_special_tokens=skip_special_tokens)
        return await self.aside(decode, token_ids, ids=len(token_ids))

    async def aside(self, work: Callable[..., _T], *args: Any, ids: int = 0, size: int = 0) -> _T:
        """`work(*args)`: in a worker thread where it is about many ids, or about JSON or a text of many bytes."""
        if ids > HEAVY_IDS or size > HEAVY_BYTES:
            return await self._aside(work, *args)
        return work(*args)

    async def _aside(self, work: Callable[..., _T], *args: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def close(self) -> None:
        """Ends the worker threads and the process that renders templates of requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._sandbox is not None:
            await self._sandbox.close()


def nested_too_deeply() -> RequestError:
    """The error of a conversation that is too deep for Python's stack."""
    return RequestError("The messages or tools are nested too deeply.", param="messages")


class Chats:
    """Makes the prompts of conversations that share all of `chat` but its messages; a part of Prompter.

    `source` is JSON that holds a conversation and all else, or more.
    """

    def __init__(self, prompter: Prompter, chat: ChatInput, limits: PromptLimits) -> None:
        self._prompter = prompter
        self._chat = chat
        self._limits = limits
        self._common: Common | None = None

    def now(self, messages: list[dict[str, Any]], source: bytes) -> Prompt | None:
        """The prompt, or None where making it would hold the event loop; RequestError."""
        prompter = self._prompter
        if source and is_heavy(source, prompter._light):
            return None
        try:
            common = self._common
            if common is None:
                common = self._common = prompter._common(self._chat)
            if common is None or not source:
                return prompter._chat_now(self._whole(messages, source), self._limits)
            text = common.render(messages, source)
        except RecursionError:
            raise nested_too_deeply() from None
        return prompter._text(text, self._chat.add_special_tokens, self._limits, False)

    async def made(self, messages: list[dict[str, Any]], source: bytes) -> Prompt:
        """The prompt; RequestError."""
        return await self._prompter.chat(self._whole(messages, source), self._limits)

    def ids(self, token_ids: list[int]) -> Prompt:
        """A prompt that comes as ids; RequestError for ids that the model does not have."""
        return self._prompter.ids(token_ids, self._limits)

    def _whole(self, messages: list[dict[str, Any]], source: bytes) -> ChatInput:
        return replace(self._chat, messages=messages, source=source)
