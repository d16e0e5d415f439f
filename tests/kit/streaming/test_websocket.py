"""WebSocket as playbooks, with the examples of RFC 6455 where it has some."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.kit.streaming import websocket as ws
from transom.kit.streaming.websocket import (
    CloseCode,
    CloseReceived,
    PingReceived,
    PongReceived,
    WebSocketConnection,
    WebSocketConnectionFailed,
    WebSocketMessage,
)


def client() -> WebSocketConnection:
    return WebSocketConnection(client=True, random=lambda n: bytes.fromhex("37fa213d")[:n])


def frame(
    first: int, payload: bytes = b"", *, masked: bool = True, size: int | None = None
) -> bytes:
    """A frame by hand, from a client unless the test says otherwise."""
    bit = 0x80 if masked else 0
    length = len(payload) if size is None else size
    head = (
        bytes([first, bit | length])
        if length < 126
        else bytes([first, bit | 126]) + length.to_bytes(2, "big")
    )
    return head + (bytes(4) if masked else b"") + payload


def test_the_examples_of_the_rfc() -> None:
    assert WebSocketConnection(client=True).receive_data(bytes.fromhex("810548656c6c6f")) == [
        WebSocketMessage(b"Hello", text=True)
    ]
    assert WebSocketConnection(client=False).receive_data(
        bytes.fromhex("818537fa213d7f9f4d5158")
    ) == [WebSocketMessage(b"Hello", text=True)]
    assert WebSocketConnection(client=True).receive_data(bytes.fromhex("010348656c80026c6f")) == [
        WebSocketMessage(b"Hello", text=True)
    ]
    server = WebSocketConnection(client=False)
    server.send(b"Hello", text=True)
    assert server.data_to_send() == bytes.fromhex("810548656c6c6f")
    end = client()
    end.send(b"Hello", text=True)
    assert end.data_to_send() == bytes.fromhex("818537fa213d7f9f4d5158")
    assert end.receive_data(bytes.fromhex("890548656c6c6f")) == [PingReceived(b"Hello")]
    assert end.data_to_send() == bytes.fromhex("8a8537fa213d7f9f4d5158")
    assert ws.accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("size", "head"),
    [(125, "827d"), (126, "827e007e"), (65535, "827effff"), (65536, "827f0000000000010000")],
)
def test_lengths(size: int, head: str) -> None:
    server = WebSocketConnection(client=False)
    server.send(b"x" * size)
    raw = server.data_to_send()
    assert raw.startswith(bytes.fromhex(head)) and len(raw) == size + len(head) // 2
    assert WebSocketConnection(client=True).receive_data(raw) == [WebSocketMessage(b"x" * size)]


def test_control_frames_between_fragments() -> None:
    server = WebSocketConnection(client=False)
    raw = (
        frame(0x02, b"a")
        + frame(0x89, b"p")
        + frame(0x00, b"")
        + frame(0x8A, b"q")
        + frame(0x80, b"b")
    )
    assert server.receive_data(raw) == [
        PingReceived(b"p"),
        PongReceived(b"q"),
        WebSocketMessage(b"ab"),
    ]
    assert server.data_to_send() == bytes.fromhex("8a0170")


@pytest.mark.parametrize(
    ("payload", "code", "reason", "answer"),
    [
        (b"", CloseCode.NO_STATUS, "", b""),
        (b"\x03\xe8", 1000, "", b"\x03\xe8"),
        (b"\x0f\xa0bye", 4000, "bye", b"\x0f\xa0"),
    ],
)
def test_a_close_is_answered_in_kind(payload: bytes, code: int, reason: str, answer: bytes) -> None:
    server = WebSocketConnection(client=False)
    assert server.receive_data(frame(0x88, payload) + frame(0x82, b"late")) == [
        CloseReceived(code, reason)
    ]
    assert server.data_to_send() == bytes([0x88, len(answer)]) + answer
    server.send(b"x")
    server.close()
    assert server.data_to_send() == b"" and server.finished


def test_after_our_close_the_peer_may_finish() -> None:
    server = WebSocketConnection(client=False)
    server.close(CloseCode.GOING_AWAY, "ä" * 100)
    raw = server.data_to_send()
    assert len(raw) <= 127 and WebSocketConnection(client=True).receive_data(raw) == [
        CloseReceived(1001, "ä" * 61)
    ]
    assert server.receive_data(frame(0x82, b"last") + frame(0x88)) == [
        WebSocketMessage(b"last"),
        CloseReceived(1005, ""),
    ]
    assert server.data_to_send() == b""


MISTAKES: dict[str, tuple[bytes, CloseCode]] = {
    "reserved bits": (frame(0xC2, b"x"), CloseCode.PROTOCOL_ERROR),
    "unknown opcode": (frame(0x83), CloseCode.PROTOCOL_ERROR),
    "unknown control opcode": (frame(0x8B), CloseCode.PROTOCOL_ERROR),
    "no mask": (frame(0x82, b"x", masked=False), CloseCode.PROTOCOL_ERROR),
    "fragmented ping": (frame(0x09), CloseCode.PROTOCOL_ERROR),
    "long ping": (frame(0x89, b"x" * 126), CloseCode.PROTOCOL_ERROR),
    "continuation of nothing": (frame(0x80), CloseCode.PROTOCOL_ERROR),
    "message within a message": (frame(0x02) + frame(0x82), CloseCode.PROTOCOL_ERROR),
    "close with one byte": (frame(0x88, b"x"), CloseCode.PROTOCOL_ERROR),
    "close with a code of no wire": (frame(0x88, b"\x03\xed"), CloseCode.PROTOCOL_ERROR),
    "close with a low code": (frame(0x88, b"\0\0"), CloseCode.PROTOCOL_ERROR),
    "close with bad text": (frame(0x88, b"\x03\xe8\xff"), CloseCode.INVALID_PAYLOAD),
    "text that is none": (frame(0x81, b"\xff"), CloseCode.INVALID_PAYLOAD),
    "character cut in two messages": (frame(0x81, "ä".encode()[:1]), CloseCode.INVALID_PAYLOAD),
    "too large": (frame(0x82, size=1001), CloseCode.MESSAGE_TOO_BIG),
    "too large in pieces": (
        frame(0x02, b"x" * 600) + frame(0x80, size=401),
        CloseCode.MESSAGE_TOO_BIG,
    ),
    "length of 64 bits": (bytes([0x82, 0xFF]) + b"\xff" * 8, CloseCode.PROTOCOL_ERROR),
}


@pytest.mark.parametrize(("raw", "code"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_close_with_their_code(raw: bytes, code: CloseCode) -> None:
    server = WebSocketConnection(client=False, max_message=1000)
    (event,) = server.receive_data(raw)
    assert isinstance(event, WebSocketConnectionFailed) and event.code == code
    (recorded,) = WebSocketConnection(client=True).receive_data(server.data_to_send())
    assert isinstance(recorded, CloseReceived) and recorded.code == code
    assert server.receive_data(frame(0x82, b"x")) == [] and server.data_to_send() == b""


def test_a_server_must_not_mask() -> None:
    assert isinstance(client().receive_data(frame(0x82, b"x"))[0], WebSocketConnectionFailed)


def test_a_character_may_be_cut_between_fragments() -> None:
    raw = "ä".encode()
    assert WebSocketConnection(client=False).receive_data(
        frame(0x01, raw[:1]) + frame(0x80, raw[1:])
    ) == [WebSocketMessage(raw, text=True)]


def test_empty_fragments_cost_nothing() -> None:
    server = WebSocketConnection(client=False)
    assert server.receive_data(frame(0x02) + frame(0x00) * 1000) == []
    assert server._fragments == []
    assert server.receive_data(frame(0x80)) == [WebSocketMessage(b"")]


@given(st.binary(max_size=200))
def test_any_bytes_give_events_and_never_raise(raw: bytes) -> None:
    for is_client in (True, False):
        connection = WebSocketConnection(client=is_client)
        connection.receive_data(raw)
        connection.data_to_send()


messages = st.lists(
    st.tuples(
        st.sampled_from(["binary", "text", "ping"]), st.text(max_size=50) | st.just("x" * 70_000)
    ),
    max_size=10,
)


@settings(max_examples=50, deadline=None)
@given(messages, st.booleans(), st.data())
def test_round_trip_in_any_cutting(script: list[Any], is_client: bool, data: st.DataObject) -> None:
    sender, whole, cut = (
        WebSocketConnection(client=is_client),
        WebSocketConnection(client=not is_client),
        WebSocketConnection(client=not is_client),
    )
    expected: list[Any] = []
    for kind, text in script:
        raw = text.encode()
        if kind == "ping":
            sender.ping(raw[:100])
            expected.append(PingReceived(raw[:100]))
        else:
            sender.send(raw, text=kind == "text")
            expected.append(WebSocketMessage(raw, kind == "text"))
    sender.close()
    raw = sender.data_to_send()
    expected.append(CloseReceived(1000, ""))
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    pieces = [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]
    assert (
        [e for piece in pieces for e in cut.receive_data(piece)]
        == whole.receive_data(raw)
        == expected
    )


# -- the handshake

GOOD = {
    "upgrade": "WebSocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.mark.parametrize(
    ("method", "change", "good"),
    [
        ("GET", {}, True),
        ("POST", {}, False),
        ("GET", {"upgrade": "SPDY/3.1"}, False),
        ("GET", {"connection": "close"}, False),
        ("GET", {"sec-websocket-version": "8"}, False),
        ("GET", {"sec-websocket-key": ""}, False),
        ("GET", {"sec-websocket-key": "c2hvcnQ="}, False),
        ("GET", {"sec-websocket-key": "?"}, False),
    ],
)
def test_requests_are_checked(method: str, change: dict[str, str], good: bool) -> None:
    assert (ws.check_handshake_request(method, GOOD | change) == "") is good


def test_both_ends_of_the_handshake() -> None:
    key = ws.make_key()
    request = {
        name.decode().lower(): value.decode() for name, value in ws.request_headers(key, ["a", "b"])
    }
    assert ws.check_handshake_request("GET", request) == ""
    offered = ws.header_tokens(request["sec-websocket-protocol"])
    assert offered == ["a", "b"] and ws.choose_subprotocol(offered, {"b", "c"}) == "b"
    answer = {
        name.decode().lower(): value.decode() for name, value in ws.response_headers(key, "b")
    }
    assert ws.check_handshake_response(101, answer, key, ["a", "b"]) == ""
    assert ws.check_handshake_response(101, answer, key, ["a"]) != ""
    assert ws.check_handshake_response(101, answer, ws.make_key(), ["b"]) != ""
    assert ws.check_handshake_response(403, answer, key, ["b"]) != ""
    assert ws.check_handshake_response(101, answer | {"upgrade": "h2c"}, key, ["b"]) != ""


@pytest.mark.parametrize(
    ("offered", "supported", "chosen"),
    [
        ([], ["", "a"], ""),
        ([], ["a"], None),
        (["x"], ["", "a"], None),
        (["x", "b", "a"], ["a", "b"], "b"),
    ],
)
def test_the_first_offer_that_is_supported(
    offered: list[str], supported: list[str], chosen: str | None
) -> None:
    assert ws.choose_subprotocol(offered, supported) == chosen


@pytest.mark.parametrize("masked", [True, False])
def test_pieces_of_a_message_are_delivered_as_they_arrive(masked: bool) -> None:
    sender, receiver = (
        WebSocketConnection(client=masked),
        WebSocketConnection(client=not masked, pieces=True),
    )
    data = bytes(range(256)) * 4096
    sender.send(data)
    raw = sender.data_to_send()
    pieces: list[ws.MessagePiece] = []
    for at in range(0, len(raw), 9999):
        events = receiver.receive_data(raw[at : at + 9999])
        pieces += [event for event in events if isinstance(event, ws.MessagePiece)]
        assert len(receiver._buffer) < 30_000
    assert b"".join(piece.data for piece in pieces) == data
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_fragments_in_pieces_keep_no_memory() -> None:
    receiver = WebSocketConnection(client=False, pieces=True)
    first, more = b"\x02\x81\0\0\0\0a", b"\0\x81\0\0\0\0b"
    assert receiver.receive_data(first) == [ws.MessagePiece(b"a", False, False)]
    assert len(receiver.receive_data(more * 1000)) == 1000
    assert receiver._fragments == []
    assert receiver.receive_data(b"\x80\x80\0\0\0\0") == [ws.MessagePiece(b"", False, True)]
