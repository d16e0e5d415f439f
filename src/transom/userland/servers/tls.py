"""TLS for a server that does not support it, on a connection whose first bytes may already be read."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_function
from transom.kit.tls_pairs import load_certificate_pair
from transom.network.api import Accept

HANDSHAKE = 0x16
"""The first byte that a TLS client sends."""

if TYPE_CHECKING:
    from transom.kit.pki import issue_server, make_ca
else:  # few servers have certificates
    issue_server = lazy_function("transom.kit.pki", "issue_server")
    make_ca = lazy_function("transom.kit.pki", "make_ca")


@lru_cache(maxsize=64)
def context_of(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Raises ssl.SSLError if they do not match."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.set_alpn_protocols(["http/1.1"])
    load_certificate_pair(made, certificate, key)
    return made


@lru_cache(maxsize=1)
def untrusted_certificate() -> ssl.SSLContext:
    return context_of(*untrusted_pair())


@lru_cache(maxsize=1)
def untrusted_pair() -> tuple[bytes, bytes]:
    """A certificate of an unknown authority and its key, the same for all servers."""
    authority = make_ca("localhost")
    pair = issue_server(authority, "localhost", ("localhost",), ("127.0.0.1", "::1"))
    return pair.certificate, pair.key


async def relay(
    first: bytes, connection: socket.socket, context: ssl.SSLContext, accept: Accept
) -> None:
    """Does the handshake, passes the plain side to `accept`, and relays until one side ends."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(first)

    async def flush() -> None:
        if data := outgoing.read():
            await loop.sock_sendall(connection, data)

    async def when_fed(action: Callable[[], object]) -> bool:
        """False if the other side has closed the connection."""
        while True:
            try:
                action()
            except ssl.SSLWantReadError:
                await flush()
                data = await loop.sock_recv(connection, 65536)
                if not data:
                    return False
                incoming.write(data)
                continue
            except ssl.SSLError:
                await flush()  # the alert with the reason
                return False
            await flush()
            return True

    if not await when_fed(session.do_handshake):
        return
    near, far = socket.socketpair()
    near.setblocking(False)
    accept(far)

    async def answers() -> None:
        while data := await loop.sock_recv(near, 65536):
            session.write(data)
            await flush()

    answering = loop.create_task(answers())
    received: list[bytes] = []

    async def questions() -> None:
        while await when_fed(lambda: received.append(session.read(65536))):
            data = received.pop()
            if not data:
                return
            await loop.sock_sendall(near, data)

    asking = loop.create_task(questions())
    try:
        await asyncio.wait((answering, asking), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            near.shutdown(socket.SHUT_WR)
            await asyncio.wait((answering,))
    finally:
        answering.cancel()
        asking.cancel()
        near.close()
