"""The server's TLS context: TLS 1.2 and later, client certificates requested but not required.

Accepts expired certificates: authentication checks the expiry on every request and can respond with
401. A certificate from another CA is rejected, and the client gets an alert.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import sys
from asyncio import sslproto
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.http.connection_base import TransportLayer
from transom.http.messages import PeerCertificate
from transom.kit.lazy import lazy_import
from transom.kit.tls_pairs import load_certificate_files

# Imported with the first client certificate, to start faster.
if TYPE_CHECKING:
    from transom.kit import pki
else:
    pki = lazy_import("transom.kit.pki")

log = logging.getLogger("transom.http")

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not define


class _Handshake(ssl.SSLObject):
    """Sends the alert that explains why a client's certificate is rejected, or why the server has
    no certificate (`sni_callback`).

    The event loop drops the connection with all pending output as soon as a handshake fails;
    without the alert kubectl sees a broken connection and retries for 15 seconds.
    """

    _refused: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._refused is not None:
            raise self._refused
        try:
            super().do_handshake()
        except ssl.SSLError as refused:
            explained = isinstance(refused, ssl.SSLCertVerificationError)
            if not explained and refused.reason != "CALLBACK_FAILED":
                raise
            self._refused = refused
            raise ssl.SSLWantReadError from refused  # sends pending data; the next turn ends it


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session would skip the check of the client certificate, and kubectl never resumes
    # sessions.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    load_certificate_files(context, cert, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= _NO_CHECK_TIME
        context.sslobject_class = _Handshake
    return context


def tls_layer(
    loop: asyncio.AbstractEventLoop,
    context: ssl.SSLContext,
    handshake_timeout: float,
    shutdown_timeout: float,
    most_handshakes: int,
) -> Callable[[TransportLayer], asyncio.BaseProtocol] | None:
    """Puts TLS under a connection, and passes it the transport below TLS.

    Encrypted data is buffered there, up to 64 KiB for each client that does not read, unless a
    lower limit is set; the transport above TLS has no access to it. Returns None if the loop is not
    uvloop, whose layer this is.

    A handshake takes about 45 KiB. Beyond `most_handshakes` unfinished ones the oldest is aborted: a
    client that continues is done long before.
    """
    unfinished: dict[asyncio.Future[None], Any] = {}  # the transports, the oldest first
    module = sys.modules.get("uvloop.loop")  # its types do not name the class
    base: Any = getattr(module, "SSLProtocol", None)
    if base is None or not isinstance(loop, module.Loop):  # type: ignore[union-attr]
        return None

    class Layer(base):  # type: ignore[misc]  # Cython's
        connection: TransportLayer
        ready: asyncio.Future[None]

        def connection_made(self, transport: Any) -> None:
            self.connection.lower = transport
            unfinished[self.ready] = transport
            if len(unfinished) > most_handshakes:
                unfinished.pop(next(iter(unfinished))).abort()
            super().connection_made(transport)

    def finish(done: asyncio.Future[None]) -> None:
        unfinished.pop(done, None)
        if not done.cancelled():
            done.exception()  # the layer closes by itself

    def make(connection: TransportLayer) -> asyncio.BaseProtocol:
        ready: asyncio.Future[None] = loop.create_future()
        ready.add_done_callback(finish)
        layer = Layer(
            loop,
            connection,
            context,
            ready,
            server_side=True,
            ssl_handshake_timeout=handshake_timeout,
            ssl_shutdown_timeout=shutdown_timeout,
        )
        layer.connection = connection
        layer.ready = ready
        protocol: asyncio.BaseProtocol = layer
        return protocol

    return make


def limit_tls_buffers(size: int = 32 * 1024) -> None:
    """Limits the read buffer of each TLS connection of asyncio's loop, for the whole process.

    asyncio allocates 256 KiB for each connection, which a client with a dozen open watches does not
    need: a TLS record has 16 KiB at most.
    """
    sslproto.SSLProtocol.max_size = size


def peer_certificate(transport: Any) -> PeerCertificate | None:
    """The client's identity, from the certificate that TLS has verified."""
    ssl_object = transport.get_extra_info("ssl_object")
    der = ssl_object.getpeercert(binary_form=True) if ssl_object is not None else None
    return _parse(der) if der else None


@lru_cache(maxsize=1024)
def _parse(der: bytes) -> PeerCertificate | None:
    try:
        return PeerCertificate(
            *pki.subject_of(der),
            *pki.validity_of(der),
            hashlib.sha256(der).hexdigest(),
            pki.uids_of(der),
        )
    except ValueError as error:
        log.warning("a client certificate that cannot be read counts as none: %s", error)
        return None
