"""A SPDY/3.1 connection as a state machine, for either end: bytes in, events out, bytes to send.

It gets on with spdystream, the library of kubectl and client-go, whose ways differ from the specification in two points
that matter: data that arrives before the stream's reply is thrown away, so it is held back here, and windows are never
updated, so flow control is off unless both ends are known to count.

What a peer sends never raises. A mistake that concerns one stream resets it; one after which the byte stream makes no sense
ends in GOAWAY and `ConnectionFailed`, and nothing more is read. Only wrong calls raise, with `StreamClosedError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from transom.kit.streaming import spdy_frames as frames
from transom.kit.streaming.spdy_frames import Away, Frame, HeaderError, HeaderReader, Headers, HeaderWriter, Reset, Type

DEFAULT_WINDOW: Final = 65536
MAX_WINDOW: Final = 0x7FFFFFFF
CHUNK: Final = 32 * 1024  # of data in one frame, so that streams take turns


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The peer made a stream. Answer with `accept` or `reset`."""

    stream: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class StreamAccepted:
    """The peer's reply to a stream of ours."""

    stream: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class HeadersReceived:
    stream: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class DataReceived:
    """With flow control on, `acknowledge` the data when it is used up."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The peer sends no more on this stream; it may still be written to."""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The stream is gone in both directions; what was not sent yet is dropped."""

    stream: int
    why: int


@dataclass(frozen=True, slots=True)
class PingAcknowledged:
    id: int


@dataclass(frozen=True, slots=True)
class GoneAway:
    """The peer takes no more streams; those up to `last_stream` go on."""

    last_stream: int
    why: int


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """The peer broke the protocol. Send what there is to send, then close."""

    message: str


Event = (
    StreamOpened
    | StreamAccepted
    | HeadersReceived
    | DataReceived
    | StreamEnded
    | StreamReset
    | PingAcknowledged
    | GoneAway
    | ConnectionFailed
)


class StreamClosedError(Exception):
    """A call for a stream that does not exist, or whose sending side is closed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes."""

    data_frame: int = 4 * 1024 * 1024
    control_frame: int = 64 * 1024
    header_block: int = 64 * 1024
    streams: int = 4096  # open at one time


class _Stream:
    __slots__ = (
        "fin_queued",
        "id",
        "local_closed",
        "queue",
        "receive_window",
        "remote_closed",
        "replied",
        "send_window",
        "used",
    )

    def __init__(self, id: int, send_window: int, receive_window: int) -> None:
        self.id = id
        self.replied = False
        self.local_closed = False
        self.remote_closed = False
        self.queue: deque[memoryview] = deque()
        self.fin_queued = False
        self.send_window = send_window
        self.receive_window = receive_window
        self.used = 0  # acknowledged, not yet given back to the peer as window


class _Broken(Exception):
    """The connection cannot go on."""


class Connection:
    """`window` turns flow control on, with that many bytes for each stream and for all together; at least 65536."""

    def __init__(self, *, client: bool, limits: Limits | None = None, window: int = 0) -> None:
        if window and not DEFAULT_WINDOW <= window <= MAX_WINDOW:
            raise ValueError(f"a window has {DEFAULT_WINDOW} to {MAX_WINDOW} bytes")
        self.limits = limits or Limits()
        self.failed = ""
        self.closed = False  # GOAWAY is sent
        self.gone_away = False  # GOAWAY has come
        self._parity = 1 if client else 0
        self._next_stream = 1 if client else 2
        self._next_ping = 1 if client else 2
        self._last_received = 0
        self._streams: dict[int, _Stream] = {}
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._queued = 0
        self._reader = HeaderReader(self.limits.header_block)
        self._writer = HeaderWriter()
        self._window = window
        self._initial_send_window = DEFAULT_WINDOW
        self._send_window = DEFAULT_WINDOW
        self._receive_window = window
        self._used = 0
        if window:
            self._out.append(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: window}))
            if window > DEFAULT_WINDOW:
                self._out.append(frames.window_update(0, window - DEFAULT_WINDOW))

    # -- what the user calls

    def create_stream(self, headers: Iterable[tuple[str, str]], fin: bool = False) -> int:
        if self.failed or self.closed or self.gone_away or self._next_stream > frames.MAX_STREAM_ID:
            raise StreamClosedError("the connection takes no more streams")
        id = self._next_stream
        self._next_stream += 2
        stream = _Stream(id, self._initial_send_window, self._window)
        stream.local_closed = fin
        self._streams[id] = stream
        self._out.append(frames.syn_stream(id, self._writer.write(headers), fin))
        return id

    def accept(self, id: int, headers: Iterable[tuple[str, str]] = ()) -> bool:
        """Replies to a stream of the peer's. False when it is gone: reset in the same breath as it was opened."""
        stream = self._streams.get(id)
        if stream is None:
            return False
        if id % 2 == self._parity or stream.replied:
            raise StreamClosedError(f"stream {id} awaits no reply")
        stream.replied = True
        self._out.append(frames.syn_reply(id, self._writer.write(headers)))
        self._flush(stream)
        return True

    def send_data(self, id: int, data: bytes, fin: bool = False) -> None:
        """Sends, or queues until there is a reply and a window for it."""
        stream = self._writable(id)
        if data:
            stream.queue.append(memoryview(bytes(data)))
            self._queued += len(data)
        stream.fin_queued = fin
        self._flush(stream)

    def send_headers(self, id: int, headers: Iterable[tuple[str, str]]) -> None:
        self._writable(id)
        self._out.append(frames.headers(id, self._writer.write(headers)))

    def end_stream(self, id: int) -> None:
        """Says that nothing more is sent on this stream."""
        self.send_data(id, b"", fin=True)

    def reset(self, id: int, why: int = Reset.CANCEL) -> None:
        """Ends the stream in both directions; nothing happens when it is gone already."""
        if id in self._streams:
            self._forget(self._streams[id])
            self._out.append(frames.rst_stream(id, why))

    def acknowledge(self, id: int, size: int) -> None:
        """Says that so many received bytes are used up, which with flow control lets the peer send more."""
        if not self._window:
            return
        self._used += size
        if self._used * 2 >= self._window:
            self._receive_window += self._used
            self._out.append(frames.window_update(0, self._used))
            self._used = 0
        stream = self._streams.get(id)
        if stream is not None and not stream.remote_closed:
            stream.used += size
            if stream.used * 2 >= self._window:
                stream.receive_window += stream.used
                self._out.append(frames.window_update(id, stream.used))
                stream.used = 0

    def ping(self) -> int:
        id = self._next_ping
        self._next_ping = id + 2 if id < 0xFFFFFFFE else 2 - self._parity
        self._out.append(frames.ping(id))
        return id

    def close(self, why: int = Away.OK) -> None:
        """Announces the end; streams of the peer's that come after are ignored."""
        if not self.closed:
            self.closed = True
            self._out.append(frames.goaway(self._last_received, why))

    def data_to_send(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)

    def can_send(self, id: int) -> bool:
        stream = self._streams.get(id)
        return stream is not None and not stream.local_closed and not stream.fin_queued

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    @property
    def queued(self) -> int:
        """Bytes that wait for a reply or a window."""
        return self._queued

    # -- what comes in

    def receive_data(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.failed:
            return events
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while (length := frames.peek(buffer, at)) is not None:
                limit = self.limits.control_frame if frames.is_control(buffer, at) else self.limits.data_frame
                if length > limit:
                    raise _Broken(f"a frame of {length} bytes is larger than {limit}")
                if len(buffer) < at + 8 + length:
                    break
                self._handle(frames.cut(buffer, at, length), events)
                at += 8 + length
        except _Broken as error:
            self._fail(str(error), events)
            return events
        del buffer[:at]
        return events

    def _fail(self, message: str, events: list[Event]) -> None:
        self.failed = message
        self.close(Away.PROTOCOL_ERROR)
        for stream in list(self._streams.values()):
            self._forget(stream)
        self._buffer.clear()
        events.append(ConnectionFailed(message))

    def _handle(self, frame: Frame, events: list[Event]) -> None:
        if frame.type is None:
            self._on_data(frame, events)
            return
        if frame.version != frames.VERSION:
            raise _Broken(f"version {frame.version} of SPDY is not supported")
        handler = _HANDLERS.get(frame.type)
        if handler is None:
            return  # the specification asks to ignore what is unknown
        shape, method = handler
        if len(frame.payload) < shape:
            raise _Broken(f"a {Type(frame.type).name} frame of {len(frame.payload)} bytes is too short")
        method(self, frame, events)

    def _on_syn_stream(self, frame: Frame, events: list[Event]) -> None:
        id = self._stream_id(frame)
        headers = self._read_headers(id, frame.payload[10:])
        if id % 2 == self._parity or id <= self._last_received:
            self._refuse(id, Reset.PROTOCOL_ERROR, events)
            return
        self._last_received = id
        if self.closed:
            return
        if headers is None:
            self._refuse(id, Reset.PROTOCOL_ERROR, events)
            return
        if len(self._streams) >= self.limits.streams:
            self._refuse(id, Reset.REFUSED_STREAM, events)
            return
        stream = self._streams[id] = _Stream(id, self._initial_send_window, self._window)
        stream.local_closed = bool(frame.flags & frames.FLAG_UNIDIRECTIONAL)
        events.append(StreamOpened(id, headers))
        if frame.flags & frames.FLAG_FIN:
            self._remote_fin(stream, events)

    def _on_syn_reply(self, frame: Frame, events: list[Event]) -> None:
        id = self._stream_id(frame)
        headers = self._read_headers(id, frame.payload[4:])
        stream = self._known(id, events)
        if stream is None:
            return
        if headers is None or id % 2 != self._parity:
            self._refuse(id, Reset.PROTOCOL_ERROR, events)
            return
        if stream.replied:
            self._refuse(id, Reset.STREAM_IN_USE, events)
            return
        stream.replied = True
        events.append(StreamAccepted(id, headers))
        self._flush(stream)
        if frame.flags & frames.FLAG_FIN:
            self._remote_fin(stream, events)

    def _on_headers(self, frame: Frame, events: list[Event]) -> None:
        id = self._stream_id(frame)
        headers = self._read_headers(id, frame.payload[4:])
        stream = self._known(id, events)
        if stream is None:
            return
        if headers is None:
            self._refuse(id, Reset.PROTOCOL_ERROR, events)
        elif stream.remote_closed:
            self._refuse(id, Reset.STREAM_ALREADY_CLOSED, events)
        else:
            events.append(HeadersReceived(id, headers))
            if frame.flags & frames.FLAG_FIN:
                self._remote_fin(stream, events)

    def _on_data(self, frame: Frame, events: list[Event]) -> None:
        id, size = frame.stream, len(frame.payload)
        if id == 0:
            raise _Broken("data for stream 0")
        if self._window:
            self._receive_window -= size
            if self._receive_window < 0:
                raise _Broken("more data than the window of the connection allows")
        stream = self._known(id, events)
        if stream is None:
            self.acknowledge(id, size)
            return
        if stream.remote_closed:
            self._refuse(id, Reset.STREAM_ALREADY_CLOSED, events)
            self.acknowledge(id, size)
            return
        if self._window:
            stream.receive_window -= size
            if stream.receive_window < 0:
                self._refuse(id, Reset.FLOW_CONTROL_ERROR, events)
                self.acknowledge(id, size)
                return
        if size:
            events.append(DataReceived(id, frame.payload))
        if frame.flags & frames.FLAG_FIN:
            self._remote_fin(stream, events)

    def _on_rst_stream(self, frame: Frame, events: list[Event]) -> None:
        stream = self._streams.get(self._stream_id(frame))
        if stream is not None:
            self._forget(stream)
            events.append(StreamReset(stream.id, frames.word(frame.payload, 4)))

    def _on_settings(self, frame: Frame, events: list[Event]) -> None:
        values = frames.parse_settings(frame.payload)
        if values is None:
            raise _Broken("a SETTINGS frame has the wrong length")
        initial = values.get(frames.Setting.INITIAL_WINDOW_SIZE)
        if initial is None or not self._window:
            return
        if initial > MAX_WINDOW:
            raise _Broken("an initial window is too large")
        delta = initial - self._initial_send_window
        self._initial_send_window = initial
        for stream in list(self._streams.values()):
            stream.send_window += delta
            self._flush(stream)

    def _on_ping(self, frame: Frame, events: list[Event]) -> None:
        id = frames.word(frame.payload)
        if id % 2 == self._parity:
            events.append(PingAcknowledged(id))
        else:
            self._out.append(frames.ping(id))

    def _on_goaway(self, frame: Frame, events: list[Event]) -> None:
        self.gone_away = True
        last = frames.word(frame.payload) & frames.MAX_STREAM_ID
        events.append(GoneAway(last, frames.word(frame.payload, 4)))
        for stream in list(self._streams.values()):
            if stream.id % 2 == self._parity and stream.id > last and not stream.replied:
                self._forget(stream)
                events.append(StreamReset(stream.id, Reset.REFUSED_STREAM))

    def _on_window_update(self, frame: Frame, events: list[Event]) -> None:
        id = frames.word(frame.payload) & frames.MAX_STREAM_ID
        delta = frames.word(frame.payload, 4) & MAX_WINDOW
        if not self._window:
            return
        if id == 0:
            self._send_window += delta
            if delta == 0 or self._send_window > MAX_WINDOW:
                raise _Broken("an update of the window of the connection is out of bounds")
            for each in list(self._streams.values()):
                self._flush(each)
            return
        stream = self._streams.get(id)
        if stream is None:
            return
        stream.send_window += delta
        if delta == 0 or stream.send_window > MAX_WINDOW:
            self._refuse(id, Reset.FLOW_CONTROL_ERROR, events)
        else:
            self._flush(stream)

    # -- helpers

    def _stream_id(self, frame: Frame) -> int:
        id = frames.word(frame.payload) & frames.MAX_STREAM_ID
        if id == 0:
            raise _Broken("a frame for stream 0")
        return id

    def _read_headers(self, id: int, block: bytes) -> Headers | None:
        """None when they break a rule but the compression is still in step."""
        try:
            return self._reader.read(block)
        except HeaderError as error:
            if error.fatal:
                raise _Broken(f"stream {id}: {error}") from None
            return None

    def _known(self, id: int, events: list[Event]) -> _Stream | None:
        """A stream that is open. What comes late for a closed one is ignored, what was never opened is reset."""
        stream = self._streams.get(id)
        if stream is None:
            opened = id < self._next_stream if id % 2 == self._parity else id <= self._last_received
            if not opened:
                self._refuse(id, Reset.INVALID_STREAM, events)
        return stream

    def _refuse(self, id: int, why: Reset, events: list[Event]) -> None:
        self._out.append(frames.rst_stream(id, why))
        stream = self._streams.get(id)
        if stream is not None:
            self._forget(stream)
            events.append(StreamReset(id, why))

    def _remote_fin(self, stream: _Stream, events: list[Event]) -> None:
        stream.remote_closed = True
        events.append(StreamEnded(stream.id))
        self._settle(stream)

    def _settle(self, stream: _Stream) -> None:
        """Forgets a stream that is through in both directions, and answered if the peer made it."""
        if stream.local_closed and stream.remote_closed and (stream.replied or stream.id % 2 == self._parity):
            self._forget(stream)

    def _forget(self, stream: _Stream) -> None:
        self._queued -= sum(map(len, stream.queue))
        stream.queue.clear()
        del self._streams[stream.id]

    def _writable(self, id: int) -> _Stream:
        stream = self._streams.get(id)
        if stream is None or stream.local_closed or stream.fin_queued:
            raise StreamClosedError(f"stream {id} is closed")
        return stream

    def _flush(self, stream: _Stream) -> None:
        """Moves what may be sent now from the stream's queue to the output."""
        if not stream.replied:
            return
        if stream.local_closed:
            self._settle(stream)
            return
        queue = stream.queue
        while queue:
            size = min(len(queue[0]), CHUNK)
            if self._window:
                size = min(size, stream.send_window, self._send_window)
                if size <= 0:
                    return
                stream.send_window -= size
                self._send_window -= size
            piece = bytes(queue[0][:size])
            if size == len(queue[0]):
                queue.popleft()
            else:
                queue[0] = queue[0][size:]
            self._queued -= size
            self._out.append(frames.data(stream.id, piece, stream.fin_queued and not queue))
            stream.local_closed = stream.fin_queued and not queue
        if stream.fin_queued and not stream.local_closed:
            self._out.append(frames.data(stream.id, b"", fin=True))
            stream.local_closed = True
        self._settle(stream)


# For each type of control frame: the least size of its payload, and who handles it.
_HANDLERS: dict[int, tuple[int, Callable[[Connection, Frame, list[Event]], None]]] = {
    Type.SYN_STREAM: (10, Connection._on_syn_stream),
    Type.SYN_REPLY: (4, Connection._on_syn_reply),
    Type.RST_STREAM: (8, Connection._on_rst_stream),
    Type.SETTINGS: (4, Connection._on_settings),
    Type.PING: (4, Connection._on_ping),
    Type.GOAWAY: (8, Connection._on_goaway),
    Type.HEADERS: (4, Connection._on_headers),
    Type.WINDOW_UPDATE: (8, Connection._on_window_update),
}
