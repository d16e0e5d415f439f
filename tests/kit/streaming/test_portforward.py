"""Port forwarding on every protocol, separately and relayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.streaming.forward_relay import PortForwardRelay

from transom.kit.streaming import channels, spdy, websocket
from transom.kit.streaming.portforward import (
    Event,
    ForwardClosed,
    ForwardConnected,
    ForwardData,
    ForwardDisconnected,
    ForwardEnded,
    ForwardFailed,
    PortForward,
    SpdyForwardClient,
    SpdyForwardServer,
    Tunnel,
    WebSocketForwardClient,
    WebSocketForwardServer,
    parse_port,
    parse_ports,
)
from transom.kit.streaming.spdy_frames import ResetCode

SPDY_WIRES: dict[str, Callable[[], tuple[SpdyForwardClient, SpdyForwardServer]]] = {
    "spdy": lambda: (SpdyForwardClient(), SpdyForwardServer()),
    "spdy-windows": lambda: (SpdyForwardClient(window=65536), SpdyForwardServer(window=65536)),
    "tunnel": lambda: (SpdyForwardClient(tunnel=True), SpdyForwardServer(tunnel=True)),
}
CHANNEL_PROTOCOLS = channels.PORT_FORWARD_WEBSOCKET


def exchange(client: PortForward, server: PortForward) -> tuple[list[Event], list[Event]]:
    """All bytes both ways until there are none. What the client and the server received, all of it
    acknowledged.
    """
    recorded: tuple[list[Event], list[Event]] = ([], [])
    moved = True
    while moved:
        moved = False
        for source, target, events in (
            (client, server, recorded[1]),
            (server, client, recorded[0]),
        ):
            raw = source.data_to_send()
            moved = moved or bool(raw)
            for event in target.receive_data(raw):
                events.append(event)
                if isinstance(event, ForwardData):
                    target.acknowledge(event.connection, len(event.data))
    return recorded


@pytest.fixture(params=SPDY_WIRES)
def ends(request: pytest.FixtureRequest) -> tuple[SpdyForwardClient, SpdyForwardServer]:
    return SPDY_WIRES[request.param]()


def test_a_connection_from_beginning_to_end(
    ends: tuple[SpdyForwardClient, SpdyForwardServer],
) -> None:
    client, server = ends
    first, second = client.open(80), client.open(443)
    assert first is not None and second is not None
    _, recorded = exchange(client, server)
    assert recorded == [ForwardConnected(first, 80), ForwardConnected(second, 443)]
    client.write(second, b"ping")
    client.end(second)
    client.write(second, b"late")
    server.write(first, b"hello")
    got, recorded = exchange(client, server)
    assert recorded == [ForwardData(second, b"ping"), ForwardEnded(second)] and got == [
        ForwardData(first, b"hello")
    ]
    server.write(second, b"pong")
    server.disconnect(second)
    server.write(second, b"late")
    got, _ = exchange(client, server)
    assert got[0] == ForwardData(second, b"pong") and got[1:] == [
        ForwardEnded(second),
        ForwardDisconnected(second),
    ]
    assert server.spdy.open_streams == client.spdy.open_streams == 2  # those of the first


def test_a_failure_is_reported(ends: tuple[SpdyForwardClient, SpdyForwardServer]) -> None:
    client, server = ends
    id = client.open(81)
    assert id is not None
    exchange(client, server)
    server.fail(id, "no listener")
    server.disconnect(id)
    got, _ = exchange(client, server)
    assert sorted(map(repr, got)) == sorted(
        map(repr, [ForwardFailed(id, "no listener"), ForwardEnded(id), ForwardDisconnected(id)])
    )
    assert got[-1] == ForwardDisconnected(id)


def test_a_client_that_breaks_off(ends: tuple[SpdyForwardClient, SpdyForwardServer]) -> None:
    client, server = ends
    one, two = client.open(80), client.open(80)
    assert one is not None and two is not None
    exchange(client, server)
    client.disconnect(one)
    _, recorded = exchange(client, server)
    assert recorded[-1] == ForwardDisconnected(one) and server.spdy.open_streams == 2
    client.close()
    _, recorded = exchange(client, server)
    assert ForwardDisconnected(two) in recorded and client.done
    server.close()
    assert client.open(80) is None


def test_the_end_of_the_connection_below(ends: tuple[SpdyForwardClient, SpdyForwardServer]) -> None:
    client, server = ends
    id = client.open(80)
    assert id is not None
    exchange(client, server)
    assert (
        server.receive_eof() == client.receive_eof() == [ForwardDisconnected(id), ForwardClosed()]
    )
    assert server.receive_eof() == [] == server.receive_data(b"x") and server.done


def test_a_tunnel_is_closed_as_a_websocket() -> None:
    client, server = SPDY_WIRES["tunnel"]()
    exchange(client, server)
    server.close()
    got, _ = exchange(client, server)
    assert got == [ForwardClosed()] and client.done
    text = websocket.WebSocketConnection(client=True)
    text.send(b"x", text=True)
    tunnel = Tunnel(client=False)
    assert tunnel.receive_data(text.data_to_send()) == b"" and tunnel.closed and tunnel.error
    (recorded,) = text.receive_data(tunnel.data_to_send())
    assert (
        isinstance(recorded, websocket.CloseReceived)
        and recorded.code == websocket.CloseCode.UNSUPPORTED_DATA
    )


def raw(client: spdy.SpdyConnection, kind: str, port: str = "80", request: str | None = "0") -> int:
    headers = [("streamType", kind), ("port", port)] + (
        [("requestID", request)] if request is not None else []
    )
    return client.create_stream([pair for pair in headers if pair[1]])


@pytest.mark.parametrize(
    ("kind", "port"),
    [("data", ""), ("data", "0"), ("data", "65536"), ("data", "-1"), ("x", "1"), ("", "1")],
)
def test_streams_without_sense_are_refused(kind: str, port: str) -> None:
    client, server = spdy.SpdyConnection(client=True), SpdyForwardServer()
    id = raw(client, kind, port)
    assert server.receive_data(client.data_to_send()) == []
    assert client.receive_data(server.data_to_send()) == [spdy.StreamReset(id, ResetCode.CANCEL)]


def test_old_clients_give_no_request() -> None:
    client, server = spdy.SpdyConnection(client=True), SpdyForwardServer()
    raw(client, "error", request=None)
    raw(client, "data", request=None)
    raw(client, "error", request=None)
    raw(client, "data", request=None)
    assert server.receive_data(client.data_to_send()) == [
        ForwardConnected(1, 80),
        ForwardConnected(5, 80),
    ]


def test_streams_in_any_order_with_early_data() -> None:
    client, server = spdy.SpdyConnection(client=True), SpdyForwardServer()
    data = raw(client, "data", request="b")
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    client.send_data(data, b"early", fin=True)
    raw(client, "error", request="a")
    assert server.receive_data(client.data_to_send()) == [] and [
        request for request, _ in server.waiting
    ] == ["b", "a"]
    raw(client, "error", request="b")
    assert server.receive_data(client.data_to_send()) == [
        ForwardConnected(data, 80),
        ForwardData(data, b"early"),
        ForwardEnded(data),
    ]
    half = server.waiting[0]
    server.expire(*half)
    server.expire(*half)
    assert server.waiting == []
    events = client.receive_data(server.data_to_send())
    assert spdy.DataReceived(3, b"(request=a) timed out waiting for streams") in events


def test_a_stream_given_twice() -> None:
    client, server = spdy.SpdyConnection(client=True), SpdyForwardServer()
    error, again = raw(client, "error"), raw(client, "error")
    assert server.receive_data(client.data_to_send()) == []
    events = client.receive_data(server.data_to_send())
    message = b"error processing stream for request 0: error stream already assigned"
    assert (
        spdy.DataReceived(error, message) in events
        and spdy.StreamReset(again, ResetCode.CANCEL) in events
    )


def test_a_half_made_pair_that_is_reset_is_forgotten() -> None:
    client, server = spdy.SpdyConnection(client=True), SpdyForwardServer()
    id = raw(client, "error")
    server.receive_data(client.data_to_send())
    client.reset(id)
    assert server.receive_data(client.data_to_send()) == [] and server.waiting == []


@pytest.mark.parametrize(
    ("size", "how"), [(40_000, "reset"), (40_000, "expire"), (65_537, "too much")]
)
def test_data_of_a_pair_that_is_never_made_gives_its_window_back(size: int, how: str) -> None:
    client, server = (
        spdy.SpdyConnection(client=True, window=200_000),
        SpdyForwardServer(window=200_000),
    )
    id = raw(client, "data")
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    client.send_data(id, b"x" * size)
    if how == "reset":
        client.reset(id)
    assert server.receive_data(client.data_to_send()) == []
    if how == "expire":
        server.expire(*server.waiting[0])
    assert server.waiting == [] and server.spdy.open_streams == 0
    assert server.spdy._receive_window + server.spdy._used == 200_000


# -- channels on WebSocket


@pytest.mark.parametrize("protocol", CHANNEL_PROTOCOLS)
def test_channels(protocol: str) -> None:
    client, server = (
        WebSocketForwardClient([80, 443], protocol),
        WebSocketForwardServer([80, 443], protocol),
    )
    assert client.start() == []
    assert server.start() == [ForwardConnected(0, 80), ForwardConnected(1, 443)]
    client.write(1, b"ping")
    server.write(0, b"hello")
    server.fail(1, "oh")
    assert exchange(client, server) == (
        [ForwardData(0, b"hello"), ForwardFailed(1, "oh")],
        [ForwardData(1, b"ping")],
    )
    server.disconnect(0)
    server.write(0, b"late")
    assert exchange(client, server) == ([], [])
    server.disconnect(1)
    got, _ = exchange(client, server)
    assert got == [ForwardDisconnected(0), ForwardDisconnected(1), ForwardClosed()] and server.done


def test_channels_begin_with_their_port() -> None:
    server, wire = (
        WebSocketForwardServer([0x1234], channels.V4),
        websocket.WebSocketConnection(client=True),
    )
    server.start()
    expected = [
        websocket.WebSocketMessage(b"\x00\x34\x12"),
        websocket.WebSocketMessage(b"\x01\x34\x12"),
    ]
    assert wire.receive_data(server.data_to_send()) == expected
    for message in (b"\x01x", b"\x02x", b"\x00x"):
        wire.send(message)
    assert server.receive_data(wire.data_to_send()) == [ForwardData(0, b"x")]
    other = WebSocketForwardClient([80], channels.V4)
    (*_, closed) = other.receive_data(b"\x82\x03\x00\x51\x00")
    assert isinstance(closed, ForwardClosed) and closed.error and other.done


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["80"], [80]),
        (["80,81", "82"], [80, 81, 82]),
        ([], 'query parameter "port" is required'),
        ([""], 'query parameter "port" cannot be empty'),
        (
            ["80,x"],
            'unable to parse "80,x" as a port: strconv.ParseUint: parsing "x": invalid syntax',
        ),
        (
            ["65536"],
            (
                'unable to parse "65536" as a port: strconv.ParseUint: parsing "65536": value '
                "out of range"
            ),
        ),
        (["0"], 'port "0" must be > 0'),
        (["1"] * 101, "at most 100 ports can be forwarded over one WebSocket"),
    ],
)
def test_ports_of_a_query(values: list[str], expected: Any) -> None:
    assert parse_ports(values) == expected


@pytest.mark.parametrize(
    ("text", "port"), [("1", 1), ("65535", 65535), ("65536", None), ("٣", None), ("9" * 5000, None)]
)
def test_ports_of_a_header(text: str, port: int | None) -> None:
    assert parse_port(text) == port


# -- joined

script = st.lists(
    st.tuples(
        st.sampled_from(["open", "up", "down", "end", "fail", "disconnect"]),
        st.integers(0, 4),
        st.binary(min_size=1, max_size=99),
    ),
    max_size=20,
)


@settings(max_examples=30, deadline=None)
@given(script, st.sampled_from(sorted(SPDY_WIRES)), st.sampled_from(sorted(SPDY_WIRES)))
def test_joined_wires_lose_nothing(steps: list[Any], first: str, second: str) -> None:
    client, near = SPDY_WIRES[first]()
    far, server = SPDY_WIRES[second]()
    joined = PortForwardRelay(near, far, far.open)
    wanted: dict[tuple[str, int], bytes] = {}
    got: dict[tuple[str, int], bytes] = {}
    mine: list[int] = []
    theirs: list[int] = []
    ended: set[int] = set()
    seen_ended: list[int] = []
    gone: set[int] = set()

    def settle() -> None:
        moved = True
        while moved:
            moved = False
            for source, target in ((client, near), (near, client), (far, server), (server, far)):
                raw = source.data_to_send()
                moved = moved or bool(raw)
                events = target.receive_data(raw)
                if target is near:
                    joined.from_near(events)
                elif target is far:
                    joined.from_far(events)
                else:
                    for event in events:
                        if isinstance(event, ForwardConnected):
                            theirs.append(event.connection)
                        elif isinstance(event, ForwardEnded) and target is server:
                            seen_ended.append(theirs.index(event.connection))
                        elif isinstance(event, ForwardData):
                            target.acknowledge(event.connection, len(event.data))
                            names = mine if target is client else theirs
                            key = (
                                "down" if target is client else "up",
                                names.index(event.connection),
                            )
                            got[key] = got.get(key, b"") + event.data

    for what, which, data in steps:
        if what == "open":
            id = client.open(80)
            assert id is not None
            mine.append(id)
        elif mine:
            at = which % len(mine)
            if at in gone:
                continue
            if what == "end":
                client.end(mine[at])
                ended.add(at)
            elif what == "fail":
                server.fail(theirs[at], "x")
            elif what == "disconnect":
                server.disconnect(theirs[at])
                gone.add(at)
            elif what == "down" or at not in ended:
                wanted[what, at] = wanted.get((what, at), b"") + data * 999
                (client if what == "up" else server).write(
                    (mine if what == "up" else theirs)[at], data * 999
                )
        settle()
        assert len(theirs) == len(mine)
    assert got == wanted
    assert sorted(seen_ended) == sorted(ended)
    assert client.queued == near.queued == far.queued == server.queued == 0
    for id in mine:
        client.disconnect(id)
    settle()
    assert [end.spdy.open_streams for end in (client, near, far, server)] == [0, 0, 0, 0]


def test_a_node_that_takes_no_more() -> None:
    client, near = SPDY_WIRES["spdy"]()
    far = SpdyForwardClient()
    far.close()
    joined = PortForwardRelay(near, far, far.open)
    id = client.open(80)
    assert id is not None
    joined.from_near(near.receive_data(client.data_to_send()))
    got, _ = exchange(client, near)
    assert ForwardFailed(id, "error forwarding port 80: the node takes no more connections") in got
