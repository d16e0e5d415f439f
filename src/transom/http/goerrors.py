"""Error messages of Go's network stack.

Clients of the API server see these messages when a webhook or an aggregated API server is
unreachable, and users search for them. Nothing here opens a connection; certificates are examined
only after a call has failed.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from transom.kit.clock import rfc3339
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa
else:
    rsa = lazy_import("cryptography.hazmat.primitives.asymmetric.rsa")
    x509 = lazy_import("cryptography.x509")

DEADLINE = "context deadline exceeded"
HTTP_INSTEAD_OF_TLS = "http: server gave HTTP response to HTTPS client"

_ERRNO = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network is unreachable",
    errno.ETIMEDOUT: "connection timed out",
    errno.ECONNRESET: "connection reset by peer",
    errno.ECONNABORTED: "software caused connection abort",
    errno.EPIPE: "broken pipe",
    errno.EADDRNOTAVAIL: "cannot assign requested address",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.EINVAL: "invalid argument",
    errno.EMFILE: "too many open files",
}


class NetworkTexts(NamedTuple):
    """How Go reports failed system calls of an operating system."""

    connect: str
    read: str
    errors: Mapping[int, str]
    name_server: bool  # whether a failed lookup names the DNS server


POSIX = NetworkTexts("connect", "read", _ERRNO, name_server=True)
WINDOWS = NetworkTexts(
    "connectex",
    "wsarecv",
    {
        errno.ECONNREFUSED: "No connection could be made because the target machine actively refused it.",
        errno.EHOSTUNREACH: "A socket operation was attempted to an unreachable host.",
        errno.ENETUNREACH: "A socket operation was attempted to an unreachable network.",
        errno.ETIMEDOUT: "A connection attempt failed because the connected party did not properly respond "
        "after a period of time, "
        "or established connection failed because connected host has failed to respond.",
        errno.ECONNRESET: "An existing connection was forcibly closed by the remote host.",
        errno.ECONNABORTED: "An established connection was aborted by the software in your host machine.",
        errno.EPIPE: "An existing connection was forcibly closed by the remote host.",
        errno.EADDRNOTAVAIL: "The requested address is not valid in its context.",
        errno.EACCES: "An attempt was made to access a socket in a way forbidden by its access permissions.",
        errno.EPERM: "An attempt was made to access a socket in a way forbidden by its access permissions.",
        errno.EINVAL: "An invalid argument was supplied.",
        errno.EMFILE: "An operation on a socket could not be performed because the system lacked "
        "sufficient buffer space or "
        "because a queue was full.",
    },
    name_server=False,
)
# OpenSSL's name of an alert -> Go's, where they differ by more than case and spaces.
_ALERTS = {
    "unknown ca": "unknown certificate authority",
    "certificate expired": "expired certificate",
    "certificate revoked": "revoked certificate",
    "certificate unknown": "unknown certificate",
    "protocol version": "protocol version not supported",
    "decode error": "error decoding message",
    "decrypt error": "error decrypting message",
    "illegal parameter": "illegal parameter",
    "bad record mac": "bad record MAC",
    "no renegotiation": "no renegotiation",
    "unexpected message": "unexpected message",
}


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def errno_text(problem: OSError, texts: NetworkTexts = POSIX) -> str:
    number = problem.errno
    if number is None and isinstance(problem, ConnectionResetError):
        number = errno.ECONNRESET
    known = texts.errors.get(number) if number is not None else None
    return known or (problem.strerror or str(problem) or type(problem).__name__).lower()


def dial_error(address: str, problem: OSError, texts: NetworkTexts = POSIX) -> str:
    return f"dial tcp {address}: {texts.connect}: {errno_text(problem, texts)}"


def lookup_error(host: str, problem: socket.gaierror, texts: NetworkTexts = POSIX) -> str:
    server = _nameserver() if texts.name_server else ""
    where = f"{host} on {server}" if server else host
    if problem.errno in (socket.EAI_AGAIN,):
        return f"dial tcp: lookup {where}: server misbehaving"
    return f"dial tcp: lookup {where}: no such host"


def _nameserver() -> str:
    try:
        lines = Path("/etc/resolv.conf").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    found = next(
        (
            line.split()[1]
            for line in lines
            if line.startswith("nameserver ") and len(line.split()) > 1
        ),
        "",
    )
    return join_host_port(found, 53) if found else ""


def read_error(local: str, remote: str, problem: OSError, texts: NetworkTexts = POSIX) -> str:
    return f"read tcp {local}->{remote}: {texts.read}: {errno_text(problem, texts)}"


def malformed_response_error(line: bytes) -> str:
    first = line.split(b"\n", 1)[0].rstrip(b"\r").decode(errors="replace")
    return (
        f"net/http: HTTP/1.x transport connection broken: malformed HTTP response {go_quote(first)}"
    )


def tls_error(problem: ssl.SSLError) -> str:
    """The message of a handshake that failed for a reason other than the server's certificate."""
    reason = (problem.reason or "").upper()
    if reason in (
        "WRONG_VERSION_NUMBER",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNEXPECTED_RECORD",
    ):
        return HTTP_INSTEAD_OF_TLS
    if "ALERT_" in reason:
        alert = reason.partition("ALERT_")[2].lower().replace("_", " ")
        return f"remote error: tls: {_ALERTS.get(alert, alert)}"
    if isinstance(problem, ssl.SSLEOFError) or "EOF" in reason:
        return "EOF"
    return f"tls: {reason.lower().replace('_', ' ') or problem}"


def certificate_error(
    der: bytes, host: str, ca_bundle: bytes, now: float, problem: ssl.SSLCertVerificationError
) -> str:
    """Why a server's certificate is invalid, checked in Go's order: dates, names, signature."""
    leaf = x509.load_der_x509_certificate(der)
    start, end = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    if not start <= now <= end:
        word, limit = ("before", start) if now < start else ("after", end)
        return (
            f"x509: certificate has expired or is not yet valid: current time {rfc3339(now)} "
            f"is {word} "
            f"{rfc3339(limit)}"
        )
    mismatch = _name_mismatch(leaf, host)
    if mismatch:
        return mismatch
    if "purpose" in problem.verify_message:
        return "x509: certificate specifies an incompatible key usage"
    return "x509: certificate signed by unknown authority" + _hint(leaf, ca_bundle)


def _name_mismatch(leaf: x509.Certificate, host: str) -> str:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns, addresses = (
            names.get_values_for_type(x509.DNSName),
            names.get_values_for_type(x509.IPAddress),
        )
    except x509.ExtensionNotFound:
        names, dns, addresses = None, [], []
    try:
        wanted = ipaddress.ip_address(host)
    except ValueError:
        if any(_matches(pattern.lower(), host.lower()) for pattern in dns):
            return ""
        common = leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        if names is None and common and _matches(str(common[-1].value).lower(), host.lower()):
            return (
                "x509: certificate relies on legacy Common Name field, use SANs or "
                "temporarily enable Common Name "
                "matching with GODEBUG=x509ignoreCN=0"
            )
        valid = ", ".join(dns)
    else:
        if wanted in addresses:
            return ""
        if not addresses:
            return (
                f"x509: cannot validate certificate for {host} because it doesn't contain any IP "
                "SANs"
            )
        valid = ", ".join(map(str, addresses))
    if not valid:
        return f"x509: certificate is not valid for any names, but wanted to match {host}"
    return f"x509: certificate is valid for {valid}, not {host}"


def _matches(pattern: str, host: str) -> bool:
    pattern, host = pattern.rstrip("."), host.rstrip(".")
    parts, wanted = pattern.split("."), host.split(".")
    if len(parts) != len(wanted):
        return False
    return all(
        p == w or (i == 0 and p == "*") for i, (p, w) in enumerate(zip(parts, wanted, strict=True))
    )


def _hint(leaf: x509.Certificate, ca_bundle: bytes) -> str:
    """Reports a CA with the right name that did not sign this, because it is the usual mistake."""
    try:
        authorities = x509.load_pem_x509_certificates(ca_bundle) if ca_bundle else []
    except ValueError:
        return ""
    for authority in authorities:
        if authority.subject != leaf.issuer:
            continue
        why = "crypto/rsa: verification error"
        if not isinstance(authority.public_key(), rsa.RSAPublicKey):
            why = "x509: ECDSA verification failure"
        name = next(
            (
                str(a.value)
                for oid in (x509.NameOID.COMMON_NAME, x509.NameOID.ORGANIZATION_NAME)
                for a in authority.subject.get_attributes_for_oid(oid)
            ),
            f"serial:{authority.serial_number}",
        )
        return (
            f" (possibly because of {go_quote(why)} while trying to verify candidate "
            "authority certificate "
            f"{go_quote(name)})"
        )
    return ""
