"""Remote commands on every protocol, separately and relayed: the same events in all cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.kit.streaming import channels, relay, spdy, websocket
from transom.kit.streaming.channels import ERROR, RESIZE, STDERR, STDIN, STDOUT, V1, V2, V3, V4, V5
from transom.kit.streaming.remotecommand import (
    CommandClosed,
    CommandData,
    CommandFinished,
    CommandOpened,
    CommandResized,
    CommandStreamEnded,
    CommandStreams,
    Event,
    RemoteCommand,
    SpdyCommandClient,
    SpdyCommandServer,
    WebSocketCommandClient,
    WebSocketCommandServer,
)

ALL = CommandStreams(stdin=True, stdout=True, stderr=True)
TERMINAL = CommandStreams(stdin=True, stdout=True, stderr=True, tty=True)
WIRES: dict[str, Callable[[CommandStreams], tuple[RemoteCommand, RemoteCommand]]] = {
    "spdy-v4": lambda s: (SpdyCommandClient(s, V4), SpdyCommandServer(s, V4)),
    "spdy-v4-windows": lambda s: (
        SpdyCommandClient(s, V4, window=65536),
        SpdyCommandServer(s, V4, window=65536),
    ),
    "spdy-v3": lambda s: (SpdyCommandClient(s, V3), SpdyCommandServer(s, V3)),
    "spdy-v2": lambda s: (SpdyCommandClient(s, V2), SpdyCommandServer(s, V2)),
    "spdy-v1": lambda s: (SpdyCommandClient(s, V1), SpdyCommandServer(s, V1)),
    **{
        f"websocket-{p or 'none'}": lambda s, p=p: (
            WebSocketCommandClient(s, p),
            WebSocketCommandServer(s, p),
        )  # type: ignore[misc]
        for p in channels.REMOTE_COMMAND_WEBSOCKET
    },
}
CAN_END_STDIN = [
    name for name in WIRES if name.startswith("spdy") or name == "websocket-v5.channel.k8s.io"
]
HAS_STATUS = [name for name in WIRES if "v4" in name or "v5" in name]


def recorded(session: RemoteCommand, events: list[Event]) -> list[Event]:
    for event in events:
        if isinstance(event, CommandData):
            session.acknowledge(event.stream, len(event.data))
    return events


def contents(events: list[Event]) -> dict[str, bytes]:
    """Each stream's data; how streams interleave is the wire's business."""
    got: dict[str, bytes] = {}
    for event in events:
        if isinstance(event, CommandData):
            got[event.stream] = got.get(event.stream, b"") + event.data
    return got


class Pair:
    """Both ends, with all bytes exchanged after each step; neighbouring data is joined."""

    def __init__(self, wire: str, streams: CommandStreams, middle: str = "") -> None:
        self.client, self.server = WIRES[wire](streams)
        self.events: dict[str, list[Event]] = {"client": [], "server": []}
        self.links = [(self.client, self.server)]
        if middle:
            far, self.server_behind = WIRES[middle](streams)
            self.links.append((far, self.server_behind))
            self.server, self.near = self.server_behind, self.server
        self.keep("client", self.client.start())
        for client, server in self.links:
            self.deliver(server, server.start())
            if client is not self.client:
                relay.relay_command(client.start(), client, self.near)
        self.exchange()

    def keep(self, who: str, events: list[Event]) -> None:
        kept = self.events[who]
        for event in events:
            last = kept[-1] if kept else None
            if (
                isinstance(event, CommandData)
                and isinstance(last, CommandData)
                and last.stream == event.stream
            ):
                kept[-1] = CommandData(event.stream, last.data + event.data)
            else:
                kept.append(event)

    def deliver(self, session: RemoteCommand, events: list[Event]) -> None:
        if session is self.client:
            self.keep("client", recorded(session, events))
        elif session is self.server:
            self.keep("server", recorded(session, events))
        else:
            far = self.links[1][0]
            relay.relay_command(events, session, far if session is self.near else self.near)

    def exchange(self) -> None:
        moved = True
        while moved:
            moved = False
            for link in self.links:
                for source, target in (link, link[::-1]):
                    raw = source.data_to_send()
                    moved = moved or bool(raw)
                    self.deliver(target, target.receive_data(raw))
                    if source.done and not raw:
                        self.deliver(target, target.receive_eof())

    def take(self, who: str) -> list[Event]:
        self.exchange()
        events, self.events[who] = self.events[who], []
        return events


@pytest.mark.parametrize("wire", WIRES)
def test_output_and_a_failure(wire: str) -> None:
    pair = Pair(wire, ALL)
    assert pair.take("client") == pair.take("server") == [CommandOpened()]
    pair.client.write(STDIN, b"in" * 50_000)
    assert pair.take("server") == [CommandData(STDIN, b"in" * 50_000)]
    pair.server.write(STDOUT, b"out" * 50_000)
    pair.server.write(STDERR, b"err")
    pair.server.finish(channels.exit_code_status(3, "x"))
    pair.server.finish(channels.command_success_status())
    pair.server.write(STDOUT, b"late")
    *events, finished, closed = pair.take("client")
    assert contents(events) == {STDOUT: b"out" * 50_000, STDERR: b"err"}
    assert {CommandStreamEnded(STDOUT), CommandStreamEnded(STDERR)} <= {
        e for e in events if isinstance(e, CommandStreamEnded)
    } and closed == CommandClosed()
    assert isinstance(finished, CommandFinished)
    assert finished.status["message"] == "command terminated with non-zero exit code: x"
    assert channels.exit_code_of_status(finished.status) == (3 if wire in HAS_STATUS else None)
    assert pair.server.done


@pytest.mark.parametrize("wire", WIRES)
def test_success(wire: str) -> None:
    pair = Pair(wire, CommandStreams(stdout=True))
    pair.server.finish(channels.command_success_status())
    assert pair.take("client") == [
        CommandOpened(),
        CommandStreamEnded(STDOUT),
        CommandFinished(channels.command_success_status()),
        CommandClosed(),
    ]


@pytest.mark.parametrize("wire", CAN_END_STDIN)
def test_stdin_ends(wire: str) -> None:
    pair = Pair(wire, ALL)
    pair.client.write(STDIN, b"x")
    pair.client.end(STDIN)
    pair.client.end(STDIN)
    pair.client.write(STDIN, b"late")
    assert pair.take("server") == [
        CommandOpened(),
        CommandData(STDIN, b"x"),
        CommandStreamEnded(STDIN),
    ]


@pytest.mark.parametrize("wire", [name for name in WIRES if name not in ("spdy-v1", "spdy-v2")])
def test_terminal(wire: str) -> None:
    pair = Pair(wire, TERMINAL)
    pair.client.resize(80, 24)
    pair.client.resize(132, 43)
    pair.server.write(STDERR, b"nowhere to go")
    assert pair.take("server") == [CommandOpened(), CommandResized(80, 24), CommandResized(132, 43)]
    assert pair.take("client") == [CommandOpened()]


@pytest.mark.parametrize("wire", WIRES)
def test_the_client_goes_away(wire: str) -> None:
    pair = Pair(wire, ALL)
    pair.client.close()
    events = pair.take("server")
    assert events[0] == CommandOpened() and events[-1] == CommandClosed()
    pair.server.write(STDOUT, b"x")
    pair.server.finish(channels.command_success_status())
    assert pair.server.done


@pytest.mark.parametrize("wire", WIRES)
def test_a_lost_connection_is_not_a_success(wire: str) -> None:
    pair = Pair(wire, ALL)
    pair.server.write(STDOUT, b"x")
    pair.take("client")
    events = pair.client.receive_eof()
    assert not any(isinstance(event, CommandFinished) for event in events)
    assert isinstance(events[-1], CommandClosed) and "before the command ended" in events[-1].error
    assert pair.client.receive_eof() == []


@pytest.mark.parametrize("wire", HAS_STATUS)
def test_a_server_reports_why_it_closes(wire: str) -> None:
    pair = Pair(wire, ALL)
    pair.server.close("the node is gone")
    finished = pair.take("client")[-2]
    assert finished == CommandFinished(channels.internal_error_status("the node is gone"))


@pytest.mark.parametrize("middle", CAN_END_STDIN)
@pytest.mark.parametrize(
    "wire", ["spdy-v4", "websocket-v4.channel.k8s.io", "websocket-v5.channel.k8s.io"]
)
def test_joined_wires_are_one(wire: str, middle: str) -> None:
    pair = Pair(wire, ALL, middle)
    pair.client.write(STDIN, b"in" * 100_000)
    pair.client.end(STDIN)
    expected = [CommandOpened(), CommandData(STDIN, b"in" * 100_000)]
    assert pair.take("server") == expected + (
        [CommandStreamEnded(STDIN)] if wire in CAN_END_STDIN else []
    )
    pair.server.write(STDOUT, b"out" * 100_000)
    pair.server.finish(channels.exit_code_status(5, "x"))
    events = pair.take("client")
    assert contents(events) == {STDOUT: b"out" * 100_000}
    assert isinstance(events[-2], CommandFinished) and events[-1] == CommandClosed()
    if middle in HAS_STATUS:
        assert channels.exit_code_of_status(events[-2].status) == 5


@pytest.mark.parametrize("wire", ["spdy-v4", "websocket-v5.channel.k8s.io"])
def test_a_lost_node_is_an_error_for_the_client(wire: str) -> None:
    pair = Pair(wire, ALL, "spdy-v4")
    pair.take("client")
    far = pair.links[1][0]
    pair.deliver(far, far.receive_eof())
    (finished,) = [e for e in pair.take("client") if isinstance(e, CommandFinished)]
    assert "the connection was lost before the command ended" in finished.status["message"]


# -- what only one wire has


def raw_client(*types: str) -> tuple[spdy.SpdyConnection, bytes]:
    client = spdy.SpdyConnection(client=True)
    for type in types:
        client.create_stream([("streamType", type)])
    return client, client.data_to_send()


def test_the_command_waits_for_all_streams() -> None:
    server = SpdyCommandServer(TERMINAL, V4)
    client, raw = raw_client(ERROR, STDIN)
    assert server.receive_data(raw) == []
    client.receive_data(server.data_to_send())
    client.send_data(3, b"early")
    assert server.receive_data(client.data_to_send()) == [] and not server.opened
    client.create_stream([("streamType", STDOUT)])
    client.create_stream([("streamType", RESIZE)])
    assert server.receive_data(client.data_to_send()) == [
        CommandOpened(),
        CommandData(STDIN, b"early"),
    ]


def test_unrequested_streams() -> None:
    server = SpdyCommandServer(CommandStreams(stdout=True), V4)
    client, raw = raw_client("strange", STDIN, ERROR, ERROR, STDOUT)
    assert server.receive_data(raw) == [CommandOpened()]
    replies = client.receive_data(server.data_to_send())
    assert [type(reply).__name__ for reply in replies] == ["StreamAccepted"] * 3 + [
        "StreamReset",
        "StreamAccepted",
    ]
    client.send_data(3, b"x", fin=True)
    client.send_data(1, b"x")
    assert server.receive_data(client.data_to_send()) == []


def test_too_much_before_the_streams() -> None:
    server = SpdyCommandServer(ALL, V4)
    client, raw = raw_client(STDIN)
    server.receive_data(raw)
    client.receive_data(server.data_to_send())
    client.send_data(1, b"x" * 1_100_000)
    (closed,) = server.receive_data(client.data_to_send())
    assert isinstance(closed, CommandClosed) and closed.error and server.done


def test_a_refused_stream_ends_the_client() -> None:
    client, server = SpdyCommandClient(ALL, V4), spdy.SpdyConnection(client=False)
    client.start()
    server.receive_data(client.data_to_send())
    server.reset(3, 3)
    assert client.receive_data(server.data_to_send()) == [
        CommandClosed("the server refused the stdin stream")
    ]


def test_nonsense_closes() -> None:
    for server in (SpdyCommandServer(ALL, V4), WebSocketCommandServer(ALL, V5)):
        (closed,) = server.receive_data(b"\x80\x09" + b"\xff" * 100)
        assert isinstance(closed, CommandClosed) and closed.error
        assert server.data_to_send() and server.done
        assert server.receive_data(b"more") == [] == server.receive_eof()


@pytest.mark.parametrize(
    ("streams", "first"),
    [(ALL, b"\x01"), (CommandStreams(stderr=True), b"\x02"), (CommandStreams(stdin=True), b"\x03")],
)
def test_a_websocket_begins_with_an_empty_message(streams: CommandStreams, first: bytes) -> None:
    server = WebSocketCommandServer(streams, V4)
    assert server.start() == [CommandOpened()]
    assert server.data_to_send() == b"\x82\x01" + first


def test_channels_that_are_none() -> None:
    server, wire = (
        WebSocketCommandServer(CommandStreams(stdout=True), V5),
        websocket.WebSocketConnection(client=True),
    )
    for message in (b"\x00stdin", b"\x01out", b"\x07x", b"\xff\x01", b"\xff\x00"):
        wire.send(message)
    assert server.receive_data(wire.data_to_send()) == []
    wire.send(b"\xff\x07")
    (closed,) = server.receive_data(wire.data_to_send())
    assert isinstance(closed, CommandClosed) and closed.error


work = st.lists(
    st.tuples(
        st.sampled_from([STDIN, STDOUT, STDERR, "resize"]), st.binary(min_size=1, max_size=100)
    ),
    max_size=15,
)


@settings(max_examples=25, deadline=None)
@given(
    work,
    st.sampled_from(sorted(HAS_STATUS)),
    st.sampled_from(["", "spdy-v4-windows", "websocket-v5.channel.k8s.io"]),
)
def test_nothing_is_lost_or_doubled(script: list[Any], wire: str, middle: str) -> None:
    pair = Pair(wire, CommandStreams(stdin=True, stdout=True, stderr=True), middle)
    sent = {STDIN: b"", STDOUT: b"", STDERR: b""}
    for stream, data in script:
        if stream == "resize":
            pair.client.resize(len(data), 1)
            continue
        sent[stream] += data * 999
        (pair.client if stream == STDIN else pair.server).write(stream, data * 999)
    pair.exchange()
    pair.server.finish(channels.command_success_status())
    pair.exchange()
    got = contents(pair.events["client"] + pair.events["server"])
    assert got == {stream: data for stream, data in sent.items() if data}
    assert pair.events["client"][-2:] == [
        CommandFinished(channels.command_success_status()),
        CommandClosed(),
    ]
