"""A SPDY/3.1 connection as a state machine, for either end: bytes in, events out, bytes to send.

Compatible with spdystream, the library of kubectl and client-go, which differs from the
specification in two ways: it drops data that arrives before the stream's reply, so data is held
back here, and it never updates windows, so flow control is off unless both ends are known to
support it.

Peer input never raises. An error in one stream resets that stream; an error that makes the byte
stream unreadable ends in GOAWAY and `SpdyConnectionFailed`. Only invalid calls raise, with
`StreamClosedError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.streaming import spdy_frames as frames
from transom.kit.streaming.spdy_frames import (
    FrameType,
    GoAwayCode,
    HeaderError,
    HeaderReader,
    Headers,
    HeaderWriter,
    ResetCode,
    SpdyFrame,
)

DEFAULT_WINDOW: Final = 65536
MAX_WINDOW: Final = 0x7FFFFFFF
CHUNK: Final = 32 * 1024  # of data in one frame, so that streams take turns
_PIECE: Final = 16 * 1024  # larger data frames are delivered in parts


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The peer opened a stream. Answer with `accept` or `reset`."""

    stream: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class StreamAccepted:
    """The peer's reply to one of our streams."""

    stream: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class HeadersReceived:
    stream: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class DataReceived:
    """With flow control on, call `acknowledge` when the data is consumed."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The peer ended its side of this stream; it can still be written to."""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The stream is closed in both directions; unsent data is dropped."""

    stream: int
    why: int


@dataclass(frozen=True, slots=True)
class PingAcknowledged:
    id: int


@dataclass(frozen=True, slots=True)
class GoneAway:
    """The peer accepts no more streams; those up to `last_stream` continue."""

    last_stream: int
    why: int


@dataclass(frozen=True, slots=True)
class SpdyConnectionFailed:
    """The peer violated the protocol. Send the pending data, then close."""

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
    | SpdyConnectionFailed
)


class StreamClosedError(Exception):
    """A call for a stream that does not exist, or whose sending side is closed."""


@dataclass(frozen=True, slots=True)
class SpdyLimits:
    """Sizes in bytes. A data frame may be of any size: its data is delivered as it arrives."""

    control_frame: int = 64 * 1024
    header_block: int = 16 * 1024
    headers: int = 100  # names in one block
    streams: int = 4096  # open at one time


class Direction(Enum):
    """One direction of a stream."""

    OPEN = "open"
    ENDING = "ending"  # the end follows what is still queued
    CLOSED = "closed"


class _Stream:
    __slots__ = (
        "id",
        "queue",
        "receive_window",
        "receiving",
        "replied",
        "send_window",
        "sending",
        "used",
    )

    def __init__(self, id: int, send_window: int, receive_window: int) -> None:
        self.id = id
        self.replied = False
        self.sending = Direction.OPEN
        self.receiving = Direction.OPEN
        self.queue: deque[memoryview] = deque()
        self.send_window = send_window
        self.receive_window = receive_window
        self.used = 0  # acknowledged, not yet given back to the peer as window


class _PartialData:
    """An incompletely received data frame."""

    __slots__ = ("flags", "ignored", "left", "stream")

    def __init__(self, stream: int, flags: int, left: int) -> None:
        self.stream = stream
        self.flags = flags
        self.left = left
        self.ignored = False  # its stream was refused


class _Broken(Exception):
    """The connection cannot go on."""


class SpdyConnection:
    """`window` turns flow control on, with that many bytes for each stream and for all together; at
    least 65536.
    """

    def __init__(self, *, client: bool, limits: SpdyLimits | None = None, window: int = 0) -> None:
        if window and not DEFAULT_WINDOW <= window <= MAX_WINDOW:
            raise ValueError(f"a window has {DEFAULT_WINDOW} to {MAX_WINDOW} bytes")
        self.limits = limits or SpdyLimits()
        self.failed = ""
        self.closed = False  # GOAWAY is sent
        self.gone_away = False  # GOAWAY has come
        self._parity = 1 if client else 0
        self._next_stream = 1 if client else 2
        self._next_ping = 1 if client else 2
        self._last_received = 0
        self._streams: dict[int, _Stream] = {}
        self._buffer = bytearray()
        self._partial: _PartialData | None = None
        self._out: list[bytes] = []
        self._queued = 0
        self._reader = HeaderReader(self.limits.header_block, self.limits.headers)
        self._writer = HeaderWriter()
        self._window = window
        self._initial_send_window = DEFAULT_WINDOW
        self._send_window = DEFAULT_WINDOW
        self._receive_window = window
        self._used = 0
        if window:
            self._out.append(frames.settings_frame({frames.SettingId.INITIAL_WINDOW_SIZE: window}))
            if window > DEFAULT_WINDOW:
                self._out.append(frames.window_update_frame(0, window - DEFAULT_WINDOW))

    # -- what the user calls

    def create_stream(self, headers: Iterable[tuple[str, str]], fin: bool = False) -> int:
        if self.failed or self.closed or self.gone_away or self._next_stream > frames.MAX_STREAM_ID:
            raise StreamClosedError("the connection takes no more streams")
        id = self._next_stream
        self._next_stream += 2
        stream = _Stream(id, self._initial_send_window, self._window)
        if fin:
            stream.sending = Direction.CLOSED
        self._streams[id] = stream
        self._out.append(frames.syn_stream_frame(id, self._writer.write(headers), fin))
        return id

    def accept(self, id: int, headers: Iterable[tuple[str, str]] = ()) -> bool:
        """Replies to a stream of the peer. Returns False if the peer has already reset it."""
        stream = self._streams.get(id)
        if stream is None:
            return False
        if id % 2 == self._parity or stream.replied:
            raise StreamClosedError(f"stream {id} awaits no reply")
        stream.replied = True
        self._out.append(frames.syn_reply_frame(id, self._writer.write(headers)))
        self._flush(stream)
        return True

    def send_data(self, id: int, data: bytes, fin: bool = False) -> None:
        """Sends, or queues until the stream has a reply and a window."""
        stream = self._writable(id)
        if data:
            stream.queue.append(memoryview(bytes(data)))
            self._queued += len(data)
        if fin:
            stream.sending = Direction.ENDING
        self._flush(stream)

    def send_headers(self, id: int, headers: Iterable[tuple[str, str]]) -> None:
        self._writable(id)
        self._out.append(frames.headers_frame(id, self._writer.write(headers)))

    def end_stream(self, id: int) -> None:
        """Ends this side of the stream."""
        self.send_data(id, b"", fin=True)

    def reset(self, id: int, why: int = ResetCode.CANCEL) -> None:
        """Closes the stream in both directions; does nothing if it is already closed."""
        if id in self._streams:
            self._forget(self._streams[id])
            self._out.append(frames.rst_stream_frame(id, why))

    def acknowledge(self, id: int, size: int) -> None:
        """Reports the number of consumed bytes; with flow control this lets the peer send more."""
        if not self._window:
            return
        self._used += size
        if self._used * 2 >= self._window:
            self._receive_window += self._used
            self._out.append(frames.window_update_frame(0, self._used))
            self._used = 0
        stream = self._streams.get(id)
        if stream is not None and stream.receiving is Direction.OPEN:
            stream.used += size
            if stream.used * 2 >= self._window:
                stream.receive_window += stream.used
                self._out.append(frames.window_update_frame(id, stream.used))
                stream.used = 0

    def ping(self) -> int:
        id = self._next_ping
        self._next_ping = id + 2 if id < 0xFFFFFFFE else 2 - self._parity
        self._out.append(frames.ping_frame(id))
        return id

    def close(self, why: int = GoAwayCode.OK) -> None:
        """Sends GOAWAY; ignores streams that the peer opens afterwards."""
        if not self.closed:
            self.closed = True
            self._out.append(frames.goaway_frame(self._last_received, why))

    def data_to_send(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)

    def can_send(self, id: int) -> bool:
        stream = self._streams.get(id)
        return stream is not None and stream.sending is Direction.OPEN

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
            if self._partial is not None:
                at = self._continue_data(self._partial, at, events)
            while self._partial is None and (length := frames.peek_frame(buffer, at)) is not None:
                control = frames.is_control(buffer, at)
                if control and length > self.limits.control_frame:
                    raise _Broken(
                        f"a frame of {length} bytes is larger than {self.limits.control_frame}"
                    )
                if len(buffer) >= at + 8 + length:
                    self._handle(frames.cut_frame(buffer, at, length), events)
                    at += 8 + length
                elif control or length <= _PIECE:
                    break
                else:
                    head = frames.cut_frame(buffer, at, 0)
                    self._partial = _PartialData(head.stream, head.flags, length)
                    at = self._continue_data(self._partial, at + 8, events)
        except _Broken as error:
            self._fail(str(error), events)
            return events
        del buffer[:at]
        return events

    def _continue_data(self, partial: _PartialData, at: int, events: list[Event]) -> int:
        """Delivers the received part of a data frame, so that a large one needs no memory. Returns
        where it ends in the buffer.
        """
        end = min(len(self._buffer), at + partial.left)
        if end - at < min(_PIECE, partial.left):
            return at
        partial.left -= end - at
        flags = 0 if partial.left else partial.flags
        if not partial.left:
            self._partial = None
        piece = bytes(self._buffer[at:end])
        if partial.ignored:
            self._account(len(piece))
            self.acknowledge(partial.stream, len(piece))
        else:
            partial.ignored = not self._on_data(
                SpdyFrame(None, flags, partial.stream, piece), events
            )
        return end

    def _fail(self, message: str, events: list[Event]) -> None:
        self.failed = message
        self.close(GoAwayCode.PROTOCOL_ERROR)
        for stream in list(self._streams.values()):
            self._forget(stream)
        self._buffer.clear()
        events.append(SpdyConnectionFailed(message))

    def _handle(self, frame: SpdyFrame, events: list[Event]) -> None:
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
            raise _Broken(
                f"a {FrameType(frame.type).name} frame of {len(frame.payload)} bytes is too short"
            )
        method(self, frame, events)

    def _on_syn_stream(self, frame: SpdyFrame, events: list[Event]) -> None:
        id = self._stream_id(frame)
        headers = self._read_headers(id, frame.payload[10:])
        if id % 2 == self._parity or id <= self._last_received:
            self._refuse(id, ResetCode.PROTOCOL_ERROR, events)
            return
        self._last_received = id
        if self.closed:
            return
        if headers is None:
            self._refuse(id, ResetCode.PROTOCOL_ERROR, events)
            return
        if len(self._streams) >= self.limits.streams:
            self._refuse(id, ResetCode.REFUSED_STREAM, events)
            return
        stream = self._streams[id] = _Stream(id, self._initial_send_window, self._window)
        if frame.flags & frames.FLAG_UNIDIRECTIONAL:
            stream.sending = Direction.CLOSED
        events.append(StreamOpened(id, headers))
        if frame.flags & frames.FLAG_FIN:
            self._remote_fin(stream, events)

    def _on_syn_reply(self, frame: SpdyFrame, events: list[Event]) -> None:
        id = self._stream_id(frame)
        headers = self._read_headers(id, frame.payload[4:])
        stream = self._known(id, events)
        if stream is None:
            return
        if headers is None or id % 2 != self._parity:
            self._refuse(id, ResetCode.PROTOCOL_ERROR, events)
            return
        if stream.replied:
            self._refuse(id, ResetCode.STREAM_IN_USE, events)
            return
        stream.replied = True
        events.append(StreamAccepted(id, headers))
        self._flush(stream)
        if frame.flags & frames.FLAG_FIN:
            self._remote_fin(stream, events)

    def _on_headers(self, frame: SpdyFrame, events: list[Event]) -> None:
        id = self._stream_id(frame)
        headers = self._read_headers(id, frame.payload[4:])
        stream = self._known(id, events)
        if stream is None:
            return
        if headers is None:
            self._refuse(id, ResetCode.PROTOCOL_ERROR, events)
        elif stream.receiving is Direction.CLOSED:
            self._refuse(id, ResetCode.STREAM_ALREADY_CLOSED, events)
        else:
            events.append(HeadersReceived(id, headers))
            if frame.flags & frames.FLAG_FIN:
                self._remote_fin(stream, events)

    def _on_data(self, frame: SpdyFrame, events: list[Event]) -> bool:
        """Returns False if the stream accepts no data: the rest of the frame is skipped."""
        id, size = frame.stream, len(frame.payload)
        if id == 0:
            raise _Broken("data for stream 0")
        self._account(size)
        stream = self._known(id, events)
        if stream is None:
            self.acknowledge(id, size)
            return False
        if stream.receiving is Direction.CLOSED:
            self._refuse(id, ResetCode.STREAM_ALREADY_CLOSED, events)
            self.acknowledge(id, size)
            return False
        if self._window:
            stream.receive_window -= size
            if stream.receive_window < 0:
                self._refuse(id, ResetCode.FLOW_CONTROL_ERROR, events)
                self.acknowledge(id, size)
                return False
        if size:
            events.append(DataReceived(id, frame.payload))
        if frame.flags & frames.FLAG_FIN:
            self._remote_fin(stream, events)
        return True

    def _account(self, size: int) -> None:
        if self._window:
            self._receive_window -= size
            if self._receive_window < 0:
                raise _Broken("more data than the window of the connection allows")

    def _on_rst_stream(self, frame: SpdyFrame, events: list[Event]) -> None:
        stream = self._streams.get(self._stream_id(frame))
        if stream is not None:
            self._forget(stream)
            events.append(StreamReset(stream.id, frames.read_word(frame.payload, 4)))

    def _on_settings(self, frame: SpdyFrame, events: list[Event]) -> None:
        values = frames.parse_settings(frame.payload)
        if values is None:
            raise _Broken("a SETTINGS frame has the wrong length")
        initial = values.get(frames.SettingId.INITIAL_WINDOW_SIZE)
        if initial is None or not self._window:
            return
        if initial > MAX_WINDOW:
            raise _Broken("an initial window is too large")
        delta = initial - self._initial_send_window
        self._initial_send_window = initial
        for stream in list(self._streams.values()):
            stream.send_window += delta
            self._flush(stream)

    def _on_ping(self, frame: SpdyFrame, events: list[Event]) -> None:
        id = frames.read_word(frame.payload)
        if id % 2 == self._parity:
            events.append(PingAcknowledged(id))
        else:
            self._out.append(frames.ping_frame(id))

    def _on_goaway(self, frame: SpdyFrame, events: list[Event]) -> None:
        self.gone_away = True
        last = frames.read_word(frame.payload) & frames.MAX_STREAM_ID
        events.append(GoneAway(last, frames.read_word(frame.payload, 4)))
        for stream in list(self._streams.values()):
            if stream.id % 2 == self._parity and stream.id > last and not stream.replied:
                self._forget(stream)
                events.append(StreamReset(stream.id, ResetCode.REFUSED_STREAM))

    def _on_window_update(self, frame: SpdyFrame, events: list[Event]) -> None:
        id = frames.read_word(frame.payload) & frames.MAX_STREAM_ID
        delta = frames.read_word(frame.payload, 4) & MAX_WINDOW
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
            self._refuse(id, ResetCode.FLOW_CONTROL_ERROR, events)
        else:
            self._flush(stream)

    # -- helpers

    def _stream_id(self, frame: SpdyFrame) -> int:
        id = frames.read_word(frame.payload) & frames.MAX_STREAM_ID
        if id == 0:
            raise _Broken("a frame for stream 0")
        return id

    def _read_headers(self, id: int, block: bytes) -> Headers | None:
        """Returns None if the headers are invalid but the compression state is still in sync."""
        try:
            return self._reader.read(block)
        except HeaderError as error:
            if error.fatal:
                raise _Broken(f"stream {id}: {error}") from None
            return None

    def _known(self, id: int, events: list[Event]) -> _Stream | None:
        """An open stream. Late frames for a closed stream are ignored, frames for one that was
        never opened cause a reset.
        """
        stream = self._streams.get(id)
        if stream is None:
            opened = id < self._next_stream if id % 2 == self._parity else id <= self._last_received
            if not opened:
                self._refuse(id, ResetCode.INVALID_STREAM, events)
        return stream

    def _refuse(self, id: int, why: ResetCode, events: list[Event]) -> None:
        self._out.append(frames.rst_stream_frame(id, why))
        stream = self._streams.get(id)
        if stream is not None:
            self._forget(stream)
            events.append(StreamReset(id, why))

    def _remote_fin(self, stream: _Stream, events: list[Event]) -> None:
        stream.receiving = Direction.CLOSED
        events.append(StreamEnded(stream.id))
        self._settle(stream)

    def _settle(self, stream: _Stream) -> None:
        """Removes a stream that is closed in both directions, and answered if the peer opened
        it.
        """
        if (
            stream.sending is Direction.CLOSED
            and stream.receiving is Direction.CLOSED
            and (stream.replied or stream.id % 2 == self._parity)
        ):
            self._forget(stream)

    def _forget(self, stream: _Stream) -> None:
        self._queued -= sum(map(len, stream.queue))
        stream.queue.clear()
        del self._streams[stream.id]

    def _writable(self, id: int) -> _Stream:
        stream = self._streams.get(id)
        if stream is None or stream.sending is not Direction.OPEN:
            raise StreamClosedError(f"stream {id} is closed")
        return stream

    def _flush(self, stream: _Stream) -> None:
        """Moves data that may be sent now from the stream's queue to the output."""
        if not stream.replied:
            return
        if stream.sending is Direction.CLOSED:
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
            last = stream.sending is Direction.ENDING and not queue
            self._out.append(frames.data_frame(stream.id, piece, last))
            if last:
                stream.sending = Direction.CLOSED
        if stream.sending is Direction.ENDING:
            self._out.append(frames.data_frame(stream.id, b"", fin=True))
            stream.sending = Direction.CLOSED
        self._settle(stream)


# For each type of control frame: the minimum payload size and the handler.
_HANDLERS: dict[int, tuple[int, Callable[[SpdyConnection, SpdyFrame, list[Event]], None]]] = {
    FrameType.SYN_STREAM: (10, SpdyConnection._on_syn_stream),
    FrameType.SYN_REPLY: (4, SpdyConnection._on_syn_reply),
    FrameType.RST_STREAM: (8, SpdyConnection._on_rst_stream),
    FrameType.SETTINGS: (4, SpdyConnection._on_settings),
    FrameType.PING: (4, SpdyConnection._on_ping),
    FrameType.GOAWAY: (8, SpdyConnection._on_goaway),
    FrameType.HEADERS: (4, SpdyConnection._on_headers),
    FrameType.WINDOW_UPDATE: (8, SpdyConnection._on_window_update),
}
