"""TLS in front of a server that knows nothing of it, on a connection whose first bytes may have been read already."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import Callable
from functools import lru_cache

from transom.network.api import Accept

HANDSHAKE = 0x16
"""What a TLS client's first byte is."""


@lru_cache(maxsize=64)
def context_of(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Raises ssl.SSLError when they are no pair."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.set_alpn_protocols(["http/1.1"])
    with tempfile.NamedTemporaryFile() as pem:  # the ssl module takes certificates from files only
        pem.write(certificate + b"\n" + key)
        pem.flush()
        made.load_cert_chain(pem.name)
    return made


@lru_cache(maxsize=1)
def nobodys() -> ssl.SSLContext:
    """With a certificate that only those trust who trust every certificate. One for all."""
    from transom.kit import pki

    authority = pki.make_ca("localhost")
    pair = pki.issue_server(authority, "localhost", ("localhost",), ("127.0.0.1",))
    return context_of(pair.certificate, pair.key)


async def relay(first: bytes, connection: socket.socket, context: ssl.SSLContext, accept: Accept) -> None:
    """Does the handshake, hands the plain side to `accept`, and goes between until one of them ends."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(first)

    async def flush() -> None:
        if data := outgoing.read():
            await loop.sock_sendall(connection, data)

    async def when_fed(action: Callable[[], object]) -> bool:
        """False when the other side has gone."""
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
                await flush()  # the alert that says why
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
