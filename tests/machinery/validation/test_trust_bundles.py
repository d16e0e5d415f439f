"""Trust bundles: names by signer, and PEM blocks."""

from __future__ import annotations

from typing import Any

import pytest

from transom.kit.pki import make_ca
from transom.machinery.validation.trust_bundles import validate_cluster_trust_bundle_create

PLACEHOLDER = "-----BEGIN {0}-----\n{1}\n-----END {0}-----\n"


@pytest.fixture(scope="module")
def anchor() -> str:
    return make_ca("test").certificate.decode()


def bundle(text: str, name: str = "b", signer: str = "") -> dict[str, Any]:
    spec = {"trustBundle": text, **({"signerName": signer} if signer else {})}
    return {"metadata": {"name": name, "uid": "1"}, "spec": spec}


def problems(obj: dict[str, Any]) -> list[str]:
    return [error.detail for error in validate_cluster_trust_bundle_create(obj)]


def test_the_name_follows_from_the_signer(anchor: str) -> None:
    assert problems(bundle(anchor)) == []
    assert problems(bundle(anchor, "a.b:c:x", "a.b/c")) == []
    assert problems(bundle(anchor, "x", "a.b/c")) == [
        "ClusterTrustBundle for signerName a.b/c must be named with prefix a.b:c:"
    ]
    assert problems(bundle(anchor, "a:b")) == [
        'ClusterTrustBundle without signer name must not have ":" in its name'
    ]


def test_blocks_are_certificates_of_authorities(anchor: str) -> None:
    assert problems(bundle("")) == ["at least one trust anchor must be provided"]
    assert problems(bundle(anchor + anchor)) == ["duplicate trust anchor (indices [0 1])"]
    assert problems(bundle(PLACEHOLDER.format("CERTIFICATE", "AAAA"))) == [
        "entry 0 does not parse as X.509"
    ]
    assert problems(bundle(PLACEHOLDER.format("KEY", "AAAA"))) == [
        "entry 0 has bad block type: KEY"
    ]
