"""Log-probabilities as the wire carries them: the token itself, then the likeliest or the asked ones (wire d.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from fastfront.engine.rank.frames import Arrays
from fastfront.engine.rank.request import Sampling


class Rows(NamedTuple):
    """Candidates of some tokens, a row each, itself first: `ids` and `values` [tokens, width], `ranks` from 1."""

    ids: np.ndarray[Any, np.dtype[np.int32]]
    values: np.ndarray[Any, np.dtype[np.float32]]
    ranks: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, which must be equally wide."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def pack(self, arrays: Arrays) -> list[Any]:
        """As `new_logprobs`."""
        width = list(self.ids.shape)
        return [
            arrays.pack("<i4", width, self.ids.tobytes()),
            arrays.pack("<f4", width, self.values.tobytes()),
            arrays.pack("<i8", width[:1], self.ranks.tobytes()),
            None,
        ]

    def pack_prompt(self, arrays: Arrays) -> list[Any]:
        """As `new_prompt_logprobs_tensors`."""
        width = list(self.ids.shape)
        return [
            arrays.pack("int32", width, self.ids.tobytes()),
            arrays.pack("float32", width, self.values.tobytes()),
            arrays.pack("int32", width[:1], self.ranks.astype(np.int32).tobytes()),
            None,
            None,
        ]


def wanted(params: Sampling) -> bool:
    """Whether the answer's tokens come with log-probabilities."""
    return params.logprobs is not None or params.logprob_token_ids is not None


def rows_of(logprobs: Tensor, tokens: Sequence[int], top: int, asked: Sequence[int] | None = None) -> Rows:
    """The rows of `tokens` with the `top` likeliest (-1: all) or those `asked`; `logprobs` are [tokens, vocab]."""
    own = torch.tensor(tokens, dtype=torch.long, device=logprobs.device)[:, None]
    mine = logprobs.gather(1, own)
    ranks = (logprobs >= mine).sum(-1)
    if asked is not None:
        others = torch.tensor(asked, dtype=torch.long, device=logprobs.device).expand(len(tokens), -1)
        values = logprobs.gather(1, others)
    else:
        values, others = logprobs.topk(logprobs.shape[1] if top < 0 else top)
    ids = torch.cat((own, others), 1).to(torch.int32)
    return Rows(ids.cpu().numpy(), torch.cat((mine, values), 1).cpu().numpy(), ranks.cpu().numpy())
