"""SPDY as playbooks: frames in, events and frames out."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.kit.streaming import spdy
from transom.kit.streaming import spdy_frames as frames
from transom.kit.streaming.spdy import (
    DataReceived,
    Event,
    GoneAway,
    HeadersReceived,
    PingAcknowledged,
    SpdyConnection,
    SpdyConnectionFailed,
    SpdyLimits,
    StreamAccepted,
    StreamClosedError,
    StreamEnded,
    StreamOpened,
    StreamReset,
)
from transom.kit.streaming.spdy_frames import FrameType, GoAwayCode, ResetCode


def opened(**more: Any) -> tuple[SpdyConnection, SpdyConnection, int]:
    """A client and a server with one stream between them, its first frames exchanged."""
    client, server = SpdyConnection(client=True, **more), SpdyConnection(client=False, **more)
    id = client.create_stream([("streamtype", "data")])
    server.receive_data(client.data_to_send())
    server.accept(id)
    client.receive_data(server.data_to_send())
    return client, server, id


def sent(connection: SpdyConnection) -> list[tuple[int | None, int, bytes]]:
    """Type, flags and payload of every frame there is to send; of data the stream and flags."""
    raw = bytearray(connection.data_to_send())
    out: list[tuple[int | None, int, bytes]] = []
    at = 0
    while (length := frames.peek_frame(raw, at)) is not None:
        frame = frames.cut_frame(raw, at, length)
        out.append(
            (
                frame.type,
                frame.flags,
                frame.payload if frame.type else frame.stream.to_bytes(4, "big"),
            )
        )
        at += 8 + length
    assert at == len(raw)
    return out


def rst(id: int, why: ResetCode) -> tuple[int, int, bytes]:
    return FrameType.RST_STREAM, 0, struct.pack(">II", id, why)


def test_the_dictionary_is_the_one_of_the_specification() -> None:
    assert (len(frames.DICTIONARY), zlib.adler32(frames.DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_frames_have_the_bytes_of_the_specification() -> None:
    assert frames.data_frame(1, b"abc", fin=True) == bytes.fromhex("00000001 01000003 616263")
    assert frames.rst_stream_frame(5, ResetCode.CANCEL) == bytes.fromhex(
        "80030003 00000008 00000005 00000005"
    )
    assert frames.ping_frame(1) == bytes.fromhex("80030006 00000004 00000001")
    assert frames.goaway_frame(3, GoAwayCode.OK) == bytes.fromhex(
        "80030007 00000008 00000003 00000000"
    )
    assert frames.window_update_frame(1, 65536) == bytes.fromhex(
        "80030009 00000008 00000001 00010000"
    )
    assert frames.settings_frame({7: 65536}) == bytes.fromhex(
        "80030004 0000000c 00000001 00000007 00010000"
    )
    assert frames.syn_stream_frame(1, b"", fin=True) == bytes.fromhex(
        "80030001 0100000a 00000001 00000000 0000"
    )


def test_a_stream_from_opening_to_end() -> None:
    client, server = SpdyConnection(client=True), SpdyConnection(client=False)
    id = client.create_stream([("streamType", "stdin"), ("x", "1"), ("x", "2")])
    headers = [("streamtype", "stdin"), ("x", "1"), ("x", "2")]
    assert server.receive_data(client.data_to_send()) == [StreamOpened(id, headers)]
    server.accept(id)
    server.send_data(id, b"hello")
    assert client.receive_data(server.data_to_send()) == [
        StreamAccepted(id, []),
        DataReceived(id, b"hello"),
    ]
    client.send_headers(id, [("more", "yes")])
    client.send_data(id, b"bye", fin=True)
    recorded = server.receive_data(client.data_to_send())
    assert recorded == [
        HeadersReceived(id, [("more", "yes")]),
        DataReceived(id, b"bye"),
        StreamEnded(id),
    ]
    server.send_data(id, b"late")  # half closed: the other direction goes on
    server.end_stream(id)
    assert client.receive_data(server.data_to_send()) == [
        DataReceived(id, b"late"),
        StreamEnded(id),
    ]
    assert (client.open_streams, server.open_streams) == (0, 0)
    with pytest.raises(StreamClosedError):
        client.send_data(id, b"x")


def test_nothing_is_sent_before_the_reply() -> None:
    """spdystream throws away what comes before."""
    client, server = SpdyConnection(client=True), SpdyConnection(client=False)
    id = client.create_stream([])
    client.send_data(id, b"early", fin=True)
    assert client.queued == 5 and [frame[0] for frame in sent(client)] == [FrameType.SYN_STREAM]
    server = SpdyConnection(client=False)
    server.receive_data(frames.syn_stream_frame(1, frames.HeaderWriter().write([])))
    server.send_data(1, b"first")
    server.accept(1)
    client.receive_data(server.data_to_send())
    assert sent(client) == [(None, frames.FLAG_FIN, b"\0\0\0\1")] and client.queued == 0


def test_large_data_goes_in_pieces_with_the_end_on_the_last() -> None:
    client, server, id = opened()
    client.send_data(id, b"x" * (2 * spdy.CHUNK + 1), fin=True)
    events = server.receive_data(client.data_to_send())
    assert [len(e.data) for e in events if isinstance(e, DataReceived)] == [
        spdy.CHUNK,
        spdy.CHUNK,
        1,
    ]
    assert events[-1] == StreamEnded(id)


def test_ids_are_odd_for_clients_and_even_for_servers() -> None:
    assert [SpdyConnection(client=c).create_stream([]) for c in (True, False)] == [1, 2]
    client = SpdyConnection(client=True)
    assert [client.create_stream([]) for _ in range(3)] == [1, 3, 5]


def test_reset() -> None:
    client, server, id = opened()
    client.send_data(id, b"x")
    client.reset(id)
    assert server.receive_data(client.data_to_send()) == [
        DataReceived(id, b"x"),
        StreamReset(id, ResetCode.CANCEL),
    ]
    client.reset(id)
    assert client.data_to_send() == b""
    # What was on its way is ignored.
    assert (
        client.receive_data(frames.data_frame(id, b"late", fin=True)) == [] and sent(client) == []
    )


def test_a_stream_may_be_gone_before_it_is_accepted() -> None:
    client, server = SpdyConnection(client=True), SpdyConnection(client=False)
    id = client.create_stream([])
    client.reset(id)
    assert server.receive_data(client.data_to_send()) == [
        StreamOpened(id, []),
        StreamReset(id, ResetCode.CANCEL),
    ]
    assert server.accept(id) is False and server.data_to_send() == b""


def test_ping_is_answered_and_ours_acknowledged() -> None:
    client, server, _ = opened()
    assert client.ping() == 1 and client.ping() == 3
    assert server.receive_data(client.data_to_send()) == []
    assert client.receive_data(server.data_to_send()) == [PingAcknowledged(1), PingAcknowledged(3)]
    assert server.ping() == 2


def test_going_away() -> None:
    client, server, id = opened()
    server.close()
    new = client.create_stream([])
    assert client.receive_data(server.data_to_send()) == [
        GoneAway(id, GoAwayCode.OK),
        StreamReset(new, ResetCode.REFUSED_STREAM),
    ]
    assert server.receive_data(client.data_to_send()) == []  # a stream that comes after is ignored
    client.send_data(id, b"x")  # those that are there go on
    assert server.receive_data(client.data_to_send()) == [DataReceived(id, b"x")]
    with pytest.raises(StreamClosedError):
        client.create_stream([])


def test_a_refused_stream_leaves_the_compression_in_step() -> None:
    client, server = (
        SpdyConnection(client=True),
        SpdyConnection(client=False, limits=SpdyLimits(streams=1)),
    )
    ids = [client.create_stream([("n", str(n))]) for n in range(3)]
    assert server.receive_data(client.data_to_send()) == [StreamOpened(ids[0], [("n", "0")])]
    assert sent(server) == [
        rst(ids[1], ResetCode.REFUSED_STREAM),
        rst(ids[2], ResetCode.REFUSED_STREAM),
    ]
    server.reset(ids[0])
    ids.append(client.create_stream([("n", "3")]))
    assert server.receive_data(client.data_to_send()) == [StreamOpened(ids[3], [("n", "3")])]


# -- mistakes of the peer


def block(*pairs: tuple[bytes, bytes], count: int | None = None, rest: bytes = b"") -> bytes:
    raw = struct.pack(">I", len(pairs) if count is None else count)
    for pair in pairs:
        raw += b"".join(struct.pack(">I", len(part)) + part for part in pair)
    packer = zlib.compressobj(zdict=frames.DICTIONARY)
    return packer.compress(raw + rest) + packer.flush(zlib.Z_SYNC_FLUSH)


BOMB = block((b"a", b"x" * 10_000_000))

FATAL = {
    "data for stream 0": frames.data_frame(0, b"x"),
    "SYN_STREAM for stream 0": frames.syn_stream_frame(0, block()),
    "RST_STREAM for stream 0": frames.rst_stream_frame(0, 1),
    "another version": bytes.fromhex("80020001 0000000a 00000001 00000000 0000"),
    "too short SYN_STREAM": frames.control_frame(FrameType.SYN_STREAM, b"\0\0\0\1"),
    "too short RST_STREAM": frames.control_frame(FrameType.RST_STREAM, b"\0\0\0\1"),
    "too short PING": frames.control_frame(FrameType.PING, b""),
    "too short GOAWAY": frames.control_frame(FrameType.GOAWAY, b"\0\0\0\0"),
    "too short WINDOW_UPDATE": frames.control_frame(FrameType.WINDOW_UPDATE, b"\0\0\0\1"),
    "SETTINGS with a wrong count": frames.control_frame(
        FrameType.SETTINGS, struct.pack(">III", 2, 7, 1)
    ),
    "no compression": frames.syn_stream_frame(1, b"plain text here"),
    "another dictionary": frames.syn_stream_frame(1, zlib.compress(b"\0\0\0\0")),
    "ended compression": frames.syn_stream_frame(
        1, zlib.compressobj(zdict=frames.DICTIONARY).flush()
    ),
    "headers cut short": frames.syn_stream_frame(1, block((b"a", b"b"), count=2)),
    "a length past the end": frames.syn_stream_frame(1, block(rest=b"\xff\xff\xff\xff", count=1)),
    "headers with a rest": frames.syn_stream_frame(1, block((b"a", b"b"), rest=b"x")),
    "too many headers": frames.syn_stream_frame(1, block(count=0xFFFFFFFF)),
    "a header bomb": frames.syn_stream_frame(1, BOMB),
    "too large control frame": frames.control_frame(FrameType.SYN_STREAM, b"x" * 65537),
    "more headers than allowed": frames.syn_stream_frame(
        1, frames.HeaderWriter().write([(f"h{i}", "v") for i in range(101)])
    ),
}


@pytest.mark.parametrize("raw", FATAL.values(), ids=FATAL.keys())
def test_nonsense_ends_the_connection(raw: bytes) -> None:
    server = SpdyConnection(client=False)
    (event,) = server.receive_data(raw)
    assert isinstance(event, SpdyConnectionFailed) and event.message == server.failed
    assert sent(server) == [(FrameType.GOAWAY, 0, struct.pack(">II", 0, GoAwayCode.PROTOCOL_ERROR))]
    assert server.receive_data(frames.ping_frame(1)) == [] and server.data_to_send() == b""
    with pytest.raises(StreamClosedError):
        server.create_stream([])


ONE_STREAM = {
    "even id from a client": (frames.syn_stream_frame(2, block()), 2, ResetCode.PROTOCOL_ERROR),
    "upper case header": (
        frames.syn_stream_frame(1, block((b"A", b"b"))),
        1,
        ResetCode.PROTOCOL_ERROR,
    ),
    "header without a name": (
        frames.syn_stream_frame(1, block((b"", b"b"))),
        1,
        ResetCode.PROTOCOL_ERROR,
    ),
    "header given twice": (
        frames.syn_stream_frame(1, block((b"a", b"b"), (b"a", b"c"))),
        1,
        ResetCode.PROTOCOL_ERROR,
    ),
    "data for no stream": (frames.data_frame(7, b"x"), 7, ResetCode.INVALID_STREAM),
    "headers for no stream": (frames.headers_frame(7, block()), 7, ResetCode.INVALID_STREAM),
    "reply for no stream": (frames.syn_reply_frame(2, block()), 2, ResetCode.INVALID_STREAM),
}


@pytest.mark.parametrize(("raw", "id", "why"), ONE_STREAM.values(), ids=ONE_STREAM.keys())
def test_a_mistake_in_one_stream_resets_it(raw: bytes, id: int, why: ResetCode) -> None:
    server = SpdyConnection(client=False)
    assert server.receive_data(raw + frames.ping_frame(1)) == []
    assert sent(server) == [rst(id, why), (FrameType.PING, 0, b"\0\0\0\1")]


def test_mistakes_with_an_open_stream_reset_it() -> None:
    _, server, id = opened()
    assert server.receive_data(frames.data_frame(id, b"", fin=True)) == [StreamEnded(id)]
    assert server.receive_data(frames.data_frame(id, b"more")) == [
        StreamReset(id, ResetCode.STREAM_ALREADY_CLOSED)
    ]
    client, _, id = opened()
    assert client.receive_data(frames.syn_stream_frame(2, block())) == [
        SpdyConnectionFailed(client.failed)
    ]  # the zlib stream began anew


def test_unknown_frames_are_ignored() -> None:
    server = SpdyConnection(client=False)
    assert (
        server.receive_data(
            frames.control_frame(10, b"credential")
            + frames.control_frame(5, b"")
            + frames.ping_frame(1)
        )
        == []
    )
    assert sent(server) == [(FrameType.PING, 0, b"\0\0\0\1")]


@given(st.binary(max_size=300))
def test_any_bytes_give_events_and_never_raise(raw: bytes) -> None:
    for client in (True, False):
        connection = SpdyConnection(client=client, window=65536)
        connection.create_stream([])
        connection.receive_data(raw)
        connection.receive_data(b"\x80\x03" + raw)
        connection.data_to_send()


# -- flow control


def test_without_windows_everything_is_sent_at_once() -> None:
    client, server, id = opened()
    client.send_data(id, b"x" * 1_000_000)
    assert client.queued == 0
    server.receive_data(
        frames.window_update_frame(0, 1)
        + frames.window_update_frame(9, 1)
        + frames.settings_frame({7: 1})
    )
    assert server.failed == ""


def test_windows_hold_back_what_is_not_acknowledged() -> None:
    client, server, id = opened(window=65536)
    client.send_data(id, b"x" * 100_000, fin=True)
    assert client.queued == 100_000 - 65536
    got = sum(
        len(e.data)
        for e in server.receive_data(client.data_to_send())
        if isinstance(e, DataReceived)
    )
    assert got == 65536
    server.acknowledge(id, 30_000)
    assert server.data_to_send() == b""  # not worth a frame yet
    server.acknowledge(id, 10_000)
    client.receive_data(server.data_to_send())
    events = server.receive_data(client.data_to_send())
    assert events[-1] == StreamEnded(id) and client.queued == 0


def test_each_stream_has_a_window_of_its_own() -> None:
    client, server, id = opened(window=65536)
    client.send_data(id, b"x" * 70_000)
    server.receive_data(client.data_to_send())
    server.acknowledge(0, 65536)  # of the connection, not of the stream
    client.receive_data(server.data_to_send())
    assert client.data_to_send() == b"" and client.queued == 70_000 - 65536
    other = client.create_stream([])
    server.receive_data(client.data_to_send())
    server.accept(other)
    client.receive_data(server.data_to_send())
    client.send_data(other, b"free")
    assert server.receive_data(client.data_to_send()) == [DataReceived(other, b"free")]


def test_a_larger_window_is_announced() -> None:
    client, server, id = opened(window=200_000)
    client.receive_data(server.data_to_send())
    client.send_data(id, b"x" * 200_001)
    assert client.queued == 1


def test_more_than_the_window_is_a_mistake() -> None:
    _, server, id = opened(window=65536)
    server.receive_data(frames.data_frame(id, b"x" * 40_000))
    server.acknowledge(0, 40_000)  # of the connection, not of the stream
    server.data_to_send()
    assert server.receive_data(frames.data_frame(id, b"x" * 40_000)) == [
        StreamReset(id, ResetCode.FLOW_CONTROL_ERROR)
    ]
    _, server, id = opened(window=65536)
    assert server.receive_data(frames.data_frame(id, b"x" * 65537)) == [
        SpdyConnectionFailed(server.failed)
    ]


@pytest.mark.parametrize("delta", [0, 0x7FFFFFFF])
def test_window_updates_out_of_bounds(delta: int) -> None:
    client, _, id = opened(window=65536)
    assert client.receive_data(frames.window_update_frame(id, delta)) == [
        StreamReset(id, ResetCode.FLOW_CONTROL_ERROR)
    ]
    assert client.receive_data(frames.window_update_frame(0, delta)) == [
        SpdyConnectionFailed(client.failed)
    ]


# -- laws

operations = st.lists(
    st.tuples(
        st.sampled_from(["open", "send", "end", "reset", "ping", "headers"]),
        st.booleans(),
        st.integers(0, 7),
        st.binary(max_size=40) | st.integers(1, 5).map(lambda n: b"z" * (n * 20_000)),
    ),
    max_size=30,
)


def play(
    script: list[Any], window: int
) -> tuple[list[bytes], list[list[Event]], SpdyConnection, SpdyConnection]:
    """Random work on both ends, everything exchanged after each step. The bytes each end got, and
    the events.
    """
    ends = (SpdyConnection(client=True, window=window), SpdyConnection(client=False, window=window))
    got = [b"", b""]
    events: list[list[Event]] = [[], []]
    ids: list[int] = []

    def exchange() -> None:
        moved = True
        while moved:
            moved = False
            for here in (0, 1):
                raw = ends[1 - here].data_to_send()
                moved = moved or bool(raw)
                got[here] += raw
                for event in ends[here].receive_data(raw):
                    events[here].append(event)
                    if isinstance(event, StreamOpened):
                        ends[here].accept(event.stream)
                    elif isinstance(event, DataReceived):
                        ends[here].acknowledge(event.stream, len(event.data))

    for what, by_client, which, data in script:
        end = ends[0 if by_client else 1]
        if what == "open":
            ids.append(end.create_stream([("n", str(len(ids))), ("d", data[:9].hex())]))
        elif what == "ping":
            end.ping()
        elif ids:
            id = ids[which % len(ids)]
            if what == "reset":
                end.reset(id)
            elif end.can_send(id):
                if what == "send":
                    end.send_data(id, data)
                elif what == "end":
                    end.end_stream(id)
                else:
                    end.send_headers(id, [("k", data[:5].hex())])
        exchange()
    return got, events, *ends


@settings(max_examples=40, deadline=None)
@given(operations, st.sampled_from([0, 65536, 100_000]))
def test_both_ends_agree_whatever_they_do(script: list[Any], window: int) -> None:
    _, events, client, server = play(script, window)
    assert client.failed == server.failed == ""
    assert client.open_streams == server.open_streams
    assert client.queued == server.queued == 0
    written: dict[tuple[bool, int], bytes] = {}
    ids: list[int] = []
    counts = {True: -1, False: 0}
    ended: set[tuple[bool, int]] = set()
    gone: set[int] = set()
    for what, by_client, which, data in script:
        if what == "open":
            counts[by_client] += 2
            ids.append(counts[by_client])
        elif ids:
            id = ids[which % len(ids)]
            if {(True, id), (False, id)} <= ended:
                gone.add(id)
            if id in gone:
                continue
            if what == "reset":
                gone.add(id)
            elif what == "end":
                ended.add((by_client, id))
            elif what == "send" and (by_client, id) not in ended:
                written[by_client, id] = written.get((by_client, id), b"") + data
    for by_client in (True, False):
        read: dict[tuple[bool, int], bytes] = {}
        for event in events[1 if by_client else 0]:
            if isinstance(event, DataReceived):
                key = by_client, event.stream
                read[key] = read.get(key, b"") + event.data
        assert read == {key: data for key, data in written.items() if key[0] == by_client and data}


def joined(events: list[Any]) -> list[Any]:
    """Large frames are delivered in pieces; what they hold together is the same."""
    out: list[Any] = []
    for event in events:
        if (
            isinstance(event, DataReceived)
            and out
            and isinstance(out[-1], DataReceived)
            and out[-1].stream == event.stream
        ):
            out[-1] = DataReceived(event.stream, out[-1].data + event.data)
        else:
            out.append(event)
    return out


@settings(max_examples=40, deadline=None)
@given(operations, st.data())
def test_any_cutting_of_the_bytes_gives_the_same_events(
    script: list[Any], data: st.DataObject
) -> None:
    got, _, *_ = play(script, 0)
    for client in (True, False):
        raw = got[0 if client else 1]
        whole = SpdyConnection(client=client)
        cut = SpdyConnection(client=client)
        for end in (whole, cut):
            for _ in range(sum(what == "open" and by == client for what, by, *_ in script)):
                end.create_stream([])
        places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
        pieces = [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]
        assert joined([e for piece in pieces for e in cut.receive_data(piece)]) == joined(
            whole.receive_data(raw)
        )
        assert cut.data_to_send() == whole.data_to_send()


@pytest.mark.parametrize("window", [0, spdy.MAX_WINDOW])
def test_a_large_frame_is_delivered_as_it_arrives(window: int) -> None:
    client, server = SpdyConnection(client=True), SpdyConnection(client=False, window=window)
    client.create_stream([])
    server.receive_data(client.data_to_send())
    size = frames.MAX_LENGTH
    server.receive_data(struct.pack(">II", 1, frames.FLAG_FIN << 24 | size))
    received = 0
    for at in range(0, size, 65536):
        events = server.receive_data(b"x" * min(65536, size - at))
        received += sum(len(event.data) for event in events if isinstance(event, DataReceived))
        assert len(server._buffer) < 20_000
    assert received == size
    assert isinstance(events[-1], StreamEnded)


def test_a_large_frame_for_a_stream_that_does_not_exist_is_refused_once() -> None:
    server = SpdyConnection(client=False)
    events = server.receive_data(struct.pack(">II", 7, 200_000) + b"x" * 100_000)
    events += server.receive_data(b"x" * 100_000) + server.receive_data(frames.ping_frame(1))
    assert events == []
    assert server.data_to_send() == frames.rst_stream_frame(
        7, ResetCode.INVALID_STREAM
    ) + frames.ping_frame(1)
