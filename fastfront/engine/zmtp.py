"""ZMTP 3.1 (the protocol under libzmq's sockets) for the two kinds of socket a frontend binds: ROUTER and PULL.

A connection goes greeting -> READY -> messages. Both sides send a greeting of 64 bytes and then, the mechanism being
NULL, one READY command with their socket type and identity. What follows are frames: a flag byte (1 more frames of this
message, 2 the length has 8 bytes instead of 1, 4 a command), the length, the bytes. `Codec` is that machine, without
I/O; `sockets.py` joins it to connections.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastfront.errors import EngineError

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4
#: What each kind of socket may be connected to.
PARTNERS = {"ROUTER": (b"DEALER", b"REQ", b"ROUTER"), "PULL": (b"PUSH",)}
MAX_MESSAGE = 1 << 30
FRAME_COST = 64  # what an (empty) frame counts against the limit of a message
MAX_COMMAND = 1 << 16
JOIN_BELOW = 1 << 16

Message = list[bytes]


class ZmtpError(EngineError):
    """A peer that does not speak as it must; its connection is closed."""


class Codec:
    """The receiving half of one connection. Bytes into `join`; messages out of `read`, answers to send in `replies`."""

    def __init__(self, kind: str, max_message: int = MAX_MESSAGE) -> None:
        self.kind = kind
        self.max_message = max_message
        self.minor = 0  # of the peer's ZMTP 3.x; nothing sent here needs more than 3.0
        self.identity: bytes | None = None  # the peer's, once its READY is there
        self.replies: list[bytes] = []
        self._greeted = False
        self._rest = bytearray()  # bytes of what is not complete yet
        self._need = 0  # how many there must be before it is worth looking again
        self._frames: Message = []
        self._size = 0  # of the frames so far

    @property
    def between_messages(self) -> bool:
        """Whether what comes next begins a message (or is a command)."""
        return self.identity is not None and not self._frames

    def join(self, data: bytes | memoryview) -> bytes:
        """A copy of what was read, cut anywhere, behind what is kept; nothing where that is not worth a look yet."""
        if not self._rest:
            return bytes(data)
        if len(self._rest) + len(data) < self._need:
            self._rest += data
            return b""
        joined = b"".join((self._rest, data))
        self._rest.clear()
        return joined

    def read(self, data: bytes, at: int = 0) -> list[Message]:
        """The messages that are complete in joined data from `at` on; keeps the rest. ZmtpError ends the connection."""
        if not self._greeted:
            at = self._read_greeting(data)
            if not self._greeted:
                self._keep(data, len(data) + 1)
                return []
        return self._read_frames(data, at)

    def _keep(self, rest: bytes, need: int) -> None:
        self._rest += rest
        self._need = need

    def _read_greeting(self, data: bytes) -> int:
        """Refuses a wrong greeting at its first wrong byte; how many bytes it took."""
        if data[:1] not in (b"", b"\xff") or (len(data) > 9 and not data[9] & 1):
            raise ZmtpError(f"not ZMTP: it begins with {data[:10]!r}")
        if len(data) > 10 and data[10] < 3:
            raise ZmtpError(f"ZMTP {data[10]}.x is spoken, 3.0 or later is needed")
        if len(data) < len(GREETING):
            return 0
        mechanism = data[12:32].rstrip(b"\0")
        if mechanism != b"NULL":
            raise ZmtpError(f"the security mechanism {mechanism!r} is asked for, only NULL is there")
        self.minor = data[11]
        self._greeted = True
        properties = [(b"Socket-Type", self.kind.encode())]
        if self.kind == "ROUTER":
            properties.append((b"Identity", b""))
        self.replies.append(command(b"READY", b"".join(map(_property, properties))))
        return len(GREETING)

    def _read_frames(self, data: bytes, at: int) -> list[Message]:
        messages: list[Message] = []
        end = len(data)
        while end - at >= 2:
            flags = data[at]
            if flags & LONG:
                if end - at < 9:
                    break
                size = int.from_bytes(data[at + 1 : at + 9], "big")
                start = at + 9
            else:
                size = data[at + 1]
                start = at + 2
            self._check_frame(flags, size)
            if start + size > end:
                self._keep(data[at:], start + size - at)
                return messages
            at = start + size
            frame = data[start:at]
            if flags & COMMAND:
                self._read_command(frame)
            elif flags & MORE:
                self._frames.append(frame)
                self._size += size + FRAME_COST
            elif self._frames:
                messages.append([*self._frames, frame])
                self._frames = []
                self._size = 0
            else:
                messages.append([frame])
        if at < end:
            self._keep(data[at:], 9 if data[at] & LONG else 2)
        return messages

    def _check_frame(self, flags: int, size: int) -> None:
        """Before a frame's bytes are waited for."""
        if flags > 7 or flags & (COMMAND | MORE) == COMMAND | MORE:
            raise ZmtpError(f"a frame has the flags {flags:#04x}")
        if flags & COMMAND:
            if size > MAX_COMMAND:
                raise ZmtpError(f"a command of {size} bytes")
        elif self.identity is None:
            raise ZmtpError("a message came before READY")
        elif self._size + size > self.max_message:
            raise ZmtpError(f"a message of {self._size + size} bytes or more; {self.max_message} are allowed")

    def _read_command(self, body: bytes) -> None:
        size = body[0] if body else 0
        name, data = body[1 : 1 + size], body[1 + size :]
        if not size or len(name) < size:
            raise ZmtpError("a command without a name")
        if name == b"ERROR":
            raise ZmtpError(f"the peer refuses: {data[1:]!r}")
        if self.identity is None:
            if name != b"READY":
                raise ZmtpError(f"the command {name!r} came before READY")
            self._read_ready(data)
        elif name == b"PING":
            # A time to live (2 bytes), then a context of up to 16 bytes that goes back.
            if not 2 <= len(data) <= 18:
                raise ZmtpError(f"a PING of {len(data)} bytes")
            self.replies.append(command(b"PONG", data[2:]))
        elif name == b"READY":
            raise ZmtpError("a second READY")
        # PONG answers nothing of ours, SUBSCRIBE and CANCEL have no meaning here, others are to be skipped.

    def _read_ready(self, data: bytes) -> None:
        properties = _read_properties(data)
        kind = properties.get(b"socket-type", b"")
        if kind not in PARTNERS[self.kind]:
            self.replies.append(command(b"ERROR", _short(b"Invalid socket type")))
            raise ZmtpError(f"a {kind.decode(errors='replace') or 'nameless'} socket connected to a {self.kind}")
        self.identity = properties.get(b"identity", b"")


def command(name: bytes, data: bytes) -> bytes:
    """A command frame."""
    body = _short(name) + data
    return _head(COMMAND, len(body)) + body


def encode_message(frames: Sequence[bytes]) -> list[bytes]:
    """A message as bytes to write one after the other; small neighbours are joined, large frames not copied."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    last = len(frames) - 1
    for place, frame in enumerate(frames):
        small.append(_head(MORE if place < last else 0, len(frame)))
        if len(frame) < JOIN_BELOW:
            small.append(frame)
        else:
            pieces += (b"".join(small), frame)
            small = []
    if small:
        pieces.append(b"".join(small))
    return pieces


def _head(flags: int, size: int) -> bytes:
    if size < 256:
        return bytes((flags, size))
    return bytes((flags | LONG,)) + size.to_bytes(8, "big")


def _short(data: bytes) -> bytes:
    return bytes((len(data),)) + data


def _property(item: tuple[bytes, bytes]) -> bytes:
    name, value = item
    return _short(name) + len(value).to_bytes(4, "big") + value


def _read_properties(data: bytes) -> dict[bytes, bytes]:
    """READY's properties; their names are not case-sensitive."""
    properties: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        name = data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
        size = int.from_bytes(data[at : at + 4], "big")
        value = data[at + 4 : at + 4 + size]
        at += 4 + size
        if at > len(data) or not name:
            raise ZmtpError("READY has a property that is cut off")
        properties[name.lower()] = value
    return properties
