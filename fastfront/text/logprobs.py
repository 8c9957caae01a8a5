"""From the rows of an engine's log-probabilities to positions with every candidate's text and bytes.

A token that is whole characters has a text of its own. One that begins or ends inside a character shows "" until the
character is complete, and the token that completes it shows all of it (as vLLM's Python frontend does); so the texts of
a well-formed answer's tokens join to the answer. Its bytes are always its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastfront.fast import Vocab
from fastfront.flow import LogprobRows, Position, Token

REPLACEMENT = "\ufffd"
#: So many tokens before one may hold the beginning of its character.
CONTEXT = 4
#: So many tokens are kept; a vocabulary has more, an answer uses few.
KEPT = 1 << 15
NOTHING = Token("", ())


class TokenTable(dict[int, Token]):
    """Every id's token, made when it is first asked for; ids that the vocabulary lacks are empty."""

    def __init__(self, vocab: Vocab) -> None:
        super().__init__()
        self.vocab = vocab
        #: The ids, of those that were asked for, whose text depends on what is before them.
        self.broken: set[int] = set()

    def __missing__(self, token_id: int) -> Token:
        if len(self) >= KEPT:
            self.clear()
        piece = self.vocab.piece(token_id)
        if piece is None:
            token = NOTHING
        else:
            text = piece.decode("utf-8", "replace")
            if REPLACEMENT in text and text.encode() != piece:
                self.broken.add(token_id)
            token = Token(text, tuple(piece))
        self[token_id] = token
        return token


class Positions:
    """Turns one text's rows to positions; at most `top` rivals are kept, of -1 all. `before` are the ids before it."""

    def __init__(self, table: TokenTable, top: int, before: Sequence[int] = ()) -> None:
        self._table = table
        self._top = top
        self._held: list[bytes] = []  # the last tokens, of which no text was shown
        for token_id in before[-CONTEXT:]:
            self._tokens((token_id,))

    def add(self, ids: Sequence[int], rows: LogprobRows | None) -> list[Position]:
        """The positions of the text's next `ids`; rows beyond them are left out, ids before the first row have none."""
        if rows is None:
            return [self._bare(token_id) for token_id in ids]
        bare = max(0, len(ids) - len(rows.ranks))
        return [self._bare(token_id) for token_id in ids[:bare]] + [
            self._position(rows, row) for row in range(len(ids) - bare)
        ]

    def _bare(self, token_id: int) -> Position:
        return Position((token_id,), self._tokens((token_id,)), (), ())

    def _position(self, rows: LogprobRows, row: int) -> Position:
        width = rows.width if self._top < 0 else min(rows.width, self._top + 1)
        start = row * rows.width
        ids = list(rows.ids[start : start + width])
        logprobs = list(rows.logprobs[start : start + width])
        ranks = [rows.ranks[row], *range(1, width)]
        if ids.count(ids[0]) > 1:
            again = ids.index(ids[0], 1)
            ranks[0] = ranks.pop(again)
            del ids[again], logprobs[again]
        return Position(ids, self._tokens(ids), logprobs, ranks)

    def _tokens(self, ids: Sequence[int]) -> list[Token]:
        """The tokens of one position, whose first is the text's."""
        table = self._table
        tokens = [table[token_id] for token_id in ids]
        if not table.broken.isdisjoint(ids):
            tokens = [
                Token(self._completed(token), token.bytes) if token_id in table.broken else token
                for token_id, token in zip(ids, tokens, strict=True)
            ]
        self._pass(ids[0], tokens[0])
        return tokens

    def _completed(self, token: Token) -> str:
        """What a broken token and those before it that showed nothing are together; "" while that is unfinished."""
        data = b"".join((*self._held, bytes(token.bytes)))
        text = data.decode("utf-8", "replace")
        return "" if text.endswith(REPLACEMENT) and not data.endswith(REPLACEMENT.encode()) else text

    def _pass(self, token_id: int, shown: Token) -> None:
        if token_id in self._table.broken and not shown.text:
            self._held = [*self._held[1 - CONTEXT :], bytes(shown.bytes)]
        elif self._held:
            self._held = []
