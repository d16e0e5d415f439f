r"""The certificate stores of a Windows system, which are keys of its registry: one key for each
certificate, named by its thumbprint, with the certificate as its value `Blob`.

The private key of a certificate is the value `Key` here.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.registry import Hive, WindowsRegistry

STORES: Final = r"SOFTWARE\Microsoft\SystemCertificates"
LOCATIONS: Final = {"LocalMachine": "HKLM", "CurrentUser": "HKCU"}
NAMES: Final = (
    "My",
    "Root",
    "CA",
    "AuthRoot",
    "TrustedPublisher",
    "TrustedPeople",
    "Disallowed",
)
_PEM: Final = lazy_pattern(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


class StoredCertificate(NamedTuple):
    thumbprint: str
    der: bytes
    key: bytes = b""  # PEM


def thumbprint_of(der: bytes) -> str:
    return hashlib.sha1(der, usedforsecurity=False).hexdigest().upper()


def pem_certificates(data: bytes) -> list[bytes]:
    """The DER of each certificate in a PEM file; of a DER file itself."""
    found = [base64.b64decode(b"".join(match.split())) for match in _PEM.findall(data)]
    return found or ([data] if data[:1] == b"\x30" else [])


def store_key(location: str, store: str) -> str:
    return rf"{LOCATIONS[location]}\{STORES}\{store}\Certificates"


def stored_certificates(
    registry: WindowsRegistry, location: str, store: str
) -> list[StoredCertificate]:
    key = store_key(location, store)
    out = []
    for name in registry.keys(key):
        der, secret = registry.get(rf"{key}\{name}", "Blob"), registry.get(rf"{key}\{name}", "Key")
        if isinstance(der, bytes):
            out.append(StoredCertificate(name, der, secret if isinstance(secret, bytes) else b""))
    return out


def add_certificate(
    registry: WindowsRegistry, location: str, store: str, der: bytes, key: bytes = b""
) -> str:
    """Returns the thumbprint."""
    thumbprint = thumbprint_of(der)
    path = rf"{store_key(location, store)}\{thumbprint}"
    registry.set(path, "Blob", der)
    if key:
        registry.set(path, "Key", key)
    return thumbprint


def remove_certificate(
    registry: WindowsRegistry, location: str, store: str, thumbprint: str
) -> bool:
    return registry.delete(rf"{store_key(location, store)}\{thumbprint.upper()}")


def provided_stores(certificates: Mapping[str, Iterable[bytes]]) -> Hive:
    """The registry keys of certificates (DER) by store, for the machine."""
    return {
        rf"{store_key('LocalMachine', store)}\{thumbprint_of(der)}": {"Blob": der}
        for store, found in certificates.items()
        for der in found
    }
