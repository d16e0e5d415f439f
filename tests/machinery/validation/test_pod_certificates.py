"""PodCertificateRequests: keys, names, lifetimes, and how a request ends."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from transom.machinery.validation.pod_certificates import (
    validate_pod_certificate_request_create,
    validate_pod_certificate_request_status_update,
    validate_pod_certificate_request_update,
)

KEY = ed25519.Ed25519PrivateKey.generate()
START = datetime(2026, 1, 1, tzinfo=UTC)
DER = serialization.Encoding.DER
Key = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def stub(key: Key = KEY) -> str:
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    csr = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, digest)
    return base64.b64encode(csr.public_bytes(DER)).decode()


def request(**changes: Any) -> dict[str, Any]:
    spec = {
        "signerName": "example.com/signer",
        "podName": "p",
        "podUID": "1",
        "serviceAccountName": "default",
        "serviceAccountUID": "2",
        "nodeName": "n",
        "nodeUID": "3",
        "maxExpirationSeconds": 86400,
        "stubPKCS10Request": stub(),
        **changes,
    }
    meta = {"name": "r", "namespace": "default", "uid": "4", "resourceVersion": "1"}
    return {"metadata": meta, "spec": spec}


def problems(**changes: Any) -> list[tuple[str, str]]:
    return [
        (e.field, e.detail) for e in validate_pod_certificate_request_create(request(**changes))
    ]


def test_a_good_request() -> None:
    assert problems() == []
    assert problems(stubPKCS10Request=stub(ec.generate_private_key(ec.SECP256R1()))) == []
    assert problems(unverifiedUserAnnotations={"example.com/a": "b"}) == []


@pytest.mark.parametrize(
    ("changes", "field", "detail"),
    [
        ({"podUID": ""}, "spec.podUID", "must not be empty"),
        ({"maxExpirationSeconds": 60}, "spec.maxExpirationSeconds", "[3600, 7862400]"),
        (
            {"maxExpirationSeconds": 90000, "signerName": "kubernetes.io/x"},
            "spec.maxExpirationSeconds",
            "[3600, 86400]",
        ),
        ({"stubPKCS10Request": "AAAA"}, "spec.stubPKCS10Request", "must be a valid PKCS#10 CSR"),
        ({"stubPKCS10Request": ""}, "spec", "exactly one of (stubPKCS10Request)"),
        (
            {"unverifiedUserAnnotations": {"a": "b"}},
            "spec.unverifiedUserAnnotations",
            "must be a domain-prefixed key",
        ),
    ],
)
def test_bad_fields(changes: dict[str, Any], field: str, detail: str) -> None:
    [(found, text)] = problems(**changes)
    assert found == field
    assert detail in text


def test_weak_keys_are_rejected() -> None:
    weak = rsa.generate_private_key(65537, 2048)
    assert problems(stubPKCS10Request=stub(weak)) == [
        ("spec.stubPKCS10Request", "RSA keys must have modulus size 3072 or 4096")
    ]


def test_the_deprecated_key_needs_a_proof() -> None:
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    key = base64.b64encode(KEY.public_key().public_bytes(DER, info)).decode()
    proof = base64.b64encode(KEY.sign(b"1")).decode()
    old = {"stubPKCS10Request": "", "pkixPublicKey": key, "proofOfPossession": proof}
    assert problems(**old) == []
    assert problems(**old, podUID="5") == [
        ("spec.proofOfPossession", "could not verify proof-of-possession signature")
    ]


def test_the_spec_cannot_change() -> None:
    errors = validate_pod_certificate_request_update(request(podName="q"), request())
    assert [error.field for error in errors] == ["spec"]


def issued(key: Key = KEY, hours: int = 2, **changes: Any) -> dict[str, Any]:
    end = START + timedelta(hours=hours)
    issuer = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(START)
        .not_valid_after(end)
        .sign(issuer, hashes.SHA256())
    )
    status = {
        "conditions": [condition("Issued")],
        "certificateChain": certificate.public_bytes(serialization.Encoding.PEM).decode(),
        "notBefore": START.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "notAfter": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "beginRefreshAt": (START + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **changes,
    }
    return {**request(), "status": status}


def condition(kind: str, value: str = "True") -> dict[str, str]:
    when = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": value, "reason": "R", "lastTransitionTime": when}


def status_problems(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    found = validate_pod_certificate_request_status_update(new, old or request())
    return [error.detail or error.type for error in found]


def test_a_certificate_is_issued_to_the_requested_key() -> None:
    assert status_problems(issued()) == []
    assert status_problems(issued(ed25519.Ed25519PrivateKey.generate())) == [
        "leaf certificate was not issued to the requested public key"
    ]
    assert status_problems(issued(certificateChain="")) == [
        "issued certificate chain must contain at least one certificate"
    ]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"hours": 48}, "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"),
        ({"notBefore": None}, "must be present and consistent with the issued certificate"),
        (
            {"notAfter": "2026-01-01T03:00:00Z"},
            "must be set to the NotAfter time encoded in the leaf certificate",
        ),
        (
            {"beginRefreshAt": "2026-01-01T00:01:00Z"},
            "must be at least 10 minutes after status.notBefore",
        ),
        (
            {"beginRefreshAt": "2026-01-01T01:55:00Z"},
            "must be at least 10 minutes before status.notAfter",
        ),
    ],
)
def test_times_of_a_certificate(changes: dict[str, Any], detail: str) -> None:
    assert status_problems(issued(**changes)) == [detail]


def test_a_request_ends_once() -> None:
    denied = {**request(), "status": {"conditions": [condition("Denied")]}}
    assert status_problems(denied) == []
    assert status_problems(issued(), denied) == [
        "immutable after PodCertificateRequest is issued, denied, or failed"
    ]
    both = {**request(), "status": {"conditions": [condition("Denied"), condition("Failed")]}}
    assert status_problems(both) == [
        'There may be at most one condition with type "Issued", "Denied", or "Failed"'
    ]
    other = {**request(), "status": {"conditions": [condition("Ready")]}}
    assert status_problems(other) == ['supported values: "Denied", "Failed", "Issued"']
    early = {**request(), "status": {"certificateChain": "x"}}
    assert status_problems(early) == [
        'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
    ]
