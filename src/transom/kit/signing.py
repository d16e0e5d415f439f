"""Signs certificate requests (PKCS#10) with a CA.

Usages have cfssl's names. Only the subject, the alternative names and the public key of the request
are used; everything else it asks for is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from transom.kit.lazy import lazy_import
from transom.kit.pki import KeyPair

if TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
else:
    ec = lazy_import("cryptography.hazmat.primitives.asymmetric.ec")
    exceptions = lazy_import("cryptography.exceptions")
    hashes = lazy_import("cryptography.hazmat.primitives.hashes")
    serialization = lazy_import("cryptography.hazmat.primitives.serialization")
    rsa = lazy_import("cryptography.hazmat.primitives.asymmetric.rsa")
    x509 = lazy_import("cryptography.x509")

# Clocks of nodes differ slightly.
_BACKDATE = 300.0

_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
# In the order in which they appear in a certificate.
_EXTENDED_USAGES = {
    "any": "2.5.29.37.0",
    "server auth": "1.3.6.1.5.5.7.3.1",
    "client auth": "1.3.6.1.5.5.7.3.2",
    "code signing": "1.3.6.1.5.5.7.3.3",
    "email protection": "1.3.6.1.5.5.7.3.4",
    "s/mime": "1.3.6.1.5.5.7.3.4",
    "ipsec end system": "1.3.6.1.5.5.7.3.5",
    "ipsec tunnel": "1.3.6.1.5.5.7.3.6",
    "ipsec user": "1.3.6.1.5.5.7.3.7",
    "timestamping": "1.3.6.1.5.5.7.3.8",
    "ocsp signing": "1.3.6.1.5.5.7.3.9",
    "microsoft sgc": "1.3.6.1.4.1.311.10.3.3",
    "netscape sgc": "2.16.840.1.113730.4.1",
}


def sign_request(
    ca: KeyPair, request: bytes, usages: Iterable[str], seconds: float, now: float
) -> bytes:
    """Returns the certificate (PEM), valid for at most the given time; raises ValueError if the
    request cannot be granted.
    """
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    key = serialization.load_pem_private_key(ca.key, None)
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise ValueError(
            "the key of the certificate authority is neither RSA nor an elliptic curve key"
        )
    requested = x509.load_pem_x509_csr(request)
    try:
        valid = requested.is_signature_valid
    except exceptions.InvalidSignature:
        valid = False
    if not valid:
        raise ValueError("unable to verify certificate request signature")
    start = datetime.fromtimestamp(int(now - _BACKDATE), UTC)
    end = issuer.not_valid_after_utc
    if end <= datetime.fromtimestamp(now, UTC):
        raise ValueError(f"the signer has expired: NotAfter={end}")
    builder = (
        x509.CertificateBuilder()
        .subject_name(requested.subject)
        .issuer_name(issuer.subject)
        .public_key(requested.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(min(start + timedelta(seconds=seconds), end))
    )
    for extension, critical in (
        *_usage_extensions(usages),
        (x509.BasicConstraints(False, None), True),
    ):
        builder = builder.add_extension(extension, critical)
    authority = _authority_key(issuer)
    if authority is not None:
        builder = builder.add_extension(authority, critical=False)
    names = _names(requested)
    if names is not None:
        builder = builder.add_extension(names, critical=not list(requested.subject))
    signed = builder.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def _usage_extensions(usages: Iterable[str]) -> list[tuple[x509.ExtensionType, bool]]:
    wanted = [*usages]
    unknown = [
        usage for usage in wanted if usage not in _KEY_USAGES and usage not in _EXTENDED_USAGES
    ]
    if unknown:
        raise ValueError(f"unrecognized usage values: {unknown}")
    out: list[tuple[x509.ExtensionType, bool]] = []
    basic = {_KEY_USAGES[usage] for usage in wanted if usage in _KEY_USAGES}
    if basic:
        flags: dict[str, Any] = {name: name in basic for name in {*_KEY_USAGES.values()}}
        # they are meaningless without it
        flags["key_agreement"] |= flags["encipher_only"] or flags["decipher_only"]
        out.append((x509.KeyUsage(**flags), True))
    extended = [*dict.fromkeys(oid for usage, oid in _EXTENDED_USAGES.items() if usage in wanted)]
    if extended:
        out.append((x509.ExtendedKeyUsage([x509.ObjectIdentifier(oid) for oid in extended]), False))
    return out


def _authority_key(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier | None:
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return None
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    """The alternative names of the kinds that are granted."""
    granted = (x509.DNSName, x509.RFC822Name, x509.IPAddress, x509.UniformResourceIdentifier)
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    kept = [name for name in names if isinstance(name, granted)]
    return x509.SubjectAlternativeName(kept) if kept else None
