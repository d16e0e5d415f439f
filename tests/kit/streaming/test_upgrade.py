"""Which wire a request gets, and how it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from transom.kit.streaming import channels, portforward, remotecommand
from transom.kit.streaming.channels import Refusal
from transom.kit.streaming.remotecommand import SpdyCommandServer, WebSocketCommandServer
from transom.kit.streaming.upgrade import accept_command, accept_forward

OUT = remotecommand.CommandStreams(stdout=True)
SOCKET = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
SPDY = {"connection": "Upgrade", "upgrade": "SPDY/3.1"}
FORWARD = SPDY | {"x-stream-protocol-version": "portforward.k8s.io"}
NO_AGREEMENT = (
    "unable to upgrade: unable to negotiate protocol: client supports [x], server accepts "
)
ALL_VERSIONS = "[v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]"


def offer(protocol: str) -> dict[str, str]:
    return SOCKET | {"sec-websocket-protocol": protocol}


@pytest.mark.parametrize(
    ("method", "headers", "protocol", "session"),
    [
        (
            "POST",
            SPDY | {"x-stream-protocol-version": "v4.channel.k8s.io, v3.channel.k8s.io"},
            channels.V4,
            SpdyCommandServer,
        ),
        ("GET", offer("v5.channel.k8s.io,v4.channel.k8s.io"), channels.V5, WebSocketCommandServer),
        ("GET", offer("x, base64.channel.k8s.io"), channels.BASE64, WebSocketCommandServer),
        ("GET", SOCKET, "", WebSocketCommandServer),
    ],
)
def test_commands(method: str, headers: dict[str, str], protocol: str, session: type) -> None:
    accepted = accept_command(method, headers, OUT)
    assert not isinstance(accepted, Refusal)
    assert (accepted.protocol, type(accepted.session)) == (protocol, session)
    answer = dict(accepted.headers)
    assert answer[b"Connection"] == b"Upgrade" and answer[b"Upgrade"].decode() == headers["upgrade"]
    assert (protocol.encode() in answer.values()) is bool(protocol)


@pytest.mark.parametrize(
    ("method", "headers", "status", "message"),
    [
        ("POST", SPDY, 400, "unable to upgrade: X-Stream-Protocol-Version is required"),
        (
            "POST",
            SPDY | {"x-stream-protocol-version": "x"},
            403,
            "\n".join([NO_AGREEMENT + ALL_VERSIONS] * 2),
        ),
        (
            "POST",
            {"x-stream-protocol-version": channels.V4},
            400,
            "unable to upgrade: missing upgrade headers in request",
        ),
        ("GET", offer("x"), 403, ""),
        ("GET", SOCKET | {"sec-websocket-key": ""}, 400, "mismatch challenge/response"),
        ("GET", SOCKET | {"sec-websocket-version": "8"}, 400, "missing or bad WebSocket Version"),
    ],
)
def test_refused_commands(method: str, headers: dict[str, str], status: int, message: str) -> None:
    refusal = accept_command(method, headers, OUT)
    assert isinstance(refusal, Refusal) and (refusal.status, refusal.message) == (status, message)


def test_a_command_without_streams() -> None:
    refusal = accept_command("GET", SOCKET, remotecommand.CommandStreams(tty=True))
    assert refusal == Refusal(400, "you must specify at least 1 of stdin, stdout, stderr", [])


def test_the_server_says_which_versions_it_has() -> None:
    assert isinstance(
        accept_command("GET", offer(channels.V5), OUT, websocket_protocols=[channels.V4]), Refusal
    )


@pytest.mark.parametrize(
    ("method", "headers", "ports", "expected"),
    [
        ("POST", FORWARD, [], (channels.PORT_FORWARD, portforward.SpdyForwardServer)),
        (
            "GET",
            offer("SPDY/3.1+portforward.k8s.io"),
            [],
            (channels.TUNNEL, portforward.SpdyForwardServer),
        ),
        (
            "GET",
            offer("v4.channel.k8s.io"),
            ["80"],
            (channels.V4, portforward.WebSocketForwardServer),
        ),
        (
            "POST",
            SPDY | {"x-stream-protocol-version": "x"},
            [],
            (403, NO_AGREEMENT + "[portforward.k8s.io]"),
        ),
        ("GET", offer("v4.channel.k8s.io"), [], (400, 'query parameter "port" is required')),
        ("GET", offer("v5.channel.k8s.io"), ["80"], (403, "")),
        ("POST", offer("SPDY/3.1+portforward.k8s.io"), [], (400, "a WebSocket begins with GET")),
    ],
)
def test_port_forward(
    method: str, headers: dict[str, str], ports: list[str], expected: Any
) -> None:
    answer = accept_forward(method, headers, ports)
    if isinstance(answer, Refusal):
        assert (answer.status, answer.message) == expected
    else:
        assert (answer.protocol, type(answer.session)) == expected
