"""Chat formats: how a conversation becomes a prompt. Jinja templates are one; others have code of their own."""

from __future__ import annotations

from typing import Protocol

from fastfront.flow import ChatInput


class ChatFormat(Protocol):
    """One way to write a conversation down. `render` runs in the event loop or in a worker thread."""

    @property
    def makes_ids(self) -> bool:
        """Whether the prompt comes as token ids, in which no text of the client's is a control token."""

    def render(self, chat: ChatInput) -> str | list[int]:
        """The prompt as text, or as token ids where the format itself makes tokens; raises RequestError."""
