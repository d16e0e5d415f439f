"""The server's TLS context: TLS 1.2 and later, client certificates asked for but not demanded."""

from __future__ import annotations

import logging
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Any

from transom.apiserver.http.messages import PeerCertificate

log = logging.getLogger("transom.http")


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
    return context


def peer_of(transport: Any) -> PeerCertificate | None:
    """Who the client says it is, by the certificate TLS has verified."""
    ssl_object = transport.get_extra_info("ssl_object")
    der = ssl_object.getpeercert(binary_form=True) if ssl_object is not None else None
    return _subject(der) if der else None


@lru_cache(maxsize=1024)
def _subject(der: bytes) -> PeerCertificate | None:
    from transom.kit.pki import subject_of  # with the first client certificate, not at start-up

    try:
        return PeerCertificate(*subject_of(der))
    except ValueError as error:
        log.warning("a client certificate with an unreadable subject counts as none: %s", error)
        return None
