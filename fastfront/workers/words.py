"""What the first worker and another say to each other (line.py)."""

from __future__ import annotations

import msgspec

#: From the first: what it has decided; the model's files are there; it is time to listen; it was sent a signal.
AGREED, FOUND, LISTEN, SIGNAL = "agreed", "found", "listen", "signal"
#: To the first: it could listen; an error that it ends with.
READY, FAILED = "ready", "failed"
#: Either way: an engine sent what cannot be handled, with its rank, how often it had registered, and the reason.
BROKEN = "broken"
#: Questions: what it has counted, to another; what all but the asker have, to the first.
COUNTS, OTHERS = "counts", "others"

_read_broken = msgspec.msgpack.Decoder(tuple[int, int, str]).decode


def pack_broken(rank: int, times: int, reason: str) -> bytes:
    """What goes with BROKEN."""
    return msgspec.msgpack.encode((rank, times, reason))


def read_broken(data: bytes) -> tuple[int, int, str]:
    """What came with BROKEN."""
    return _read_broken(data)
