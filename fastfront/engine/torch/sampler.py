"""From logits to tokens: every row by its own request's parameters, all rows at once where they need the same.

Nothing is sorted but the `top_k` heaviest tokens of rows that ask for them. `top_p` needs no order: a token is drawn
from all; it is among the fewest that have `top_p` of the weight if those heavier than it have less; if it is not,
neither is any that is as light, and the draw is made again among the heavier ones. A draw's number is made of the row's
seed, the token's place in the answer and the try, never of what else is in the batch or how often it was preempted. The
weights are not quite so free: a model rounds otherwise in other batches, and a draw on the border goes to a neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import torch
from torch import Tensor

from fastfront.engine.rank.request import Sampling
from fastfront.engine.torch.penalties import Penalties

GREEDY_BELOW = 1e-5
#: Weights are first added up, or compared, in pieces of this many.
PIECE = 128
#: Draws for one token; each leaves fewer to draw from, so the last of them is the likeliest.
TRIES = 64
NO_TOKEN = -1

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    """The finisher of splitmix64."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, place: int, attempt: int = 0) -> float:
    """The number in [0, 1) for a try at the token at this place of an answer with this seed."""
    return (_mix((_mix(seed & _MASK) + (place * TRIES + attempt + 1) * _GAMMA) & _MASK) >> 11) / (1 << 53)


class Row:
    """What the sampler knows of one request; `tokens` is its live list of prompt and answer."""

    def __init__(self, params: Sampling, tokens: list[int], num_prompt: int, seed: int, vocab_size: int) -> None:
        self.tokens = tokens
        self.num_prompt = num_prompt
        self.seed = seed
        self.greedy = params.temperature < GREEDY_BELOW
        self.temperature = params.temperature
        self.min_p = params.min_p
        self.top_p = params.top_p
        self.top_k = params.top_k if 0 < params.top_k < vocab_size else 0
        self.guided = params.structured_outputs is not None
        self.min_tokens = params.min_tokens
        self.held_back = [token for token in params.all_stop_token_ids if 0 <= token < vocab_size]
        self.bad_words = params.bad_words_token_ids or []
        self.bias = params.logit_bias or {}
        self.denied: Tensor | None = None
        if params.allowed_token_ids is not None:
            self.denied = torch.ones(vocab_size, dtype=torch.bool)
            self.denied[params.allowed_token_ids] = False
        self.penalties = Penalties.of(params, tokens, num_prompt)
        #: Whether its logits are taken as they are.
        held_back = self.min_tokens and self.held_back
        self.plain = not (self.bias or self.bad_words or self.penalties or self.denied is not None or held_back)

    def number(self, attempt: int = 0) -> float:
        """What its next draw goes by."""
        return uniform(self.seed, len(self.tokens) - self.num_prompt, attempt)

    def banned(self) -> list[int]:
        """The tokens that must not come next."""
        answered = len(self.tokens) - self.num_prompt
        tokens = list(self.held_back) if answered < self.min_tokens else []
        for word in self.bad_words:
            before = len(word) - 1
            if before <= answered and self.tokens[len(self.tokens) - before :] == word[:-1]:
                tokens.append(word[-1])
        return tokens


def sample(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    """The next token of each row, NO_TOKEN where none is possible; `logits` [rows, vocab] are used up."""
    if not all(row.plain for row in rows):
        _adjust(logits, rows)
    likeliest = logits.amax(-1)
    wild = [at for at, row in enumerate(rows) if not row.greedy]
    if not wild:
        picks = _argmax(logits)
    elif len(wild) == len(rows):
        picks = _draw(logits, likeliest, rows)
    else:
        picks = _argmax(logits)
        picks[wild] = _draw(logits[wild], likeliest[wild], [rows[at] for at in wild])
    tokens: list[int] = picks.tolist()
    valid = likeliest.isfinite()
    if not bool(valid.all()):
        tokens = [token if good else NO_TOKEN for token, good in zip(tokens, valid.tolist(), strict=True)]
    return tokens


def _argmax(logits: Tensor) -> Tensor:
    """The likeliest token of each row; on the CPU numpy finds it ten times as fast."""
    return torch.from_numpy(logits.numpy().argmax(-1)) if logits.device.type == "cpu" else logits.argmax(-1)


def _adjust(logits: Tensor, rows: Sequence[Row]) -> None:
    """All that changes which token is likeliest, in vLLM's order: allowed, bad words, min_tokens, bias, penalties."""
    for at, row in enumerate(rows):
        if row.denied is not None:
            row.denied = row.denied.to(logits.device)
            logits[at].masked_fill_(row.denied, -torch.inf)
    where: list[int] = []
    what: list[int] = []
    for at, row in enumerate(rows):
        if not row.plain:
            tokens = row.banned()
            if row.guided and _leaves_none(logits[at], tokens):
                continue  # its grammar is at its end: nothing but a stop is possible
            where += repeat(at, len(tokens))
            what += tokens
    if where:
        logits[where, what] = -torch.inf
    biased = [(at, token, value) for at, row in enumerate(rows) for token, value in row.bias.items()]
    if biased:
        at_rows, tokens, values = (list(column) for column in zip(*biased, strict=True))
        logits[at_rows, tokens] += torch.tensor(values, dtype=logits.dtype, device=logits.device)
    for at, row in enumerate(rows):
        if row.penalties:
            row.penalties.apply(logits[at])


def _leaves_none(logits: Tensor, banned: list[int]) -> bool:
    """Whether nothing is possible in this row beside `banned`."""
    rest = logits.clone()
    rest[banned] = -torch.inf
    return not bool(rest.amax().isfinite())


def _draw(logits: Tensor, likeliest: Tensor, rows: Sequence[Row]) -> Tensor:
    """A random token of each row; `logits` are used up."""
    device = logits.device
    logits -= likeliest[:, None]
    if any(row.temperature != 1.0 for row in rows):
        logits /= torch.tensor([row.temperature for row in rows], device=device)[:, None]
    # Relative to the likeliest token, whose weight is 1: nothing here needs them to add up to 1.
    weights = logits.exp_().nan_to_num_()
    if any(row.min_p for row in rows):
        least = torch.tensor([row.min_p for row in rows], device=device)
        weights = _above(weights, least.nextafter(torch.full_like(least, -1.0)))
    few = [place for place, row in enumerate(rows) if row.top_k]
    if len(few) == len(rows):
        return _pick_few(weights, rows)
    picks = _pick(weights, _numbers(rows, device))
    some = [place for place, row in enumerate(rows) if not row.top_k and row.top_p < 1.0]
    if len(some) == len(rows):
        picks = _fit(weights, picks, rows)
    elif some:
        picks[some] = _fit(weights[some], picks[some], [rows[place] for place in some])
    if few:
        picks[few] = _pick_few(weights[few], [rows[place] for place in few])
    return picks


def _numbers(rows: Sequence[Row], device: torch.device, attempt: int = 0) -> Tensor:
    return torch.tensor([row.number(attempt) for row in rows], dtype=torch.float64, device=device)


def _above(weights: Tensor, least: Tensor) -> Tensor:
    """The weights above each row's `least`, others 0."""
    if weights.device.type != "cpu":
        return torch.where(weights > least[:, None], weights, 0.0)
    # Row by row, since here a comparison costs ten times what a fixed threshold does.
    return torch.stack([torch.threshold(row, value, 0.0) for row, value in zip(weights, least.tolist(), strict=True)])


def _pick(weights: Tensor, at: Tensor) -> Tensor:
    """The token of each row at the share `at` of its weight, in the order of ids.

    Weights are added up in pieces first: a running sum over the whole vocabulary would cost more, and be less exact.
    """
    pieces = _pieces(weights)
    sums = pieces.sum(-1).double()
    ends = sums.cumsum(-1)
    wanted = at[:, None] * ends[:, -1:]
    piece = torch.searchsorted(ends, wanted, right=True).clamp_(max=ends.shape[1] - 1)
    wanted -= ends.gather(1, piece) - sums.gather(1, piece)
    inside = pieces.gather(1, piece[:, :, None].expand(-1, -1, PIECE))[:, 0]
    place = torch.searchsorted(inside.double().cumsum(-1), wanted, right=True).clamp_(max=PIECE - 1)
    picks = (piece * PIECE + place)[:, 0].clamp_(max=weights.shape[1] - 1)
    # Where rounding led past the last weight of a piece, the likeliest token is never wrong.
    missed = weights.gather(1, picks[:, None])[:, 0] <= 0
    if bool(missed.any()):
        picks[missed] = _argmax(weights[missed])
    return picks


def _pieces(weights: Tensor) -> Tensor:
    """[rows, pieces, PIECE], with zeros at the end."""
    rows, vocab = weights.shape
    padded = torch.nn.functional.pad(weights, (0, -vocab % PIECE)) if vocab % PIECE else weights
    return padded.view(rows, -1, PIECE)


def _fit(weights: Tensor, picks: Tensor, rows: Sequence[Row]) -> Tensor:
    """The first draws `picks`, or later ones, that are within each row's `top_p`."""
    top_p = torch.tensor([row.top_p for row in rows], dtype=torch.float64, device=weights.device)
    needed = top_p * _total(weights)
    open_rows = list(range(len(rows)))
    for attempt in range(1, TRIES):
        heavier = _above(weights, weights.gather(1, picks[open_rows][:, None])[:, 0])
        left = (_total(heavier) >= needed).nonzero()[:, 0].tolist()
        if not left:
            return picks
        open_rows = [open_rows[at] for at in left]
        weights, needed = heavier[left], needed[left]
        picks[open_rows] = _pick(weights, _numbers([rows[at] for at in open_rows], weights.device, attempt))
    picks[open_rows] = _argmax(weights)
    return picks


def _total(weights: Tensor) -> Tensor:
    """Each row's weight, in float64."""
    return _pieces(weights).sum(-1).double().sum(-1)


def _pick_few(weights: Tensor, rows: Sequence[Row]) -> Tensor:
    """The same among each row's `top_k` heaviest tokens, and of those the fewest that have `top_p` of their weight."""
    device = weights.device
    top_k = torch.tensor([row.top_k for row in rows], device=device)[:, None]
    top_p = torch.tensor([row.top_p for row in rows], dtype=torch.float64, device=device)[:, None]
    depth = int(top_k.max())
    heavy, ids = _heaviest(weights, depth)
    heavy = heavy.double().masked_fill_(torch.arange(depth, device=device)[None] >= top_k, 0.0)
    ends = heavy.cumsum(-1)
    kept = ends - heavy < top_p * ends[:, -1:]
    kept[:, 0] = True
    ends = heavy.masked_fill_(~kept, 0.0).cumsum(-1)
    wanted = _numbers(rows, device)[:, None] * ends[:, -1:]
    place = torch.searchsorted(ends, wanted, right=True).clamp_(max=depth - 1)
    return ids.gather(1, place)[:, 0]


def _heaviest(weights: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """The `depth` heaviest tokens, falling: weights and ids."""
    pieces = _pieces(weights)
    if 2 * depth > pieces.shape[1]:
        heavy, ids = weights.topk(depth)
        return heavy, ids
    # They all lie in the `depth` pieces with the heaviest heads, and those are soon found.
    _, piece = pieces.amax(-1).topk(depth)
    inside = pieces.gather(1, piece[:, :, None].expand(-1, -1, PIECE)).flatten(1)
    heavy, place = inside.topk(depth)
    ids = piece.gather(1, place // PIECE) * PIECE + place % PIECE
    return heavy, ids.clamp_(max=weights.shape[1] - 1)
