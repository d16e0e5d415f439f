"""Calls to other servers: how much of a response is kept while its reader is behind."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
from tests.conftest import UVLOOP, Backend
from tests.http.conftest import Tls

from transom.http.outgoing import CallTarget, dial_target

_MOST_KEPT = 640 * 1024
_PIECE = bytes(16 * 1024)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(params=[UVLOOP, ("asyncio", {})], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.param
    return found


def _send_until_full(sock: socket.socket, context: ssl.SSLContext) -> int:
    """How many bytes of a body the client accepts without reading them."""
    with context.wrap_socket(sock, server_side=True) as peer:
        peer.settimeout(1.0)
        peer.recv(len(_REQUEST))
        peer.sendall(_HEAD)
        sent = 0
        try:
            while True:
                peer.sendall(_PIECE)
                sent += len(_PIECE)
        except TimeoutError:
            return sent


async def test_a_response_over_tls_waits_in_the_peer_until_it_is_read(tls: Tls) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)

    async def connected() -> socket.socket:
        return near

    serving = asyncio.create_task(asyncio.to_thread(_send_until_full, far, tls.server))
    target = CallTarget("localhost", 443, "localhost", context=tls.client)
    connection = await dial_target(target, lambda _host, _port: connected())
    await connection.send(_REQUEST)
    kept = await serving
    read = 0
    while read < kept:  # all of it arrives once it is read
        read += len(await connection.read())
    connection.abort()
    assert kept <= _MOST_KEPT
