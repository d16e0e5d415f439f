"""The names and messages of Kubernetes' streaming protocols, on SPDY and on WebSocket, and protocol
negotiation.

Pure data and conversions, shared by the sessions in `remotecommand.py` and `portforward.py`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kit.streaming import websocket

# -- names

SPDY: Final = "SPDY/3.1"
PROTOCOL_HEADER: Final = "X-Stream-Protocol-Version"
ACCEPTED_HEADER: Final = "X-Accepted-Stream-Protocol-Versions"

V1: Final = "channel.k8s.io"
V2: Final = "v2.channel.k8s.io"
V3: Final = "v3.channel.k8s.io"
V4: Final = "v4.channel.k8s.io"
V5: Final = "v5.channel.k8s.io"
BASE64: Final = "base64.channel.k8s.io"
V4_BASE64: Final = "v4.base64.channel.k8s.io"
PORT_FORWARD: Final = "portforward.k8s.io"
TUNNEL_PREFIX: Final = "SPDY/3.1+"
TUNNEL: Final = TUNNEL_PREFIX + PORT_FORWARD

REMOTE_COMMAND_SPDY: Final = (V4, V3, V2, V1)
REMOTE_COMMAND_WEBSOCKET: Final = ("", V1, BASE64, V4, V4_BASE64, V5)
PORT_FORWARD_SPDY: Final = (PORT_FORWARD,)
PORT_FORWARD_WEBSOCKET: Final = ("", V4, V4_BASE64)

STREAM_TYPE: Final = "streamtype"  # the header is streamType, but SPDY has names in lower case
PORT: Final = "port"
REQUEST_ID: Final = "requestid"

STDIN: Final = "stdin"
STDOUT: Final = "stdout"
STDERR: Final = "stderr"
ERROR: Final = "error"
RESIZE: Final = "resize"
DATA: Final = "data"

CHANNELS: Final = (STDIN, STDOUT, STDERR, ERROR, RESIZE)
"""The streams of a remote command on WebSocket, by channel number."""

CLOSE_CHANNEL: Final = 255

STREAM_CREATION_TIMEOUT: Final = 30.0
IDLE_TIMEOUT: Final = 4 * 3600.0

_JSON_STATUS: Final = frozenset({V4, V4_BASE64, V5})


def has_json_status(protocol: str) -> bool:
    """Whether the error stream carries a Status, not plain text."""
    return protocol in _JSON_STATUS


def has_resize(protocol: str) -> bool:
    """Whether a terminal opens a resize stream on SPDY."""
    return protocol in (V3, V4)


# -- protocol negotiation


class Refusal(NamedTuple):
    """The response to an upgrade that is not possible: plain text, as in Kubernetes."""

    status: int
    message: str
    headers: list[tuple[str, str]]


def negotiate_spdy(offered: str, supported: Sequence[str]) -> str | Refusal:
    """Chooses by the client's X-Stream-Protocol-Version header, its values joined with commas."""
    offers = websocket.header_tokens(offered)
    if not offers:
        return Refusal(400, f"unable to upgrade: {PROTOCOL_HEADER} is required", [])
    for name in offers:
        if name in supported:
            return name
    message = (
        f"unable to upgrade: unable to negotiate protocol: client supports [{' '.join(offers)}],"
        f" server accepts [{' '.join(supported)}]"
    )
    return Refusal(403, message, [(ACCEPTED_HEADER, name) for name in supported])


def spdy_response_headers(protocol: str) -> list[tuple[bytes, bytes]]:
    """Headers of the 101 response."""
    return [
        (PROTOCOL_HEADER.encode(), protocol.encode()),
        (b"Connection", b"Upgrade"),
        (b"Upgrade", SPDY.encode()),
    ]


def spdy_request_headers(protocols: Sequence[str]) -> list[tuple[bytes, bytes]]:
    return [
        (b"Connection", b"Upgrade"),
        (b"Upgrade", SPDY.encode()),
        *((PROTOCOL_HEADER.encode(), name.encode()) for name in protocols),
    ]


def tunnelled(offered: Sequence[str]) -> list[str]:
    """The SPDY protocols among the offered WebSocket subprotocols: those to tunnel inside the
    WebSocket.
    """
    return [
        name[len(TUNNEL_PREFIX) :]
        for name in offered
        if name.startswith(TUNNEL_PREFIX) and name.endswith(".k8s.io")
    ]


# -- the error stream


def command_success_status() -> dict[str, Any]:
    return {"metadata": {}, "status": "Success"}


def exit_code_status(code: int, detail: str) -> dict[str, Any]:
    """The status of a command that exited with a code; `detail` is the runtime's own text. Code 0
    is success.
    """
    if code == 0:
        return command_success_status()
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {detail}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def internal_error_status(message: str) -> dict[str, Any]:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {message}",
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }


def exit_code_of_status(status: dict[str, Any]) -> int | None:
    """The exit code in a status; None if it describes another failure."""
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    if status.get("reason") == "NonZeroExitCode" and isinstance(details, dict):
        for cause in details.get("causes") or []:
            text = (
                cause.get("message")
                if isinstance(cause, dict) and cause.get("reason") == "ExitCode"
                else None
            )
            if isinstance(text, str) and text.isdecimal():
                return int(text)
    return None


def encode_status(status: dict[str, Any], protocol: str) -> bytes:
    """The contents of the error stream. Before version 4 that is the text of a failure, and nothing
    for success.
    """
    if has_json_status(protocol):
        return json.dumps(status, separators=(",", ":"), ensure_ascii=False).encode()
    return b"" if status.get("status") == "Success" else str(status.get("message", "")).encode()


def decode_status(raw: bytes, protocol: str) -> dict[str, Any]:
    """The reverse; an unreadable status becomes a failure with that message."""
    if not has_json_status(protocol):
        return (
            {"metadata": {}, "status": "Failure", "message": raw.decode(errors="replace")}
            if raw
            else command_success_status()
        )
    try:
        status = json.loads(raw)
    except (ValueError, RecursionError):
        status = None
    if isinstance(status, dict):
        return status
    return internal_error_status(
        f"error stream protocol error: {raw[:200].decode(errors='replace')!r} is not a status"
    )


# -- the resize stream


def encode_resize(width: int, height: int) -> bytes:
    return b'{"Width":%d,"Height":%d}\n' % (width, height)


class ResizeDecoder:
    """Decodes sizes from a stream of JSON objects, however it is split. The first error ends the
    stream, as in Kubernetes.
    """

    _LIMIT = 4096

    def __init__(self) -> None:
        self._buffer = b""
        self._broken = False

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        sizes: list[tuple[int, int]] = []
        if self._broken:
            return sizes
        self._buffer += data
        while (end := self._buffer.find(b"}")) >= 0:
            size = _parse_size(self._buffer[: end + 1])
            if size is None:
                self._broken = True
                break
            sizes.append(size)
            self._buffer = self._buffer[end + 1 :]
        if self._broken or len(self._buffer) > self._LIMIT:
            self._broken = True
            self._buffer = b""
        return sizes


def _parse_size(raw: bytes) -> tuple[int, int] | None:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    fields = {name.lower(): number for name, number in value.items()}  # as Go matches field names
    width, height = fields.get("width", 0), fields.get("height", 0)
    for number in (width, height):
        if type(number) is not int or not 0 <= number <= 65535:
            return None
    return width, height


# -- channels on WebSocket


@dataclass(frozen=True, slots=True)
class ChannelData:
    channel: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """Version 5: the peer sends no more on this channel."""

    channel: int


@dataclass(frozen=True, slots=True)
class SocketClosed:
    """The last event; `error` is empty after a normal close."""

    error: str


ChannelEvent = ChannelData | ChannelClosed | SocketClosed


class ChannelSocket:
    """A WebSocket whose messages begin with their channel number."""

    def __init__(self, protocol: str, *, client: bool) -> None:
        self.socket = websocket.WebSocketConnection(client=client, pieces=True)
        self.protocol = protocol
        self.can_close_channel = protocol == V5
        self._text = protocol in (BASE64, V4_BASE64)
        self._channel: int | None = None  # of the message that is being received
        # of a close signal: its bytes so far; of base64: an incomplete group of characters
        self._head = b""
        self._dropped = False  # the rest of the message is not decoded

    def send(self, channel: int, data: bytes) -> None:
        if self._text:
            self.socket.send(b"%c" % (0x30 + channel) + base64.b64encode(data), text=True)
        else:
            self.socket.send(b"%c" % channel + data)

    def send_close(self, channel: int) -> None:
        """Version 5 only; earlier, a channel ends with the connection."""
        if self.can_close_channel:
            self.socket.send(bytes((CLOSE_CHANNEL, channel)))

    def close(self, code: int = websocket.CloseCode.NORMAL, reason: str = "") -> None:
        self.socket.close(code, reason)

    def data_to_send(self) -> bytes:
        return self.socket.data_to_send()

    def receive_data(self, data: bytes) -> list[ChannelEvent]:
        events: list[ChannelEvent] = []
        for event in self.socket.receive_data(data):
            match event:
                case websocket.MessagePiece(piece, _, last):
                    decoded = self._decode(piece, last)
                    if decoded is not None:
                        events.append(decoded)
                        if isinstance(decoded, SocketClosed):
                            return events
                case websocket.CloseReceived(code, reason):
                    events.append(
                        SocketClosed(
                            "" if code in _NORMAL else f"closed with code {code}: {reason}"
                        )
                    )
                case websocket.WebSocketConnectionFailed(_, problem):
                    events.append(SocketClosed(problem))
        return events

    def _decode(self, piece: bytes, last: bool) -> ChannelEvent | None:
        """Decodes a piece of a message. Empty messages are ignored."""
        fresh = self._channel is None
        if fresh and piece:
            self._channel, piece = piece[0] - (0x30 if self._text else 0), piece[1:]
        channel = self._channel
        if last:
            self._channel = None
        if channel is None:
            return None
        if self.can_close_channel and channel == CLOSE_CHANNEL:
            return self._decode_close(piece, last)
        if not self._text:
            return ChannelData(channel, piece) if piece or (fresh and last) else None
        data = self._decode_base64(piece, last)
        return ChannelData(channel, data) if data or (fresh and last and data is not None) else None

    def _decode_close(self, piece: bytes, last: bool) -> ChannelEvent | None:
        self._head += piece
        if not last and len(self._head) < 2:
            return None
        number, self._head = self._head, b""
        if last and len(number) == 1:
            return ChannelClosed(number[0])
        problem = "one channel number follows the close signal"
        self._give_up(websocket.CloseCode.PROTOCOL_ERROR, problem)
        return SocketClosed(problem)

    def _decode_base64(self, piece: bytes, last: bool) -> bytes | None:
        """Returns None if it cannot be decoded: drops the rest of the message and continues the
        session, as in Kubernetes.
        """
        text, self._head = self._head + piece, b""
        if self._dropped:
            self._dropped = not last
            return None
        if not last:
            whole = len(text) - len(text) % 4
            text, self._head = text[:whole], text[whole:]
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            self._dropped, self._head = not last, b""
            return None
        if self._head or not last:
            self._dropped = text.endswith(b"=")  # nothing follows padding
        return data

    def _give_up(self, code: int, problem: str) -> None:
        self.socket.close(code, problem)
        self.socket.finished = True


_NORMAL = (
    websocket.CloseCode.NORMAL,
    websocket.CloseCode.GOING_AWAY,
    websocket.CloseCode.NO_STATUS,
)
