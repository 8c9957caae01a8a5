"""vLLM's wire in msgpack: one output message walked. Pure twin of `msgpack_native.pyx`."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from fastfront.errors import WireError

_decode = msgspec.msgpack.Decoder().decode
_decode_outer = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_outputs = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode

#: Places in an EngineCoreOutput (wire d.8).
FINISH_REASON, STOP_REASON, NUM_NANS = 5, 6, 13


class Output(NamedTuple):
    """One EngineCoreOutput. `raw` is all of it where a field that is seldom there is set, else None."""

    request_id: str
    token_ids: list[int]
    finish_reason: int
    stop_reason: int | str | None
    raw: bytes | None


class Outputs(NamedTuple):
    """One EngineCoreOutputs message (wire d.7); what is seldom there is left as raw msgpack, None where nil.

    `error` tells that the message went wrong after the outputs given here.
    """

    engine_index: int
    outputs: list[Output]
    stats: bytes | None
    utility: bytes | None
    finished_requests: bytes | None
    wave_complete: int | None
    start_wave: int | None
    error: WireError | None


def walk_outputs(message: bytes) -> Outputs:
    """Takes an output message apart. What is malformed is told in `error`, with all that came before it."""
    empty = Outputs(-1, [], None, None, None, None, None, None)
    outputs: list[Output] = []
    try:
        fields = _decode_outer(message)
        if len(fields) < 2:
            raise WireError(f"an output message has {len(fields)} fields, not 2 or more")
        index = _integer(_decode(fields[0]), "engine_index")
        empty = empty._replace(engine_index=index)
        for raw in _decode_outputs(fields[1]):
            outputs.append(_walk_output(bytes(raw)))
        rest: list[Any] = [None if bytes(raw) == b"\xc0" else bytes(raw) for raw in fields[2:9]]
        rest += [None] * (7 - len(rest))
        waves = [None if raw is None else _integer(_decode(raw), "wave") for raw in (rest[4], rest[5])]
        return Outputs(index, outputs, rest[0], rest[2], rest[3], waves[0], waves[1], None)
    except (msgspec.DecodeError, WireError) as error:
        return empty._replace(outputs=outputs, error=WireError(f"malformed output message: {error}"))


def _walk_output(raw: bytes) -> Output:
    fields = _decode(raw)
    if not isinstance(fields, list) or len(fields) < 2:
        raise WireError("an output is not an array of 2 or more")
    request_id, token_ids = fields[0], fields[1]
    if not isinstance(request_id, str):
        raise WireError("request_id is not a string")
    if not isinstance(token_ids, list):
        raise WireError("new_token_ids is not an array")
    for token_id in token_ids:
        _integer(token_id, "a token id")
    finish, stop, rare = -1, None, False
    for place, value in enumerate(fields[2:], 2):
        if value is None or place == NUM_NANS:
            continue
        if place == FINISH_REASON:
            finish = _integer(value, "finish_reason")
            if not 0 <= finish <= 4:
                raise WireError(f"finish_reason is {finish}, not 0 to 4")
        elif place == STOP_REASON:
            if not isinstance(value, str):
                _integer(value, "stop_reason")
            stop = value
        else:
            rare = True
    return Output(request_id, token_ids, finish, stop, raw if rare else None)


def _integer(value: object, name: str) -> int:
    if type(value) is not int:
        raise WireError(f"{name} is not an integer")
    return value
