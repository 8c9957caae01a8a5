"""Serves POST /tokenize and POST /detokenize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fastfront.api.body import BodyReader
from fastfront.api.coerce import Problem, body_error
from fastfront.api.openai.chat.validate import check_media_kwargs, check_messages, check_prompt_flags
from fastfront.api.openai.identity import check_model
from fastfront.api.openai.tools import Tool, plain_tools
from fastfront.api.state import RenderState
from fastfront.errors import RequestError
from fastfront.fast import json_ids
from fastfront.flow import ChatInput, Handler, HttpRequest, Reply

#: Where tokenizers' own integer ends.
_MAX_ID = 2**32 - 1


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A text, or a conversation; with both, the conversation counts."""

    model: str | None = None
    prompt: str | UnsetType = UNSET
    messages: list[dict[str, Any]] | UnsetType = UNSET
    #: By default true for a text, false for a conversation.
    add_special_tokens: bool | UnsetType = UNSET
    return_token_strs: bool | None = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    safe_user_text: bool | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    tools: list[Tool] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Ids to turn into text."""

    model: str | None = None
    tokens: list[Annotated[int, Meta(ge=0, le=2**63 - 1)]]
    #: Of fastfront alone; vLLM keeps them.
    skip_special_tokens: bool = False


class TokenizeResponse(msgspec.Struct):
    """The ids, and their spelling in the vocabulary where it is wanted."""

    count: int
    max_model_len: int
    tokens: msgspec.Raw
    token_strs: list[str] | None = None


class DetokenizeResponse(msgspec.Struct):
    """The text."""

    prompt: str


def tokenize(state: RenderState) -> Handler:
    """The handler of /tokenize."""
    reader = BodyReader(TokenizeRequest, state.settings.strict_request_fields)

    async def handle(request: HttpRequest, reply: Reply, body: TokenizeRequest) -> None:
        check_model(body.model, state.pipeline.info.names, state.limits)
        if body.prompt is UNSET and body.messages is UNSET:
            sent = msgspec.json.decode(request.body)
            fields = ("prompt", "messages")
            raise body_error([Problem("missing", ("body", name), "Field required", sent) for name in fields])
        ids = await _ids(state, body)
        answer = await state.pipeline.prompter.aside(_answer, state, ids, bool(body.return_token_strs), ids=len(ids))
        reply.send(200, answer)

    return reader.serve(handle)


def detokenize(state: RenderState) -> Handler:
    """The handler of /detokenize."""
    reader = BodyReader(DetokenizeRequest, state.settings.strict_request_fields)

    async def handle(request: HttpRequest, reply: Reply, body: DetokenizeRequest) -> None:
        check_model(body.model, state.pipeline.info.names, state.limits)
        if body.tokens and max(body.tokens) > _MAX_ID:
            raise RequestError("number too large to fit in target type", limit=_MAX_ID)
        text = await state.pipeline.prompter.detokenize(body.tokens, body.skip_special_tokens)
        reply.send(200, msgspec.json.encode(DetokenizeResponse(text)))

    return reader.serve(handle)


def _answer(state: RenderState, ids: Sequence[int], with_strings: bool) -> bytes:
    strings = state.pipeline.prompter.tokenizer.tokens(list(ids)) if with_strings else None
    longest = state.pipeline.info.max_model_len
    return msgspec.json.encode(TokenizeResponse(len(ids), longest, msgspec.Raw(json_ids(ids)), strings))


async def _ids(state: RenderState, body: TokenizeRequest) -> Sequence[int]:
    prompter = state.pipeline.prompter
    if isinstance(body.messages, list):
        check_messages(body.messages)
        check_prompt_flags(body.add_generation_prompt, body.continue_final_message)
        check_media_kwargs(body.media_io_kwargs, body.mm_processor_kwargs)
        return await prompter.tokenize_chat(
            ChatInput(
                messages=body.messages,
                tools=plain_tools(body.tools),
                chat_template=body.chat_template,
                chat_template_kwargs=body.chat_template_kwargs or {},
                add_generation_prompt=body.add_generation_prompt,
                continue_final_message=body.continue_final_message,
                add_special_tokens=body.add_special_tokens is True,
                safe_user_text=body.safe_user_text,
            )
        )
    return await prompter.tokenize(str(body.prompt), body.add_special_tokens is not False)
