"""What a certificate contains, in Windows' notation. Needs `cryptography`, which Wine's stand-ins do not
have.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from transom.kit.pki import validity_of

_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"}


class CertificateFields(NamedTuple):
    subject: str
    issuer: str
    serial: str
    not_before: float
    not_after: float
    names: tuple[str, ...]


def _name(name: x509.Name) -> str:
    parts = [
        f"{_SHORT.get(one.oid._name, one.rfc4514_attribute_name)}={one.value!s}" for one in name
    ]
    return ", ".join(reversed(parts))


def certificate_fields(der: bytes) -> CertificateFields:
    """Raises ValueError."""
    found = x509.load_der_x509_certificate(der)
    try:
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(extension.value.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        names = ()
    serial = f"{found.serial_number:X}"
    begins, ends = validity_of(der)
    return CertificateFields(
        _name(found.subject),
        _name(found.issuer),
        serial.zfill(len(serial) + len(serial) % 2),
        begins,
        ends,
        names,
    )


def self_signed(names: tuple[str, ...], begins: float, seconds: float) -> tuple[bytes, bytes]:
    """A certificate (DER) and its private key (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(begins, UTC))
        .not_valid_after(datetime.fromtimestamp(begins + seconds, UTC))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return made.public_bytes(serialization.Encoding.DER), secret
