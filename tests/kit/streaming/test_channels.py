"""Names, statuses, sizes and channel messages."""

from __future__ import annotations

from typing import Any

import pytest

from transom.kit.streaming import channels, websocket
from transom.kit.streaming.channels import (
    ChannelClosed,
    ChannelData,
    ChannelSocket,
    Refusal,
    ResizeDecoder,
    SocketClosed,
)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ("v4.channel.k8s.io, v3.channel.k8s.io", "v4.channel.k8s.io"),
        ("v9.channel.k8s.io,v2.channel.k8s.io", "v2.channel.k8s.io"),
        ("channel.k8s.io", "channel.k8s.io"),
        ("", Refusal(400, "unable to upgrade: X-Stream-Protocol-Version is required", [])),
        (
            "v9, v8",
            Refusal(
                403,
                "unable to upgrade: unable to negotiate protocol: client supports [v9 v8], "
                "server accepts"
                " [v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]",
                [
                    ("X-Accepted-Stream-Protocol-Versions", f"{v}channel.k8s.io")
                    for v in ("v4.", "v3.", "v2.", "")
                ],
            ),
        ),
    ],
)
def test_agreeing_on_a_version(offered: str, expected: str | Refusal) -> None:
    assert channels.negotiate_spdy(offered, channels.REMOTE_COMMAND_SPDY) == expected


def test_tunnelled_protocols() -> None:
    offered = ["v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io", "SPDY/3.1+other"]
    assert channels.tunnelled(offered) == ["portforward.k8s.io"]


@pytest.mark.parametrize(
    ("status", "code", "raw"),
    [
        (channels.command_success_status(), 0, b'{"metadata":{},"status":"Success"}'),
        (channels.exit_code_status(0, "x"), 0, b'{"metadata":{},"status":"Success"}'),
        (
            channels.exit_code_status(3, "exit 3"),
            3,
            b'{"metadata":{},"status":"Failure","message":"command terminated with non-zero '
            b'exit code: exit 3",'
            b'"reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}',
        ),
        (
            channels.internal_error_status("oh"),
            None,
            b'{"metadata":{},"status":"Failure","message":"Internal error occurred: '
            b'oh","reason":"InternalError",'
            b'"details":{"causes":[{"message":"oh"}]},"code":500}',
        ),
    ],
)
def test_statuses(status: dict[str, Any], code: int | None, raw: bytes) -> None:
    for protocol in (channels.V4, channels.V5, channels.V4_BASE64):
        assert channels.encode_status(status, protocol) == raw
        assert channels.decode_status(raw, protocol) == status
    assert channels.exit_code_of_status(status) == code
    text = channels.encode_status(status, channels.V3)
    assert text == (b"" if code == 0 else status["message"].encode())
    again = channels.decode_status(text, channels.V3)
    assert (again["status"], again.get("message")) == (status["status"], status.get("message"))


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_an_unreadable_status_is_a_failure(raw: bytes) -> None:
    assert channels.decode_status(raw, channels.V4)["status"] == "Failure"


@pytest.mark.parametrize(
    "status",
    [{}, {"reason": "NonZeroExitCode"}, channels.exit_code_status(1, "") | {"details": {}}],
)
def test_a_strange_status_has_no_exit_code(status: dict[str, Any]) -> None:
    assert channels.exit_code_of_status(status) is None


@pytest.mark.parametrize(
    ("pieces", "sizes"),
    [
        ([channels.encode_resize(80, 24)], [(80, 24)]),
        ([b'{"Wid', b'th":1,"Height":2}', b'{"height":3}'], [(1, 2), (0, 3)]),
        ([b'{"Width":1} {"Width":2}\n'], [(1, 0), (2, 0)]),
        ([b'{"Width":65536}', b'{"Width":1}'], []),
        ([b'{"Width":true}'], []),
        ([b'{"Width":"1"}'], []),
        ([b"nonsense}", b'{"Width":1}'], []),
        ([b"[1]}"], []),
        ([b" " * 5000, b'{"Width":1}'], []),
    ],
)
def test_sizes_until_the_first_mistake(pieces: list[bytes], sizes: list[tuple[int, int]]) -> None:
    decoder = ResizeDecoder()
    assert [size for piece in pieces for size in decoder.feed(piece)] == sizes


@pytest.mark.parametrize(
    ("protocol", "raw", "text"),
    [("", b"\x01hi", False), (channels.V5, b"\x01hi", False), (channels.BASE64, b"1aGk=", True)],
)
def test_messages_begin_with_their_channel(protocol: str, raw: bytes, text: bool) -> None:
    server, wire = ChannelSocket(protocol, client=False), websocket.WebSocketConnection(client=True)
    server.send(1, b"hi")
    assert wire.receive_data(server.data_to_send()) == [websocket.WebSocketMessage(raw, text)]
    wire.send(raw, text=text)
    wire.send(b"")
    assert server.receive_data(wire.data_to_send()) == [ChannelData(1, b"hi")]


def test_base64_that_is_none_is_dropped() -> None:
    server, wire = (
        ChannelSocket(channels.V4_BASE64, client=False),
        websocket.WebSocketConnection(client=True),
    )
    for message in (b"0?", b"0aGk=", b" aGk="):
        wire.send(message, text=True)
    assert server.receive_data(wire.data_to_send()) == [
        ChannelData(0, b"hi"),
        ChannelData(-16, b"hi"),
    ]


def test_the_close_signal_of_version_5() -> None:
    for protocol, expected in (
        (channels.V5, [ChannelClosed(0)]),
        (channels.V4, []),
    ):
        client, server = ChannelSocket(protocol, client=True), ChannelSocket(protocol, client=False)
        client.send_close(0)
        assert server.receive_data(client.data_to_send()) == expected
    server, wire = (
        ChannelSocket(channels.V5, client=False),
        websocket.WebSocketConnection(client=True),
    )
    wire.send(b"\xff")
    wire.send(b"\x00late")
    (event,) = server.receive_data(wire.data_to_send())
    assert isinstance(event, SocketClosed) and event.error
    (recorded,) = wire.receive_data(server.data_to_send())
    assert (
        isinstance(recorded, websocket.CloseReceived)
        and recorded.code == websocket.CloseCode.PROTOCOL_ERROR
    )


@pytest.mark.parametrize("protocol", [channels.V4, channels.V4_BASE64, channels.V5])
def test_large_messages_arrive_in_pieces(protocol: str) -> None:
    client, server = ChannelSocket(protocol, client=True), ChannelSocket(protocol, client=False)
    data = bytes(range(251)) * 500
    for _ in range(2):
        client.send(0, data)
        raw = client.data_to_send()
        events = [
            e for at in range(0, len(raw), 7777) for e in server.receive_data(raw[at : at + 7777])
        ]
        pieces = [e for e in events if isinstance(e, channels.ChannelData)]
        assert len(pieces) == len(events) > 1
        assert {piece.channel for piece in pieces} == {0}
        assert b"".join(piece.data for piece in pieces) == data


def test_the_rest_of_a_message_that_is_not_base64_is_dropped() -> None:
    server, wire = (
        ChannelSocket(channels.V4_BASE64, client=False),
        websocket.WebSocketConnection(client=True),
    )
    wire.send(b"0" + b"QUFB" * 5000 + b"!" + b"QUFB" * 10_000, text=True)
    wire.send(b"0QkJC", text=True)
    raw = wire.data_to_send()
    events = [
        e for at in range(0, len(raw), 17_000) for e in server.receive_data(raw[at : at + 17_000])
    ]
    assert events[-1] == channels.ChannelData(0, b"BBB")
    assert set(b"".join(e.data for e in events[:-1] if isinstance(e, channels.ChannelData))) <= {
        ord("A")
    }
