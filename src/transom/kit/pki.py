"""Certificates of a cluster: the CA, the certificates it issues, and the identity in a client
certificate.

Keys are P-256. `cryptography` costs 60 ms to import, so it is imported where it is used;
`subject_of` and `uids_of`, which every connection needs, do not use it.
"""

from __future__ import annotations

import ipaddress
import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from transom.kit.files import write_atomic
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509 import oid
else:
    ec = lazy_import("cryptography.hazmat.primitives.asymmetric.ec")
    hashes = lazy_import("cryptography.hazmat.primitives.hashes")
    oid = lazy_import("cryptography.x509.oid")
    serialization = lazy_import("cryptography.hazmat.primitives.serialization")
    x509 = lazy_import("cryptography.x509")

_DAY = 86400.0
CA_DAYS = 3650
LEAF_DAYS = 365
_RENEW_AFTER = (LEAF_DAYS - 30) * 86400.0
# Clocks of nodes differ slightly, so certificates are backdated.
_BACKDATE = 3600.0


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


def make_ca(cn: str, *, days: int = CA_DAYS, now: float | None = None) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(cn, ())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(name, name, key, days, now)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue_server(
    ca: KeyPair,
    cn: str,
    dns: Sequence[str] = (),
    ips: Sequence[str] = (),
    *,
    client: bool = False,
    days: int = LEAF_DAYS,
    now: float | None = None,
) -> KeyPair:
    """`client`: the certificate is also that of a client, as members of a group need."""
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns]
    names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]
    usages = [oid.ExtendedKeyUsageOID.SERVER_AUTH]
    if client:
        usages.append(oid.ExtendedKeyUsageOID.CLIENT_AUTH)
    return _issue(ca, cn, (), usages, names, days, now)


def issue_client(
    ca: KeyPair,
    cn: str,
    organizations: Sequence[str] = (),
    *,
    days: int = LEAF_DAYS,
    now: float | None = None,
) -> KeyPair:
    return _issue(ca, cn, organizations, [oid.ExtendedKeyUsageOID.CLIENT_AUTH], [], days, now)


def make_certificate_request(
    cn: str, organizations: Sequence[str], names: Sequence[str], addresses: Sequence[str]
) -> tuple[bytes, bytes]:
    """A PKCS #10 request and its new private key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ip_address(address)) for address in addresses]
    builder = x509.CertificateSigningRequestBuilder(_name(cn, organizations))
    if alternatives:
        extension = x509.SubjectAlternativeName(alternatives)
        builder = builder.add_extension(extension, critical=False)
    request = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return request, key.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    )


def save_key_pair(pair: KeyPair, certificate: Path, key: Path, *, sync_names: bool = True) -> None:
    """Write both files; the key is created readable only by its owner. `sync_names` as in
    `files.write_atomic`.
    """
    write_atomic(key, pair.key, 0o600, sync_name=False)
    write_atomic(certificate, pair.certificate, 0o644, sync_name=sync_names)


def load_key_pair(certificate: Path, key: Path) -> KeyPair:
    return KeyPair(certificate.read_bytes(), key.read_bytes())


def _issue(
    ca: KeyPair,
    cn: str,
    organizations: Sequence[str],
    usages: Sequence[x509.ObjectIdentifier],
    names: list[x509.GeneralName],
    days: int,
    now: float | None,
) -> KeyPair:
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key = serialization.load_pem_private_key(ca.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the certificate authority is not an elliptic curve key")
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(cn, organizations), issuer.subject, key, days, now)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _name(cn: str, organizations: Sequence[str]) -> x509.Name:
    fields = [
        *((oid.NameOID.ORGANIZATION_NAME, name) for name in organizations),
        (oid.NameOID.COMMON_NAME, cn),
    ]
    # Names of nodes and service accounts may be longer than the 64 characters X.520 allows;
    # Kubernetes accepts that.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return x509.Name([x509.NameAttribute(oid, value, _validate=False) for oid, value in fields])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    now: float | None,
) -> x509.CertificateBuilder:
    start = time.time() if now is None else now
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(int(start - _BACKDATE), UTC))
        .not_valid_after(datetime.fromtimestamp(int(start + days * _DAY), UTC))
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=sign_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    # "EC PRIVATE KEY", the form in which Kubernetes' own tools write such keys.
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private)


_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_VALIDITY, _SUBJECT = 3, 4  # after serial number, signature and issuer
_COMMON_NAME, _ORGANIZATION = b"\x55\x04\x03", b"\x55\x04\x0a"
_KUBERNETES_UID = b"\x2b\x06\x01\x04\x01\x83\xc2\x53\x02"
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_TIME_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_TEXT_ENCODINGS = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1E: "utf-16-be",
}


def subject_of(der: bytes) -> tuple[str, list[str]]:
    """Common name (the last, if there are several) and organizations of a certificate; ValueError
    if malformed.
    """
    cn, organizations = "", []
    for kind, at, end in _subject_attributes(der):
        if kind == _COMMON_NAME:
            cn = _text(der, at, end)
        elif kind == _ORGANIZATION:
            organizations.append(_text(der, at, end))
    return cn, organizations


def uids_of(der: bytes) -> tuple[str | None, ...]:
    """The UIDs of the user in the subject (OID 1.3.6.1.4.1.57683.2), None for one that is not text;
    ValueError if malformed.
    """
    return tuple(
        _text(der, at, end) if _element(der, at, end)[0] in _TEXT_ENCODINGS else None
        for kind, at, end in _subject_attributes(der)
        if kind == _KUBERNETES_UID
    )


def _subject_attributes(der: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The OID of each attribute, and where its value is."""
    _, at, end = _element(der, *_field(der, _SUBJECT), _SEQUENCE)
    while at < end:
        _, inner, at = _element(der, at, end, _SET)
        while inner < at:
            _, attribute, inner = _element(der, inner, at, _SEQUENCE)
            _, oid, oid_end = _element(der, attribute, inner, _OID)
            yield der[oid:oid_end], oid_end, inner


def validity_of(der: bytes) -> tuple[float, float]:
    """The validity period of a certificate; ValueError if malformed."""
    _, at, end = _element(der, *_field(der, _VALIDITY), _SEQUENCE)
    _, _, middle = _element(der, at, end)
    return _time(der, at, middle), _time(der, middle, end)


def _field(der: bytes, number: int) -> tuple[int, int]:
    """The position of a numbered field in a certificate; the version, which is optional, is not
    counted.
    """
    _, start, _ = _element(der, 0, len(der), _SEQUENCE)
    _, at, end = _element(der, start, len(der), _SEQUENCE)
    tag, _, after = _element(der, at, end)
    if tag == _VERSION:
        at = after
    for _ in range(number):
        _, _, at = _element(der, at, end)
    return at, end


def _element(der: bytes, at: int, end: int, expected: int | None = None) -> tuple[int, int, int]:
    """Tag, start and end of the contents of the element at `at`."""
    if at + 2 > end:
        raise ValueError("truncated certificate")
    tag, length = der[at], der[at + 1]
    start = at + 2
    if length & 0x80:
        width = length & 0x7F
        if not 1 <= width <= 4:
            raise ValueError("malformed length in certificate")
        length = int.from_bytes(der[start : start + width], "big")
        start += width
    if start + length > end or (expected is not None and tag != expected):
        raise ValueError("malformed certificate")
    return tag, start, start + length


def _text(der: bytes, at: int, end: int) -> str:
    tag, start, stop = _element(der, at, end)
    encoding = _TEXT_ENCODINGS.get(tag)
    if encoding is None:
        raise ValueError("unknown kind of text in the subject of the certificate")
    return der[start:stop].decode(encoding)


def _time(der: bytes, at: int, end: int) -> float:
    tag, start, stop = _element(der, at, end)
    form = _TIME_FORMATS.get(tag)
    if form is None:
        raise ValueError("unknown kind of time in the certificate")
    found = datetime.strptime(der[start:stop].decode("ascii"), form).replace(tzinfo=UTC)
    if tag == _UTC_TIME and found.year >= 2050:  # two digits mean 1950 to 2049
        found = found.replace(year=found.year - 100)
    return found.timestamp()


def is_fresh(cert: Path, key: Path, authority: Path) -> bool:
    """Whether a certificate exists, is signed by the current authority and is valid for another
    month. Checks only the age of the files, so that nothing is parsed at start. A key newer than
    its certificate indicates an interrupted renewal (see `save_key_pair`).
    """
    try:
        made, key_made, signer_made = cert.stat(), key.stat(), authority.stat()
    except FileNotFoundError:
        return False
    newest = max(key_made.st_mtime_ns, signer_made.st_mtime_ns)
    return made.st_mtime_ns >= newest and time.time() - made.st_mtime < _RENEW_AFTER
