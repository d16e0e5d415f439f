"""Whether a certificate and a key belong together."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from transom.machinery.validation.key_pairs import key_pair_problem


def key_text(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def certificate(key: ec.EllipticCurvePrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    start = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(start).not_valid_after(start + datetime.timedelta(1))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_matching_pair(certificate: bytes, key: ec.EllipticCurvePrivateKey) -> None:
    assert key_pair_problem(certificate, key_text(key)) == ""


def test_mismatches(certificate: bytes, key: ec.EllipticCurvePrivateKey) -> None:
    other = key_text(ec.generate_private_key(ec.SECP256R1()))
    assert key_pair_problem(certificate, other) == "tls: private key does not match public key"
    other = key_text(ed25519.Ed25519PrivateKey.generate())
    problem = "tls: private key type does not match public key type"
    assert key_pair_problem(certificate, other) == problem
    assert "have been switched" in key_pair_problem(key_text(key), certificate)
    problem = "tls: found a certificate rather than a key in the PEM for the private key"
    assert key_pair_problem(certificate, certificate) == problem


def test_missing_blocks(certificate: bytes) -> None:
    assert key_pair_problem(b"", b"") == "tls: failed to find any PEM data in certificate input"
    assert key_pair_problem(certificate, b"") == "tls: failed to find any PEM data in key input"
    other = b"-----BEGIN A-----\nAAAA\n-----END A-----\n"
    assert key_pair_problem(other, b"").endswith("of the following types: [A]")
    assert key_pair_problem(certificate, other * 2).endswith("of the following types: [A A]")
    bad = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    private = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    assert key_pair_problem(bad, private) == "x509: malformed certificate"
    assert key_pair_problem(certificate, private) == "tls: failed to parse private key"
