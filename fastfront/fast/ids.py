"""Token ids as engines and clients read them. Pure twin of `ids_native.pyx`.

Ids that a tokenizer made come as `array("I")`, for which no Python integer needs to be made; any others as they are.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

_pack = msgspec.msgpack.Encoder().encode
_write = msgspec.json.Encoder().encode


def pack_ids(ids: Collection[object], limit: int) -> bytes | None:
    """The array of token ids as msgpack; None if one is no integer from 0 to `limit` - 1. A limit has 32 bits."""
    for value in ids:
        if type(value) is not int or not 0 <= value < limit:
            return None
    return _pack(ids if type(ids) is list else list(ids))


def json_ids(ids: Collection[int]) -> bytes:
    """The array of token ids as JSON."""
    return _write(ids if type(ids) is list else list(ids))
