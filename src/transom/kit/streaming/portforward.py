"""Port forwarding as a session of connections, whatever the wire: SPDY, SPDY inside a WebSocket, or
WebSocket channels.

Each connection is a pair of streams: one for data both ways, and one on which the server reports
errors. A session begins after the upgrade (`start`), receives bytes (`receive_data`, `receive_eof`)
and returns events and bytes (`data_to_send`); when it is `done`, the caller closes the connection
under it. Peer input never raises, and writes to a closed connection are dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.streaming import channels, spdy, websocket
from transom.kit.streaming.channels import DATA, ERROR, ChannelSocket
from transom.kit.streaming.session import StreamingSession
from transom.kit.streaming.spdy_frames import Headers, ResetCode

_HELD_LIMIT: Final = 64 * 1024
_ALL_HELD_LIMIT: Final = 1024 * 1024  # for all connections of a session together
_MOST_PORTS: Final = 100  # a message begins with the number of its channel in one byte


@dataclass(frozen=True, slots=True)
class ForwardConnected:
    """For a server: the client wants a connection to this port."""

    connection: int
    port: int


@dataclass(frozen=True, slots=True)
class ForwardData:
    """Call `acknowledge` when the data is consumed."""

    connection: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ForwardEnded:
    """The peer sends no more data on this connection."""

    connection: int


@dataclass(frozen=True, slots=True)
class ForwardFailed:
    """For a client: the server's error message about the connection."""

    connection: int
    message: str


@dataclass(frozen=True, slots=True)
class ForwardDisconnected:
    """The connection is finished, or the peer aborted it. No more events follow for it."""

    connection: int


@dataclass(frozen=True, slots=True)
class ForwardClosed:
    """The last event: the session is over. `error` is empty after a normal close."""

    error: str = ""


Event = (
    ForwardConnected
    | ForwardData
    | ForwardEnded
    | ForwardFailed
    | ForwardDisconnected
    | ForwardClosed
)


class Tunnel:
    """Bytes carried in the binary messages of a WebSocket. Also used alone, to splice them to a raw
    connection.
    """

    def __init__(self, *, client: bool) -> None:
        self.socket = websocket.WebSocketConnection(client=client, pieces=True)
        self.closed = False
        self.error = ""

    def receive_data(self, data: bytes) -> bytes:
        """Returns the payload. Afterwards `closed` is set if the peer closed, and `error` if it did
        not close normally.
        """
        inside: list[bytes] = []
        for event in self.socket.receive_data(data):
            match event:
                case websocket.MessagePiece(piece, text):
                    if text:
                        self.socket.close(
                            websocket.CloseCode.UNSUPPORTED_DATA, "only binary messages"
                        )
                        self._end("a text message in a tunnel")
                        break
                    inside.append(piece)
                case websocket.CloseReceived(code, reason):
                    self._end(
                        ""
                        if code == websocket.CloseCode.NORMAL
                        else f"closed with code {code}: {reason}"
                    )
                case websocket.WebSocketConnectionFailed(_, problem):
                    self._end(problem)
        return b"".join(inside)

    def send(self, data: bytes) -> None:
        if data and not self.closed:
            self.socket.send(data)

    def close(self) -> None:
        self.socket.close()

    def data_to_send(self) -> bytes:
        return self.socket.data_to_send()

    def _end(self, error: str) -> None:
        self.closed = self.socket.finished = True
        self.error = error


class PortForward(StreamingSession[Event]):
    """One end of a port-forward session."""

    @abstractmethod
    def write(self, connection: int, data: bytes) -> None: ...

    @abstractmethod
    def end(self, connection: int) -> None:
        """Ends sending from this side. Wires without half-close do nothing."""

    @abstractmethod
    def fail(self, connection: int, message: str) -> None:
        """For a server: reports an error to the client. `disconnect` follows."""

    @abstractmethod
    def disconnect(self, connection: int) -> None:
        """Closes the connection in both directions."""

    @abstractmethod
    def close(self) -> None:
        """Ends the session and all its connections."""

    def acknowledge(self, connection: int, size: int) -> None:
        """Reports the number of received bytes that are consumed."""

    @abstractmethod
    def _drop_all(self) -> list[int]:
        """Removes and returns all connections."""

    def _last_events(self, error: str) -> list[Event]:
        return [
            *(ForwardDisconnected(connection) for connection in self._drop_all()),
            ForwardClosed(error),
        ]


class _Pair:
    """The two streams of a connection, 0 while one is missing. The pair is known by the number of
    its first stream.
    """

    __slots__ = ("connection", "data", "ended", "error", "held", "port", "request")

    def __init__(self, connection: int, request: str, port: int) -> None:
        self.connection = connection
        self.request = request
        self.port = port
        self.data = 0
        self.error = 0
        self.held = bytearray()  # server: data before both streams exist; client: the error so far
        self.ended = False  # the data ended before both streams existed


class _SpdySession(PortForward):
    def __init__(self, *, client: bool, window: int, tunnel: bool) -> None:
        super().__init__()
        self.spdy = spdy.SpdyConnection(client=client, window=window)
        self._tunnel = Tunnel(client=client) if tunnel else None
        self._pairs: dict[int, _Pair] = {}
        self._by_stream: dict[int, _Pair] = {}

    def write(self, connection: int, data: bytes) -> None:
        pair = self._pairs.get(connection)
        if pair is not None and data and self.spdy.can_send(pair.data):
            self.spdy.send_data(pair.data, data)

    def end(self, connection: int) -> None:
        pair = self._pairs.get(connection)
        if pair is not None:
            self._end_stream(pair.data)

    def close(self) -> None:
        if not self.closed:
            for id in list(self._by_stream):
                self.spdy.reset(id)
            self._drop_all()
            self.spdy.close()
            self.closed = True

    def acknowledge(self, connection: int, size: int) -> None:
        pair = self._pairs.get(connection)
        self.spdy.acknowledge(pair.data if pair is not None else 0, size)

    @property
    def queued(self) -> int:
        return self.spdy.queued

    def data_to_send(self) -> bytes:
        tunnel = self._tunnel
        if tunnel is None:
            return self.spdy.data_to_send()
        tunnel.send(self.spdy.data_to_send())
        if self.done:
            tunnel.close()
        return tunnel.data_to_send()

    def _receive(self, data: bytes, events: list[Event]) -> None:
        tunnel = self._tunnel
        if tunnel is not None:
            data = tunnel.receive_data(data)
        for event in self.spdy.receive_data(data):
            match event:
                case spdy.StreamOpened(id, headers):
                    self._on_opened(id, dict(headers), events)
                case spdy.DataReceived(id, piece):
                    self._on_data(id, piece, events)
                case spdy.StreamEnded(id):
                    self._on_ended(id, events)
                case spdy.StreamReset(id):
                    self._on_reset(id, events)
                case spdy.SpdyConnectionFailed(message):
                    self._end_session(message, events)
        if tunnel is not None and tunnel.closed:
            self._end_session(tunnel.error, events)

    @abstractmethod
    def _on_opened(self, id: int, headers: dict[str, str], events: list[Event]) -> None: ...

    @abstractmethod
    def _on_data(self, id: int, data: bytes, events: list[Event]) -> None: ...

    @abstractmethod
    def _on_ended(self, id: int, events: list[Event]) -> None: ...

    def _on_reset(self, id: int, events: list[Event]) -> None:
        pair = self._by_stream.get(id)
        if pair is not None:
            self._break_off(pair, events)

    def _break_off(self, pair: _Pair, events: list[Event]) -> None:
        self.spdy.reset(pair.data)
        self.spdy.reset(pair.error)
        self._forget(pair)
        events.append(ForwardDisconnected(pair.connection))

    def _end_stream(self, id: int) -> None:
        if self.spdy.can_send(id):
            self.spdy.end_stream(id)

    def _forget(self, pair: _Pair) -> None:
        self._pairs.pop(pair.connection, None)
        self._by_stream.pop(pair.data, None)
        self._by_stream.pop(pair.error, None)

    def _drop_all(self) -> list[int]:
        connections = list(self._pairs)
        self._pairs.clear()
        self._by_stream.clear()
        return connections


class SpdyForwardServer(_SpdySession):
    """The end that reaches the ports. With `tunnel` the SPDY bytes go inside the messages of a
    WebSocket.
    """

    def __init__(self, *, window: int = 0, tunnel: bool = False) -> None:
        super().__init__(client=False, window=window, tunnel=tunnel)
        self._waiting: dict[str, _Pair] = {}  # by request, until both streams exist
        self._held = 0  # bytes for connections of which one stream is missing

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def waiting(self) -> list[tuple[str, int]]:
        """Requests and connections with a missing stream; call `expire` for those that wait longer
        than STREAM_CREATION_TIMEOUT.
        """
        return [(request, pair.connection) for request, pair in self._waiting.items()]

    def expire(self, request: str, connection: int) -> None:
        pair = self._waiting.get(request)
        if pair is not None and pair.connection == connection:
            if self.spdy.can_send(pair.error):
                message = f"(request={request}) timed out waiting for streams"
                self.spdy.send_data(pair.error, message.encode(), fin=True)
            self.spdy.reset(pair.data)
            self._give_up(pair)

    def fail(self, connection: int, message: str) -> None:
        pair = self._pairs.get(connection)
        if pair is not None and self.spdy.can_send(pair.error):
            self.spdy.send_data(pair.error, message.encode())

    def disconnect(self, connection: int) -> None:
        pair = self._pairs.get(connection)
        if pair is not None:
            self._end_stream(pair.error)
            self._end_stream(pair.data)
            self._forget(pair)

    def _on_opened(self, id: int, headers: dict[str, str], events: list[Event]) -> None:
        kind, port = (
            headers.get(channels.STREAM_TYPE, ""),
            parse_port(headers.get(channels.PORT, "")),
        )
        if kind not in (DATA, ERROR) or port is None:
            self.spdy.reset(id)
            return
        # Old clients send no request ID; their two streams are consecutive, the error stream first.
        request = headers.get(channels.REQUEST_ID) or str(id if kind == ERROR else id - 2)
        pair = self._waiting.setdefault(request, _Pair(id, request, port))
        if (pair.data if kind == DATA else pair.error) != 0:
            self._complain(
                pair,
                f"error processing stream for request {request}: {kind} stream already assigned",
            )
            self.spdy.reset(id)
            return
        if not self.spdy.accept(id):
            if not pair.data and not pair.error:
                del self._waiting[request]
            return
        if kind == DATA:
            pair.data, pair.port = id, port
        else:
            pair.error = id
        self._by_stream[id] = pair
        if pair.data and pair.error:
            del self._waiting[request]
            self._pairs[pair.connection] = pair
            events.append(ForwardConnected(pair.connection, pair.port))
            if pair.held:
                events.append(ForwardData(pair.connection, bytes(pair.held)))
                self._held -= len(pair.held)
                pair.held.clear()
            if pair.ended:
                events.append(ForwardEnded(pair.connection))

    def _complain(self, pair: _Pair, message: str) -> None:
        if self.spdy.can_send(pair.error):
            self.spdy.send_data(pair.error, message.encode())

    def _on_data(self, id: int, data: bytes, events: list[Event]) -> None:
        pair = self._by_stream.get(id)
        if pair is None or id != pair.data:
            self.spdy.acknowledge(id, len(data))
        elif pair.connection in self._pairs:
            events.append(ForwardData(pair.connection, data))
        elif (
            len(pair.held) + len(data) <= _HELD_LIMIT and self._held + len(data) <= _ALL_HELD_LIMIT
        ):
            pair.held += data  # the error stream is still missing
            self._held += len(data)
        else:
            self.spdy.reset(id, ResetCode.FLOW_CONTROL_ERROR)
            self.spdy.acknowledge(id, len(data))
            self._give_up(pair)

    def _on_ended(self, id: int, events: list[Event]) -> None:
        pair = self._by_stream.get(id)
        if pair is None or id != pair.data:
            return
        if pair.connection in self._pairs:
            events.append(ForwardEnded(pair.connection))
        pair.ended = True

    def _on_reset(self, id: int, events: list[Event]) -> None:
        pair = self._by_stream.get(id)
        if pair is not None and pair.connection not in self._pairs:
            self._give_up(pair)
        else:
            super()._on_reset(id, events)

    def _give_up(self, pair: _Pair) -> None:
        """Drops a pair whose second stream never came."""
        del self._waiting[pair.request]
        self._forget(pair)
        self._held -= len(pair.held)
        self.spdy.acknowledge(0, len(pair.held))

    def _drop_all(self) -> list[int]:
        self._waiting.clear()
        return super()._drop_all()


class SpdyForwardClient(_SpdySession):
    def __init__(self, *, window: int = 0, tunnel: bool = False) -> None:
        super().__init__(client=True, window=window, tunnel=tunnel)
        self._requests = 0

    def open(self, port: int) -> int | None:
        """Opens a connection to a port; None if the session accepts no more."""
        try:
            request, self._requests = str(self._requests), self._requests + 1
            error = self.spdy.create_stream(self._headers(ERROR, port, request))
            self.spdy.end_stream(error)
            data = self.spdy.create_stream(self._headers(DATA, port, request))
        except spdy.StreamClosedError:
            return None
        pair = _Pair(error, request, port)
        pair.error, pair.data = error, data
        self._pairs[error] = self._by_stream[error] = self._by_stream[data] = pair
        return pair.connection

    def fail(self, connection: int, message: str) -> None:
        self.disconnect(connection)

    def disconnect(self, connection: int) -> None:
        pair = self._pairs.get(connection)
        if pair is not None:
            self._end_stream(pair.data)
            self.spdy.reset(pair.data)
            self.spdy.reset(pair.error)
            self._forget(pair)

    @staticmethod
    def _headers(kind: str, port: int, request: str) -> Headers:
        return [
            (channels.STREAM_TYPE, kind),
            (channels.PORT, str(port)),
            (channels.REQUEST_ID, request),
        ]

    def _on_opened(self, id: int, headers: dict[str, str], events: list[Event]) -> None:
        self.spdy.reset(id, ResetCode.REFUSED_STREAM)

    def _on_data(self, id: int, data: bytes, events: list[Event]) -> None:
        pair = self._by_stream.get(id)
        if pair is not None and id == pair.data:
            events.append(ForwardData(pair.connection, data))
            return
        if pair is not None:
            pair.held += data[: _HELD_LIMIT - len(pair.held)]
        self.spdy.acknowledge(id, len(data))

    def _on_ended(self, id: int, events: list[Event]) -> None:
        pair = self._by_stream.pop(id, None)
        if pair is None:
            return
        if id == pair.data:
            events.append(ForwardEnded(pair.connection))
        elif pair.held:
            events.append(ForwardFailed(pair.connection, pair.held.decode(errors="replace")))
        if pair.data not in self._by_stream and pair.error not in self._by_stream:
            self._end_stream(pair.data)
            self._forget(pair)
            events.append(ForwardDisconnected(pair.connection))


class _WebSocketSession(PortForward):
    """Two channels for each port form one connection, open from the start. A connection is its
    index in the list.
    """

    def __init__(self, ports: Sequence[int], protocol: str, *, client: bool) -> None:
        super().__init__()
        self.socket = ChannelSocket(protocol, client=client)
        self.ports = list(ports)
        self._open = set(range(len(ports)))

    def write(self, connection: int, data: bytes) -> None:
        if data and connection in self._open:
            self.socket.send(2 * connection, data)

    def end(self, connection: int) -> None:
        """This protocol has no message for it."""

    def disconnect(self, connection: int) -> None:
        if connection in self._open:
            self._open.discard(connection)
            if not self._open:
                self.close()

    def close(self) -> None:
        if not self.closed:
            self._open.clear()
            self.socket.close()
            self.closed = True

    def data_to_send(self) -> bytes:
        return self.socket.data_to_send()

    def _receive(self, data: bytes, events: list[Event]) -> None:
        for event in self.socket.receive_data(data):
            match event:
                case channels.ChannelData(channel, piece):
                    if channel // 2 in self._open:
                        self._on_data(channel, piece, events)
                case channels.SocketClosed(error):
                    self._end_session(error, events)
            if self._over:
                return

    @abstractmethod
    def _on_data(self, channel: int, data: bytes, events: list[Event]) -> None: ...

    def _drop_all(self) -> list[int]:
        connections = sorted(self._open)
        self._open.clear()
        return connections


class WebSocketForwardServer(_WebSocketSession):
    def __init__(self, ports: Sequence[int], protocol: str) -> None:
        super().__init__(ports, protocol, client=False)

    def start(self) -> list[Event]:
        for connection, port in enumerate(self.ports):
            for channel in (2 * connection, 2 * connection + 1):
                self.socket.send(channel, port.to_bytes(2, "little"))
        return [ForwardConnected(connection, port) for connection, port in enumerate(self.ports)]

    def fail(self, connection: int, message: str) -> None:
        if connection in self._open:
            self.socket.send(2 * connection + 1, message.encode())

    def _on_data(self, channel: int, data: bytes, events: list[Event]) -> None:
        if channel % 2 == 0 and data:
            events.append(ForwardData(channel // 2, data))


class WebSocketForwardClient(_WebSocketSession):
    """The first two bytes of each channel repeat its port, and are checked."""

    def __init__(self, ports: Sequence[int], protocol: str) -> None:
        super().__init__(ports, protocol, client=True)
        self._heads = dict.fromkeys(range(2 * len(ports)), b"")

    def fail(self, connection: int, message: str) -> None:
        self.disconnect(connection)

    def _on_data(self, channel: int, data: bytes, events: list[Event]) -> None:
        connection = channel // 2
        head = self._heads[channel]
        if len(head) < 2:
            missing = 2 - len(head)
            head, data = head + data[:missing], data[missing:]
            self._heads[channel] = head
            if len(head) == 2 and int.from_bytes(head, "little") != self.ports[connection]:
                self.close()
                self._end_session(
                    f"channel {channel} is for another port than {self.ports[connection]}", events
                )
                return
        if data:
            is_data = channel % 2 == 0
            events.append(
                ForwardData(connection, data)
                if is_data
                else ForwardFailed(connection, data.decode(errors="replace"))
            )


def parse_port(text: str) -> int | None:
    """A port as a header gives it: decimal, 1 to 65535."""
    return (
        int(text)
        if text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= 65535 and len(text) < 6
        else None
    )


def parse_ports(values: Sequence[str]) -> list[int] | str:
    """The ports of a query (`port=80,81&port=82`), or an error message."""
    if not values:
        return 'query parameter "port" is required'
    ports: list[int] = []
    for value in values:
        if not value:
            return 'query parameter "port" cannot be empty'
        for part in value.split(","):
            digits = part.isascii() and part.isdecimal()
            if not digits or len(part) > 5 or int(part) > 65535:
                reason = "value out of range" if digits else "invalid syntax"
                return (
                    f'unable to parse "{value}" as a port: strconv.ParseUint: parsing "{part}": '
                    f"{reason}"
                )
            if int(part) < 1:
                return f'port "{value}" must be > 0'
            ports.append(int(part))
    return (
        ports
        if len(ports) <= _MOST_PORTS
        else f"at most {_MOST_PORTS} ports can be forwarded over one WebSocket"
    )
