"""The server's TLS context: TLS 1.2 and later, client certificates asked for but not demanded.

A certificate that has run out passes here; whoever authenticates looks at its time, with every request, and can answer
401. One that another authority has signed does not, and its owner is told so by an alert.
"""

from __future__ import annotations

import logging
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Any

from transom.http.messages import PeerCertificate

log = logging.getLogger("transom.http")

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which the ssl module has no name for


class _Handshake(ssl.SSLObject):
    """Lets the alert go out that says why a client's certificate is not taken.

    The event loop drops the connection together with what is still to be sent as soon as a handshake fails; without the
    alert kubectl sees a connection that broke, and tries again for a quarter of a minute.
    """

    _refused: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._refused is not None:
            raise self._refused
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as refused:
            self._refused = refused
            raise ssl.SSLWantReadError from refused  # sends what is there; the next turn ends it


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session would skip the check of the client certificate, and kubectl never resumes one.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= _NO_CHECK_TIME
        context.sslobject_class = _Handshake
    return context


def peer_of(transport: Any) -> PeerCertificate | None:
    """Who the client says it is, by the certificate TLS has verified."""
    ssl_object = transport.get_extra_info("ssl_object")
    der = ssl_object.getpeercert(binary_form=True) if ssl_object is not None else None
    return _parse(der) if der else None


@lru_cache(maxsize=1024)
def _parse(der: bytes) -> PeerCertificate | None:
    from transom.kit.pki import subject_of, validity_of  # with the first client certificate, not at start-up

    try:
        return PeerCertificate(*subject_of(der), *validity_of(der))
    except ValueError as error:
        log.warning("a client certificate that cannot be read counts as none: %s", error)
        return None
