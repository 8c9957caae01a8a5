"""Incremental detokenization: token ids in, text out. Pure twin of `detok_native.pyx`.

Theory. A vocabulary maps an id to bytes. In a byte-level vocabulary all tokens' bytes join into one UTF-8 stream and
each maximal ill-formed part of it becomes one U+FFFD. In a byte-fallback vocabulary only the `<0xNN>` tokens are bytes:
from the first ill-formed one of a run to the run's end, each byte is one U+FFFD. (The reference library takes back the
good characters before it too; a stream has sent them by then.) Tokens that are skipped (special, or unknown to the
tokenizer) are taken out before anything is joined. So at most 3 bytes are ever undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

REPLACEMENT = "\ufffd"


class Vocab:
    """What every id stands for.

    `pieces[id]` are its bytes, or None for an id that the tokenizer does not define. `special` are the ids left out
    with skip_special. `byte_ids` are the byte-fallback tokens (none in a byte-level vocabulary). `strip_left` is how
    many leading spaces of a whole text are dropped; -1 drops every space of the first token (metaspace).
    """

    def __init__(
        self,
        pieces: Iterable[bytes | None],
        special: Collection[int] = (),
        byte_ids: Collection[int] = (),
        strip_left: int = 0,
        byte_level: bool = True,
    ) -> None:
        self.pieces = list(pieces)
        self.special = frozenset(special)
        self.byte_ids = frozenset(byte_ids)
        self.strip_left = strip_left
        self.byte_level = byte_level

    def __len__(self) -> int:
        return len(self.pieces)

    def piece(self, token_id: int) -> bytes | None:
        """The bytes of one id, None where there is none."""
        return self.pieces[token_id] if 0 <= token_id < len(self.pieces) else None


class Decoder:
    """Decodes one text. `prompt` are the ids before it: they set the state and give no text."""

    def __init__(self, vocab: Vocab, skip_special: bool = True, prompt: Sequence[int] = ()) -> None:
        self._vocab = vocab
        self._skip = vocab.special if skip_special else frozenset[int]()
        self._strip = vocab.strip_left
        self._run = bytearray()  # the unfinished character
        self._bad_run = False
        self._seeded = 0  # how many bytes of the run came from the prompt: their U+FFFD is the prompt's
        self._seed(prompt)

    def feed(self, ids: Iterable[int]) -> str:
        """The text that `ids` add; the end of an unfinished character is held until it is certain."""
        return "".join([self._feed_one(token_id) for token_id in ids])

    def finish(self) -> str:
        """What is still held, at the end of the text."""
        return self._strip_text(self._end_run())

    def _visible(self, token_id: int) -> bytes | None:
        return None if token_id in self._skip else self._vocab.piece(token_id)

    def _seed(self, prompt: Sequence[int]) -> None:
        tail = bytearray()
        for token_id in reversed(prompt):
            piece = self._visible(token_id)
            if piece is None:
                continue
            self._strip = 0
            if not self._vocab.byte_level and token_id not in self._vocab.byte_ids:
                break
            tail[:0] = piece
            if len(tail) >= 4:
                break
        for cut in range(max(0, len(tail) - 3), len(tail)):
            if _is_unfinished(bytes(tail[cut:])):
                self._run += tail[cut:]
                self._seeded = len(self._run)
                break

    def _feed_one(self, token_id: int) -> str:
        piece = self._visible(token_id)
        if piece is None:
            return ""
        if self._vocab.byte_level:
            text = self._feed_bytes(piece)
        elif token_id in self._vocab.byte_ids:
            text = self._feed_run(piece)
        else:
            text = self._end_run() + piece.decode("utf-8", "replace")
        return self._strip_text(text)

    def _feed_bytes(self, piece: bytes) -> str:
        data = bytes(self._run) + piece
        if not data:
            return ""
        held = 0
        for n in range(1, min(3, len(data)) + 1):
            if _is_unfinished(data[-n:]):
                held = n
        ready, self._run = data[: len(data) - held], bytearray(data[len(data) - held :])
        text = ready.decode("utf-8", "replace")
        if self._seeded and ready:
            # what the prompt began and these bytes did not finish is shown by the prompt
            if text.startswith(REPLACEMENT) and not ready.startswith(b"\xef\xbf\xbd"):
                text = text[1:]
            self._seeded = 0
        return text

    def _feed_run(self, piece: bytes) -> str:
        if self._bad_run:
            return REPLACEMENT
        self._run += piece
        if _is_unfinished(bytes(self._run)):
            return ""
        if _is_valid(bytes(self._run)):
            text = self._run.decode()
            self._run.clear()
            self._seeded = 0
            return text
        self._bad_run = True
        return self._spoil_run()

    def _spoil_run(self) -> str:
        text = REPLACEMENT * (len(self._run) - self._seeded)
        self._run.clear()
        self._seeded = 0
        return text

    def _end_run(self) -> str:
        """The text of the unfinished character that ends here."""
        self._bad_run = False
        if not self._vocab.byte_level:
            return self._spoil_run()
        text = REPLACEMENT if self._run and not self._seeded else ""
        self._run.clear()
        self._seeded = 0
        return text

    def _strip_text(self, text: str) -> str:
        if self._strip == 0 or not text:
            return text
        if self._strip < 0:
            self._strip = 0
            return text.replace(" ", "")
        stripped = text.lstrip(" ")
        dropped = min(len(text) - len(stripped), self._strip)
        self._strip = self._strip - dropped if dropped == len(text) else 0
        return text[dropped:]


def _is_valid(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_unfinished(data: bytes) -> bool:
    """Whether `data` is the beginning of exactly one character, and not all of it."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start == 0 and error.reason == "unexpected end of data"
    return False
