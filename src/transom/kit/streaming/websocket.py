"""WebSocket (RFC 6455) without extensions, for either end: bytes in, events out, bytes to send, and
the handshake's headers.

Peer input never raises: an error closes the connection with the RFC's code and emits an event.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from transom.kit.lazy_dataclass import dataclass

MAX_MESSAGE: Final = 32 * 1024 * 1024
_PIECE: Final = 16 * 1024  # larger messages are delivered in parts
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    NO_STATUS = 1005  # never on the wire: the peer gave no code
    ABNORMAL = 1006  # never on the wire: the connection broke off
    INVALID_PAYLOAD = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    INTERNAL_ERROR = 1011


@dataclass(frozen=True, slots=True)
class WebSocketMessage:
    """A whole message, reassembled from its fragments. Text is valid UTF-8."""

    data: bytes
    text: bool = False


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """A part of a message, in order, possibly empty. Text is not checked."""

    data: bytes
    text: bool
    last: bool


@dataclass(frozen=True, slots=True)
class PingReceived:
    """It has been answered already."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PongReceived:
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseReceived:
    """The last event. The answer is queued: send it, then close the connection."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class WebSocketConnectionFailed:
    """The last event: the peer violated the protocol. Send the pending data, then close."""

    code: int
    message: str


Event = (
    WebSocketMessage
    | MessagePiece
    | PingReceived
    | PongReceived
    | CloseReceived
    | WebSocketConnectionFailed
)


class _Broken(Exception):
    def __init__(self, message: str, code: CloseCode = CloseCode.PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


class _PartialFrame:
    """An incompletely received data frame."""

    __slots__ = ("at", "final", "left", "mask", "opcode")

    def __init__(self, opcode: int, final: bool, mask: bytes, left: int) -> None:
        self.opcode = opcode
        self.final = final
        self.mask = mask
        self.at = 0  # in the frame
        self.left = left


class WebSocketConnection:
    """`pieces` delivers messages as MessagePiece as they arrive, without buffering; otherwise whole
    messages are reassembled.
    """

    def __init__(
        self,
        *,
        client: bool,
        max_message: int = MAX_MESSAGE,
        pieces: bool = False,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._client = client
        self._limit = max_message
        self._pieces = pieces
        self._partial: _PartialFrame | None = None
        self._random = random
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._fragments: list[bytes] = []
        self._size = 0
        self._text: bool | None = None  # of the message that is being reassembled
        self.close_sent = False
        self.finished = False  # after a close frame or an error: nothing more is read

    def send(self, data: bytes, *, text: bool = False) -> None:
        self._send(Opcode.TEXT if text else Opcode.BINARY, data)

    def ping(self, data: bytes = b"") -> None:
        self._send(Opcode.PING, data[:125])

    def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Sends a close frame, once. Data from the peer is delivered until its own close frame
        comes.
        """
        text = reason.encode()[:123].decode(errors="ignore").encode()
        self._close(b"" if code == CloseCode.NO_STATUS else code.to_bytes(2, "big") + text)

    def data_to_send(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)

    def receive_data(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.finished:
            return events
        self._buffer += data
        at = 0
        try:
            if self._partial is not None:
                at = self._continue_frame(self._partial, 0, events)
            while not self.finished and self._partial is None and (end := self._frame(at, events)):
                at = end
        except _Broken as error:
            self.finished = True
            self.close(error.code, str(error))
            events.append(WebSocketConnectionFailed(error.code, str(error)))
        del self._buffer[:at]
        if self.finished:
            self._buffer.clear()
            self._fragments.clear()
        return events

    # -- frames

    def _close(self, payload: bytes) -> None:
        if not self.close_sent:
            self._send(Opcode.CLOSE, payload)
            self.close_sent = True

    def _send(self, opcode: Opcode, payload: bytes) -> None:
        if self.close_sent:
            return  # nothing may follow a close frame
        size = len(payload)
        mask_bit = 0x80 if self._client else 0
        head = bytearray([0x80 | opcode])
        if size < 126:
            head.append(mask_bit | size)
        elif size < 65536:
            head.append(mask_bit | 126)
            head += size.to_bytes(2, "big")
        else:
            head.append(mask_bit | 127)
            head += size.to_bytes(8, "big")
        if self._client:
            mask = self._random(4)
            head += mask
            payload = apply_mask(payload, mask)
        self._out.append(bytes(head))
        self._out.append(payload)

    def _frame(self, at: int, events: list[Event]) -> int:
        """Handles the frame at `at` if it is complete; returns where it ends, or 0."""
        buffer = self._buffer
        there = len(buffer) - at
        if there < 2:
            return 0
        first, second = buffer[at], buffer[at + 1]
        opcode, size = first & 0x0F, second & 0x7F
        self._check_head(first, second)
        head = 2 + (2 if size == 126 else 8 if size == 127 else 0)
        if there < head:
            return 0
        if size >= 126:
            size = int.from_bytes(buffer[at + 2 : at + head], "big")
            if size >> 63:
                raise _Broken("a length with its highest bit set")
        if opcode < Opcode.CLOSE and self._size + size > self._limit:
            raise _Broken(f"a message larger than {self._limit} bytes", CloseCode.MESSAGE_TOO_BIG)
        masked = 0 if self._client else 4
        end = at + head + masked + size
        if len(buffer) < end:
            if self._pieces and size > _PIECE and opcode < Opcode.CLOSE and there >= head + masked:
                mask = bytes(buffer[at + head : at + head + masked])
                self._partial = _PartialFrame(opcode, bool(first & 0x80), mask, size)
                return self._continue_frame(self._partial, at + head + masked, events)
            return 0
        payload = bytes(memoryview(buffer)[at + head + masked : end])
        if masked:
            payload = apply_mask(payload, bytes(buffer[at + head : at + head + 4]))
        if opcode >= Opcode.CLOSE:
            self._on_control(opcode, payload, events)
        else:
            self._on_data(opcode, bool(first & 0x80), payload, events)
        return end

    def _continue_frame(self, partial: _PartialFrame, at: int, events: list[Event]) -> int:
        """Delivers the received part of a data frame. Returns where it ends in the buffer."""
        end = min(len(self._buffer), at + partial.left)
        if end - at < min(_PIECE, partial.left):
            return at
        payload = bytes(self._buffer[at:end])
        if partial.mask:
            turn = partial.at % 4
            payload = apply_mask(payload, partial.mask[turn:] + partial.mask[:turn])
        partial.at += len(payload)
        partial.left -= len(payload)
        if not partial.left:
            self._partial = None
        opcode = partial.opcode if partial.at == len(payload) else Opcode.CONTINUATION
        self._on_data(opcode, partial.final and not partial.left, payload, events)
        return end

    def _check_head(self, first: int, second: int) -> None:
        opcode = first & 0x0F
        if first & 0x70:
            raise _Broken("reserved bits are set, but no extension was agreed")
        if opcode not in _OPCODES:
            raise _Broken(f"unknown opcode {opcode}")
        if bool(second & 0x80) == self._client:
            raise _Broken(
                "frames of a server are not masked"
                if self._client
                else "frames of a client are masked"
            )
        if opcode >= Opcode.CLOSE and (not first & 0x80 or second & 0x7F > 125):
            raise _Broken("a control frame is whole and has at most 125 bytes")
        if opcode < Opcode.CLOSE and (opcode == Opcode.CONTINUATION) != (self._text is not None):
            raise _Broken("a fragment out of order")

    def _on_data(self, opcode: int, last: bool, payload: bytes, events: list[Event]) -> None:
        if opcode != Opcode.CONTINUATION:
            self._text = opcode == Opcode.TEXT
        self._size += len(payload)
        if self._pieces:
            if payload or last:
                events.append(MessagePiece(payload, bool(self._text), last))
            if last:
                self._text = None
                self._size = 0
            return
        if payload:
            self._fragments.append(payload)
        if not last:
            return
        data = self._fragments[0] if len(self._fragments) == 1 else b"".join(self._fragments)
        text, self._text = bool(self._text), None
        self._fragments = []
        self._size = 0
        if text:
            _check_utf8(data)
        events.append(WebSocketMessage(data, text))

    def _on_control(self, opcode: int, payload: bytes, events: list[Event]) -> None:
        if opcode == Opcode.PING:
            self._send(Opcode.PONG, payload)
            events.append(PingReceived(payload))
        elif opcode == Opcode.PONG:
            events.append(PongReceived(payload))
        else:
            code: int = CloseCode.NO_STATUS
            if payload:
                code = int.from_bytes(payload[:2], "big")
                if len(payload) == 1 or not _is_close_code(code):
                    raise _Broken("a close frame with an invalid code")
                _check_utf8(payload[2:])
            self.finished = True
            self._close(payload[:2])
            events.append(CloseReceived(code, payload[2:].decode()))


_OPCODES = frozenset(Opcode)


def _is_close_code(code: int) -> bool:
    return (
        code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014)
        or 3000 <= code < 5000
    )


def _check_utf8(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise _Broken("text that is not UTF-8", CloseCode.INVALID_PAYLOAD) from None


def apply_mask(data: bytes, mask: bytes) -> bytes:
    """Masks or unmasks, as one large integer: much faster than byte by byte."""
    size = len(data)
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(whole, "little")).to_bytes(
        size, "little"
    )


# -- the handshake

HeaderList = list[tuple[bytes, bytes]]


def accept_key(key: str) -> str:
    return base64.b64encode(
        hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()
    ).decode()


def header_tokens(value: str) -> list[str]:
    """The parts of a comma-separated header: Connection, or the offered subprotocols."""
    return [part for raw in value.split(",") if (part := raw.strip())]


def is_websocket_upgrade(headers: Mapping[str, str]) -> bool:
    """Whether these headers (names in lower case) ask for a WebSocket."""
    return (
        headers.get("upgrade", "").lower() == "websocket"
        and "upgrade" in headers.get("connection", "").lower()
    )


def check_handshake_request(method: str, headers: Mapping[str, str]) -> str:
    """An error message for an invalid WebSocket request, or "". Header names in lower case."""
    if method != "GET":
        return "a WebSocket begins with GET"
    if not is_websocket_upgrade(headers):
        return "the headers Connection: Upgrade and Upgrade: websocket are required"
    if headers.get("sec-websocket-version", "").strip() != "13":
        return "missing or bad WebSocket Version"
    try:
        key = base64.b64decode(headers.get("sec-websocket-key", "").strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    return "" if len(key) == 16 else "mismatch challenge/response"


def choose_subprotocol(offered: Sequence[str], supported: Iterable[str]) -> str | None:
    """The first supported offer. No offer counts as "", and None means no agreement."""
    known = frozenset(supported)
    return next((name for name in offered or [""] if name in known), None)


def response_headers(key: str, subprotocol: str = "") -> HeaderList:
    """Headers of the 101 response."""
    headers = [
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Accept", accept_key(key.strip()).encode()),
    ]
    if subprotocol:
        headers.append((b"Sec-WebSocket-Protocol", subprotocol.encode("latin-1")))
    return headers


def request_headers(key: str, subprotocols: Sequence[str] = ()) -> HeaderList:
    headers = [
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Version", b"13"),
        (b"Sec-WebSocket-Key", key.encode()),
    ]
    if subprotocols:
        headers.append((b"Sec-WebSocket-Protocol", ", ".join(subprotocols).encode("latin-1")))
    return headers


def make_key(random: Callable[[int], bytes] = os.urandom) -> str:
    return base64.b64encode(random(16)).decode()


def check_handshake_response(
    status: int, headers: Mapping[str, str], key: str, subprotocols: Sequence[str] = ()
) -> str:
    """An error message for an invalid response to a request with this key and these offers, or ""."""
    if status != 101:
        return f"the server answered {status}, not 101"
    if not is_websocket_upgrade(headers):
        return "the answer has no upgrade headers"
    if headers.get("sec-websocket-accept", "").strip() != accept_key(key):
        return "the answer has the wrong Sec-WebSocket-Accept"
    chosen = headers.get("sec-websocket-protocol", "").strip()
    if chosen and chosen not in subprotocols:
        return f"the server chose {chosen!r}, which was not offered"
    return ""
