"""What /proc shows of listening sockets."""

from __future__ import annotations

import socket

import pytest

from transom.network.kernel.listeners import decode_proc_address, has_listener


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("0A00F40A", "10.244.0.10"),
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "::ffff:127.0.0.1"),
    ],
)
def test_addresses_as_the_kernel_prints_them(text: str, address: str) -> None:
    assert str(decode_proc_address(text)) in (
        address,
        address.replace("::ffff:127.0.0.1", "::ffff:7f00:1"),
    )


@pytest.mark.parametrize(
    ("bound", "requested", "received"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.2", True),
    ],
)
def test_a_socket_takes_what_is_for_its_address(bound: str, requested: str, received: bool) -> None:
    with (
        socket.create_server((bound, 0)) as server,
        socket.socket(type=socket.SOCK_DGRAM) as datagrams,
    ):
        port = server.getsockname()[1]
        assert has_listener(requested, port, "tcp") is received
        datagrams.bind((bound, 0))
        assert has_listener(requested, datagrams.getsockname()[1], "udp") is received
    assert not has_listener(requested, port, "tcp")
