"""Serves GET /v1/models."""

from __future__ import annotations

import secrets

import msgspec

from fastfront.api.state import RenderState
from fastfront.flow import Handler, HttpRequest, ModelInfo, Reply


class Permission(msgspec.Struct, kw_only=True):
    """What OpenAI once said of a model's use; nothing of it depends on anything here."""

    id: str
    object: str = "model_permission"
    created: int
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: None = None
    is_blocking: bool = False


class Model(msgspec.Struct, kw_only=True):
    """One name under which the model is served."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "vllm"
    root: str
    parent: str | None = None
    max_model_len: int
    permission: list[Permission]


class ModelList(msgspec.Struct, kw_only=True):
    """Every served name."""

    object: str = "list"
    data: list[Model]


def models_body(info: ModelInfo) -> bytes:
    """The list as JSON."""
    cards = [
        Model(
            id=name,
            created=info.created,
            root=info.root,
            max_model_len=info.max_model_len,
            permission=[Permission(id=f"modelperm-{secrets.token_hex(8)}", created=info.created)],
        )
        for name in info.names
    ]
    return msgspec.json.encode(ModelList(data=cards))


def models(state: RenderState) -> Handler:
    """The handler."""

    def handle(request: HttpRequest, reply: Reply) -> None:
        reply.send(200, models_body(state.pipeline.info))

    return handle
