"""A remote command (exec, attach) as a session of five streams, whatever the wire: SPDY versions 1
to 4, WebSocket to 5.

Four classes with one interface, `RemoteCommand`: each end of each wire. A session begins after the
upgrade (`start`), receives bytes (`receive_data`, `receive_eof`) and returns events and bytes
(`data_to_send`); when it is `done`, the caller closes the connection. Peer input never raises, and
writes to a stream that the peer closed are dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.streaming import channels, spdy
from transom.kit.streaming.channels import ERROR, RESIZE, STDERR, STDIN, STDOUT, ChannelSocket
from transom.kit.streaming.session import StreamingSession
from transom.kit.streaming.spdy_frames import Headers, ResetCode

_EARLY_LIMIT: Final = 1024 * 1024  # bytes a client may send before all its streams exist
_CONNECTION_LOST: Final = "the connection was lost before the command ended"
_EVENT_SIZE: Final = 128  # approximate size of an event beside its data
_STATUS_LIMIT: Final = 1024 * 1024
_SPDY_LIMITS: Final = spdy.SpdyLimits(streams=64)  # a command has at most five


@dataclass(frozen=True, slots=True)
class CommandStreams:
    """The streams that the request asks for. A terminal has no separate stderr, so it is never
    requested with one.
    """

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def names(self, protocol: str, *, spdy: bool) -> list[str]:
        """The streams of the session, in the order in which clients create them."""
        requested = (
            (ERROR, True),
            (STDIN, self.stdin),
            (STDOUT, self.stdout),
            (STDERR, self.stderr and not self.tty),
            (RESIZE, not spdy or (self.tty and channels.has_resize(protocol))),
        )
        return [name for name, wanted in requested if wanted]


@dataclass(frozen=True, slots=True)
class CommandOpened:
    """All streams exist: the command can start. Comes before any data."""


@dataclass(frozen=True, slots=True)
class CommandData:
    """Stdin for a server, stdout and stderr for a client. Call `acknowledge` when the data is
    consumed.
    """

    stream: str
    data: bytes


@dataclass(frozen=True, slots=True)
class CommandStreamEnded:
    stream: str


@dataclass(frozen=True, slots=True)
class CommandResized:
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class CommandFinished:
    """For a client: how the command ended, after all its output."""

    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CommandClosed:
    """The last event. `error` is empty after a normal close."""

    error: str = ""


Event = (
    CommandOpened
    | CommandData
    | CommandStreamEnded
    | CommandResized
    | CommandFinished
    | CommandClosed
)


class RemoteCommand(StreamingSession[Event]):
    """One end of a remote command."""

    def __init__(self, streams: CommandStreams, protocol: str) -> None:
        super().__init__()
        self.streams = streams
        self.protocol = protocol
        self.opened = False

    @abstractmethod
    def write(self, stream: str, data: bytes) -> None: ...

    @abstractmethod
    def end(self, stream: str) -> None:
        """Ends this stream. Wires that cannot signal this do nothing."""

    def resize(self, width: int, height: int) -> None:
        """For a client."""
        self.write(RESIZE, channels.encode_resize(width, height))

    @abstractmethod
    def finish(self, status: dict[str, Any]) -> None:
        """For a server: reports how the command ended, and closes. Later calls do nothing."""

    @abstractmethod
    def close(self, error: str = "") -> None:
        """Closes before the command ends; a server sends the client the error as the command's."""

    def acknowledge(self, stream: str, size: int) -> None:
        """Reports the number of received bytes that are consumed."""

    def _open(self, events: list[Event]) -> None:
        self.opened = True
        events.append(CommandOpened())

    def _last_events(self, error: str) -> list[Event]:
        return [CommandClosed(error)]


class _Outcome:
    """Collects how the command ended, until all its output is delivered."""

    def __init__(self, protocol: str, outputs: set[str]) -> None:
        self._protocol = protocol
        self._open = outputs
        self._raw = b""
        self._complete = False
        self.reported = False

    def feed(self, data: bytes) -> None:
        self._raw = (self._raw + data)[:_STATUS_LIMIT]

    def ended(self, stream: str, events: list[Event]) -> None:
        if stream == ERROR:
            self._complete = True
        self._open.discard(stream)
        if not self._open and self._complete:
            self.report(events)

    def report(self, events: list[Event]) -> None:
        if not self.reported and (self._raw or self._complete):
            self.reported = True
            nothing = channels.command_success_status() if not self._raw else None
            events.append(
                CommandFinished(nothing or channels.decode_status(self._raw, self._protocol))
            )


class _SpdySession(RemoteCommand):
    """What both ends have in common on SPDY."""

    def __init__(
        self, streams: CommandStreams, protocol: str, *, client: bool, window: int
    ) -> None:
        super().__init__(streams, protocol)
        self.connection = spdy.SpdyConnection(client=client, limits=_SPDY_LIMITS, window=window)
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._wanted = streams.names(protocol, spdy=True)

    def write(self, stream: str, data: bytes) -> None:
        id = self._ids.get(stream, 0)
        if data and self.connection.can_send(id):
            self.connection.send_data(id, data)

    def end(self, stream: str) -> None:
        id = self._ids.get(stream, 0)
        if self.connection.can_send(id):
            self.connection.end_stream(id)

    def acknowledge(self, stream: str, size: int) -> None:
        self.connection.acknowledge(self._ids.get(stream, 0), size)

    @property
    def queued(self) -> int:
        return self.connection.queued

    def data_to_send(self) -> bytes:
        return self.connection.data_to_send()

    def _receive(self, data: bytes, events: list[Event]) -> None:
        for event in self.connection.receive_data(data):
            match event:
                case spdy.StreamOpened(id, headers):
                    self._on_opened(id, headers, events)
                case spdy.StreamAccepted(id):
                    self._on_accepted(id, events)
                case spdy.DataReceived(id, piece):
                    self._on_data(self._names.get(id, ""), id, piece, events)
                case spdy.StreamEnded(id):
                    self._on_ended(self._names.get(id, ""), events)
                case spdy.StreamReset(id):
                    self._on_reset(self._names.get(id, ""), events)
                case spdy.SpdyConnectionFailed(message):
                    self._end_session(message, events)

    def _on_opened(self, id: int, headers: Headers, events: list[Event]) -> None:
        self.connection.reset(id, ResetCode.REFUSED_STREAM)

    def _on_accepted(self, id: int, events: list[Event]) -> None:
        """Only a client creates streams."""

    @abstractmethod
    def _on_data(self, name: str, id: int, data: bytes, events: list[Event]) -> None: ...

    @abstractmethod
    def _on_ended(self, name: str, events: list[Event]) -> None: ...

    def _on_reset(self, name: str, events: list[Event]) -> None:
        self._on_ended(name, events)


class SpdyCommandServer(_SpdySession):
    """The end that runs the command. Waits for the client's streams for at most
    `channels.STREAM_CREATION_TIMEOUT`.
    """

    def __init__(self, streams: CommandStreams, protocol: str, *, window: int = 0) -> None:
        super().__init__(streams, protocol, client=False, window=window)
        self._sizes = channels.ResizeDecoder()
        self._early: list[Event] = []
        self._early_resize: list[Event] = []  # the last size before all streams existed
        self._early_size = 0

    def finish(self, status: dict[str, Any]) -> None:
        if self.closed:
            return
        self.write(ERROR, channels.encode_status(status, self.protocol))
        for name in (STDOUT, STDERR, ERROR, STDIN, RESIZE):
            self.end(name)
        self.connection.close()
        self.closed = True

    def close(self, error: str = "") -> None:
        if error:
            self.finish(channels.internal_error_status(error))
        elif not self.closed:
            for id in self._names:
                self.connection.reset(id)
            self.connection.close()
            self.closed = True

    def _on_opened(self, id: int, headers: Headers, events: list[Event]) -> None:
        name = dict(headers).get(channels.STREAM_TYPE, "")
        if name in self._ids:
            self.connection.reset(id, ResetCode.REFUSED_STREAM)
            return
        # An unexpected stream is accepted too, and its data dropped.
        if not self.connection.accept(id) or name not in self._wanted:
            return
        self._ids[name] = id
        self._names[id] = name
        if len(self._ids) == len(self._wanted):
            self._open(events)
            events += self._early_resize + self._early
            self._early.clear()

    def _on_data(self, name: str, id: int, data: bytes, events: list[Event]) -> None:
        if name == STDIN:
            self._early_size += 0 if self.opened else _EVENT_SIZE + len(data)
            if self._early_size > _EARLY_LIMIT:
                self.close()
                self._end_session("too much data before all streams were there", events)
                return
            (events if self.opened else self._early).append(CommandData(STDIN, data))
            return
        self.connection.acknowledge(id, len(data))
        if name == RESIZE:
            sizes: list[Event] = [CommandResized(*size) for size in self._sizes.feed(data)]
            if self.opened:
                events += sizes
            elif sizes:
                self._early_resize = sizes[-1:]

    def _on_ended(self, name: str, events: list[Event]) -> None:
        if name == STDIN:
            (events if self.opened else self._early).append(CommandStreamEnded(STDIN))


class SpdyCommandClient(_SpdySession):
    def __init__(self, streams: CommandStreams, protocol: str, *, window: int = 0) -> None:
        super().__init__(streams, protocol, client=True, window=window)
        self._outcome = _Outcome(protocol, {STDOUT, STDERR}.intersection(self._wanted))
        self._unanswered: set[int] = set()

    def start(self) -> list[Event]:
        for name in self._wanted:
            id = self.connection.create_stream([(channels.STREAM_TYPE, name)])
            self._ids[name] = id
            self._names[id] = name
            self._unanswered.add(id)
        return []

    def finish(self, status: dict[str, Any]) -> None:
        self.close()

    def close(self, error: str = "") -> None:
        if not self.closed:
            for id in self._names:
                self.connection.reset(id)
            self.connection.close()
            self.closed = True

    def _on_accepted(self, id: int, events: list[Event]) -> None:
        self._unanswered.discard(id)
        if not self._unanswered and not self.opened:
            self._open(events)

    def _on_data(self, name: str, id: int, data: bytes, events: list[Event]) -> None:
        if name in (STDOUT, STDERR):
            events.append(CommandData(name, data))
            return
        if name == ERROR:
            self._outcome.feed(data)
        self.connection.acknowledge(id, len(data))

    def _on_ended(self, name: str, events: list[Event]) -> None:
        if name in (STDOUT, STDERR):
            events.append(CommandStreamEnded(name))
        self._outcome.ended(name, events)

    def _on_reset(self, name: str, events: list[Event]) -> None:
        if self._unanswered:
            self.close()
            self._end_session(f"the server refused the {name} stream", events)
        else:
            self._on_ended(name, events)

    def _end_session(self, error: str, events: list[Event]) -> None:
        if not self._over:
            self._outcome.report(events)
        super()._end_session(error, events)

    def _eof_error(self) -> str:
        return "" if self._outcome.reported or self.closed else _CONNECTION_LOST


class _WebSocketSession(RemoteCommand):
    """What both ends have in common on WebSocket."""

    def __init__(self, streams: CommandStreams, protocol: str, *, client: bool) -> None:
        super().__init__(streams, protocol)
        self.socket = ChannelSocket(protocol, client=client)
        names = streams.names(protocol, spdy=False)
        self._numbers = {
            name: number for number, name in enumerate(channels.CHANNELS) if name in names
        }
        self._closed_streams: set[str] = set()

    def write(self, stream: str, data: bytes) -> None:
        number = self._numbers.get(stream)
        if number is not None and data and stream not in self._closed_streams and not self.closed:
            self.socket.send(number, data)

    def end(self, stream: str) -> None:
        if stream not in self._closed_streams and stream in self._numbers:
            self._closed_streams.add(stream)
            if not self.closed:
                self._send_end(self._numbers[stream])

    def _send_end(self, number: int) -> None:
        """Only clients signal the end of a channel."""

    def data_to_send(self) -> bytes:
        return self.socket.data_to_send()

    def _receive(self, data: bytes, events: list[Event]) -> None:
        for event in self.socket.receive_data(data):
            match event:
                case channels.ChannelData(number, piece):
                    name = channels.CHANNELS[number] if 0 <= number < len(channels.CHANNELS) else ""
                    if name in self._numbers:
                        self._on_data(name, piece, events)
                case channels.ChannelClosed(number):
                    self._on_channel_closed(number, events)
                case channels.SocketClosed(error):
                    self._end_session(error, events)

    @abstractmethod
    def _on_data(self, name: str, data: bytes, events: list[Event]) -> None: ...

    @abstractmethod
    def _on_channel_closed(self, number: int, events: list[Event]) -> None: ...


class WebSocketCommandServer(_WebSocketSession):
    def __init__(self, streams: CommandStreams, protocol: str) -> None:
        super().__init__(streams, protocol, client=False)
        self._sizes = channels.ResizeDecoder()
        self._stdin_ended = False

    def start(self) -> list[Event]:
        first = next(name for name in (STDOUT, STDERR, ERROR) if name in self._numbers)
        self.socket.send(self._numbers[first], b"")  # shows the client that the connection works
        events: list[Event] = []
        self._open(events)
        return events

    def finish(self, status: dict[str, Any]) -> None:
        if not self.closed:
            self.write(ERROR, channels.encode_status(status, self.protocol))
            self.socket.close()
            self.closed = True

    def close(self, error: str = "") -> None:
        if error:
            self.finish(channels.internal_error_status(error))
        elif not self.closed:
            self.socket.close()
            self.closed = True

    def _on_data(self, name: str, data: bytes, events: list[Event]) -> None:
        if name == STDIN and data and not self._stdin_ended:
            events.append(CommandData(STDIN, data))
        elif name == RESIZE:
            events += [CommandResized(*size) for size in self._sizes.feed(data)]

    def _on_channel_closed(self, number: int, events: list[Event]) -> None:
        if number >= len(channels.CHANNELS):
            self.close()
            self._end_session(f"there is no channel {number} to close", events)
        elif channels.CHANNELS[number] == STDIN and self.streams.stdin and not self._stdin_ended:
            self._stdin_ended = True
            events.append(CommandStreamEnded(STDIN))


class WebSocketCommandClient(_WebSocketSession):
    def __init__(self, streams: CommandStreams, protocol: str) -> None:
        super().__init__(streams, protocol, client=True)
        self._outputs = {STDOUT, STDERR}.intersection(self._numbers)
        self._outcome = _Outcome(protocol, set(self._outputs))

    def start(self) -> list[Event]:
        events: list[Event] = []
        self._open(events)
        return events

    def finish(self, status: dict[str, Any]) -> None:
        self.close()

    def close(self, error: str = "") -> None:
        if not self.closed:
            self.socket.close()
            self.closed = True

    def _send_end(self, number: int) -> None:
        self.socket.send_close(number)

    def _on_data(self, name: str, data: bytes, events: list[Event]) -> None:
        if name == ERROR:
            self._outcome.feed(data)
        elif name in self._outputs and data:
            events.append(CommandData(name, data))

    def _on_channel_closed(self, number: int, events: list[Event]) -> None:
        """Servers do not signal the end of a channel."""

    def _end_session(self, error: str, events: list[Event]) -> None:
        if not self._over:
            if not error and not channels.has_json_status(self.protocol):
                self._outcome.ended(ERROR, [])  # before version 4 an empty stream means success
            events += [CommandStreamEnded(name) for name in sorted(self._outputs, reverse=True)]
            self._outcome.report(events)
        super()._end_session(error, events)

    def _eof_error(self) -> str:
        return "" if self._outcome.reported or self.closed else _CONNECTION_LOST
