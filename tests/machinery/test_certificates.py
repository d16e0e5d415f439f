"""The form of signing requests determines their signer."""

from __future__ import annotations

import base64
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from transom.machinery import certificates, defaults
from transom.machinery.field import go_bytes
from transom.machinery.kinds import GVK

CLIENT = ["digital signature", "key encipherment", "client auth"]
SERVING = ["key encipherment", "digital signature", "server auth"]


def request(cn: str, *organizations: str, names: list[x509.GeneralName] | None = None) -> str:
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, cn))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


DNS = x509.DNSName("n")
ADDRESS = x509.IPAddress(ipaddress.ip_address("10.0.0.1"))


@pytest.mark.parametrize(
    ("encoded", "usages", "signer"),
    [
        (request("system:node:n", "system:nodes"), CLIENT, certificates.KUBELET_CLIENT_SIGNER),
        (request("system:node:n", "system:nodes"), SERVING, certificates.LEGACY_SIGNER),
        (request("system:node:n", "system:nodes", names=[DNS]), CLIENT, certificates.LEGACY_SIGNER),
        (
            request("system:node:n", "system:nodes", names=[DNS]),
            SERVING,
            certificates.KUBELET_SERVING_SIGNER,
        ),
        (
            request("system:node:n", "system:nodes", names=[ADDRESS]),
            SERVING,
            certificates.KUBELET_SERVING_SIGNER,
        ),
        (
            request("system:node:n", "system:nodes", names=[DNS, x509.RFC822Name("a@b")]),
            SERVING,
            certificates.LEGACY_SIGNER,
        ),
        (request("system:node:n", "system:nodes", "more"), CLIENT, certificates.LEGACY_SIGNER),
        (request("node", "system:nodes"), CLIENT, certificates.LEGACY_SIGNER),
        (request("system:node:n", "system:nodes"), [*CLIENT, "any"], certificates.LEGACY_SIGNER),
        ("bm9uZQ==", CLIENT, certificates.LEGACY_SIGNER),
        ("", CLIENT, certificates.LEGACY_SIGNER),
    ],
)
def test_the_beta_version_guesses_the_signer(encoded: str, usages: list[str], signer: str) -> None:
    obj = {"spec": {"request": encoded, "usages": usages}}
    defaults.apply_defaults(GVK("certificates.k8s.io", "v1beta1", "CertificateSigningRequest"), obj)
    assert obj["spec"]["signerName"] == signer


def test_bytes_are_shown_as_go_shows_them() -> None:
    data = bytes(range(256)) + b"\0\n\x10\xa0"
    assert go_bytes(data) == ", ".join(hex(byte) for byte in data)
    assert go_bytes(b"") == ""
    assert go_bytes(bytes(200_000)).endswith("0x0, 0x0, ... (68928 more)")
